package cli_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
	"github.com/carillon-scheduler/carillon/ops"
)

// Refused requests from transactions are listed, delivered again and discarded.
func TestOutbox(t *testing.T) {
	at, run := time.Now().Add(-2*time.Minute), jobs.NewID(time.Now())
	box := storetest.NewOutbox(metastore.RefusedRequest{At: at, Key: "shop.pack", Run: run, Actor: "client:shop", Reason: "there is no job shop.pack\x1b[31m"},
		metastore.RefusedRequest{At: at, Reason: "the request cannot be read", Unreadable: true}, metastore.RefusedRequest{At: at, Key: "shop.gone", Reason: "no"})
	server := httptest.NewServer(api.New(api.Config{Ops: ops.New(ops.Config{Store: memstore.Open(memstore.Config{}), Outbox: box})}))
	defer server.Close()
	for _, c := range []struct {
		args, out, errs string
		code            int
	}{
		{"list -n 201", "", "limit", 2},
		{"list -o name", "3\n2\n1\n", "", 0},
		{"list -n 1 -o name", "3\n", "", 0},
		{"list", "shop.pack  " + run.String() + "  client:shop  there is no job shop.pack", "", 0},
		{"list -o json", `"unreadable": true`, "", 0},
		{"retry", "", "carillon outbox retry needs the numbers of refused requests", 2},
		{"retry one", "", `invalid number "one" of a request`, 2},
		{"retry -- -1", "", `invalid number "-1" of a request`, 2},
		{"retry 99", "", "there is no refused request with these numbers", 3},
		{"retry 1 3 99 --reason back", "2 requests are delivered again\n", "", 0},
		{"discard 1", "", "there is no refused request with these numbers", 3},
		{"discard 2 -o json", "{\n  \"requests\": 1\n}\n", "", 0},
		{"list", "No requests from transactions were refused.\n", "", 0},
	} {
		out, errs, code := (call{env: map[string]string{"CARILLON_SERVER": server.URL}}).run(append([]string{"outbox"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) || strings.Contains(out, "\x1b") {
			t.Errorf("outbox %s: exit code %d, %q, %q", c.args, code, out, errs)
		}
	}
	if got := box.Retried(); len(got) != 2 {
		t.Errorf("retried: %v", got)
	}
	if _, errs, code := (call{env: open(t).env()}).run("outbox", "discard", "1"); code != 4 || !strings.Contains(errs, "its rows are not in a database") {
		t.Errorf("without a database: %d %s", code, errs)
	}
}
