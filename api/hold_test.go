package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A program that requests runs over REST is held by a pause and by debug mode, as one on the bus is; a person who asks
// for a run is not.
func TestS4_15RequestsOverRESTAreHeld(t *testing.T) {
	const trigger = "/api/v1/jobs/billing.charge/trigger"
	for name, hold := range map[string]kernel.Command{
		"pause": kernel.Pause{Key: "billing.charge", Reason: "stocktaking"},
		"debug": kernel.Configure{TriggeredDebug: new(true)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			d.apply(hold)
			if run := read[api.Run](t, d.send("POST", trigger, `{}`)); run.State != "Scheduled" || run.Origin != "api" {
				t.Errorf("a program's run is %s, origin %s: want Scheduled, api", run.State, run.Origin)
			}
			if run := read[api.Run](t, d.send("POST", trigger, `{"manual":true}`)); run.State != "Enqueued" || run.Origin != "person" {
				t.Errorf("a person's run is %s, origin %s: want Enqueued, person", run.State, run.Origin)
			}
			list := d.send("POST", "/api/v1/runs", `{"items":[{"job":"billing.charge"},{"job":"billing.charge","manual":true}]}`)
			if n := strings.Count(string(list.body), `"Scheduled"`); n != 1 {
				t.Errorf("of a program's and a person's run in one request, %d are held: %s", n, list.body)
			}
		})
	}
}

// A rerun names one finished run: a pause does not hold it.
func TestRerunsAreNotHeld(t *testing.T) {
	d := newFixture(t)
	id := jobs.NewID(time.Now())
	d.apply(kernel.Create{ID: id, Key: "billing.charge"})
	d.apply(kernel.Cancel{ID: id})
	d.apply(kernel.Pause{Key: "billing.charge"})
	if run := read[api.Run](t, d.send("POST", "/api/v1/runs/"+id.String()+"/retry", "")); run.State != "Enqueued" || run.Origin != "retry" {
		t.Errorf("a rerun is %s, origin %s: want Enqueued, retry", run.State, run.Origin)
	}
}
