package httpjob

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// definitions is a store of one job.
type definitions struct {
	Store
	now *kernel.Definition
}

func (d *definitions) Definition(context.Context, jobs.Tenant, jobs.Key) (*kernel.Definition, error) {
	return d.now, nil
}

// Requests are remembered for the job that makes them, and not for another one of its key: that of another tenant, or
// one that was created when the former job, or its whole tenant, had been deleted. They carry addresses and secrets.
func TestRequestsOfASuccessor(t *testing.T) {
	d := &definitions{now: &kernel.Definition{Revision: 7}}
	d.now.Policy.HTTP = json.RawMessage(`{"request":[{"url":"http://former.example.com/"}]}`)
	r, err := New(d, Config{})
	if err != nil {
		t.Fatal(err)
	}
	requests := func(at jobs.AttemptInfo) bool {
		k, err := r.plan(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return k.plan != nil
	}
	at := jobs.AttemptInfo{Tenant: "acme", Key: "report", Job: jobs.ID{1}, Revision: 7}
	requests(at)
	d.now = &kernel.Definition{Revision: 1}
	if !requests(at) {
		t.Error("the requests of a revision are read again")
	}
	successor, other := at, at
	successor.Job, successor.Revision = jobs.ID{2}, 1
	other.Tenant, other.Revision = "umbrella", 1
	for _, at := range []jobs.AttemptInfo{successor, other} {
		if requests(at) {
			t.Errorf("%+v makes the requests of its predecessor", at)
		}
	}
}
