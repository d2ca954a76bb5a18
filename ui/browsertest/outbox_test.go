package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// Requests from transactions that the scheduler refused after the commit are on the overview, which leads to where they
// are retried and discarded.
func TestRefusedRequests(t *testing.T) {
	url := sqltest.Postgres.New(t)
	h := build(t, embed.Config{Database: url}, shop()...)
	db := sqltest.Postgres.Open(t, url)
	b := h.newTab(true)
	b.open("/outbox")
	b.sees("No refused requests.")
	b.inOrder("/outbox")
	for i := range 2 {
		request := kernel.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(fmt.Sprintf("shop.gone-%d", i))}
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:shop", Command: request}
		if _, err := db.Exec("INSERT INTO carillon_outbox (envelope) VALUES ($1)", kernel.AppendEnvelopes(nil, []kernel.Envelope{e})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("INSERT INTO carillon_outbox (envelope) VALUES ('?')"); err != nil {
		t.Fatal(err)
	}
	h.until("they are refused", func() bool {
		list, err := h.Ops().RefusedRequests(t.Context(), ann, 0)
		return err == nil && len(list) == 3
	})
	b.open("/")
	b.sees("3 requests from transactions were refused")
	b.leads(`//main//a[contains(@href, "/outbox")]`)
	b.sees(`there is no job "shop.gone-1"`)
	b.sees("unreadable")
	b.inOrder("/outbox")
	b.expect("409")
	b.tick(`input[aria-label="Select request 1 of shop.gone-0"]`)
	b.leads(button("Retry selected"))
	b.sees("was refused less than 1m0s ago")
	b.open("/outbox")
	b.tick(`input[aria-label="Select request 1 of shop.gone-0"]`)
	b.tick(`input[aria-label="Select request 2 of shop.gone-1"]`)
	b.leads(button("Discard selected"))
	b.sees("2 requests were discarded.")
	b.until("one is left", `document.querySelectorAll("#page tbody tr").length === 1`)
}
