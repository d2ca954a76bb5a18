package httpjob

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// stored is a store in which a job makes requests.
type stored struct {
	Store
	t      *testing.T
	engine *memstore.Engine
	local  *metastore.Local
	at     jobs.AttemptInfo
}

func newStored(t *testing.T) *stored {
	engine := memstore.New(memstore.Config{})
	local := &metastore.Local{Engine: engine, Now: time.Now}
	s := &stored{Store: local, t: t, engine: engine, local: local}
	s.register()
	return s
}

func (s *stored) apply(k kernel.Command) *kernel.Definition {
	s.t.Helper()
	r := s.local.Apply(s.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]
	if r.Err != nil {
		s.t.Fatal(r.Err)
	}
	return r.Definition()
}

// register makes the job, or another one of its key.
func (s *stored) register() {
	s.t.Helper()
	d := s.apply(kernel.Register{App: App, Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: "report", Kind: kernel.Triggered},
		Set: kernel.Settings{HTTP: new(json.RawMessage(`{"request":[{"url":"http://first.example.com/"}]}`))}})
	s.at = jobs.AttemptInfo{Tenant: d.Tenant, Key: d.Key, Job: d.UID, Revision: d.Revision}
}

// edit has the job call another host.
func (s *stored) edit(host string) {
	s.t.Helper()
	s.at.Revision = s.apply(kernel.Edit{Key: s.at.Key, Set: kernel.Settings{
		HTTP: new(json.RawMessage(`{"request":[{"url":"http://` + host + `.example.com/"}]}`))}}).Revision
}

// calls is what a run of the job would call.
func (s *stored) calls(r *Runner, at jobs.AttemptInfo) (string, error) {
	k, err := r.plan(s.t.Context(), at)
	if err != nil {
		return "", err
	}
	return string(k.raw), nil
}

func (s *stored) want(r *Runner, at jobs.AttemptInfo, host string) {
	s.t.Helper()
	if got, err := s.calls(r, at); err != nil || !strings.Contains(got, "http://"+host+".") {
		s.t.Errorf("its requests are %s (%v), want those of %s", got, err, host)
	}
}

// A store that was restored from a backup beneath a worker gives a revision again, to other requests.
func TestRequestsOfARestoredStore(t *testing.T) {
	s := newStored(t)
	r, err := New(s, Config{})
	if err != nil {
		t.Fatal(err)
	}
	backup := s.engine.Capture()
	rows := func(yield func(kernel.Row, error) bool) {
		for row := range backup.Rows() {
			if !yield(row, nil) {
				return
			}
		}
	}
	s.edit("lost")
	lost := s.at
	s.want(r, s.at, "lost")
	if err := s.engine.Restore(rows); err != nil {
		t.Fatal(err)
	}
	s.edit("restored")
	if s.at != lost {
		t.Fatalf("the revision is another: %+v, %+v", s.at, lost)
	}
	s.want(r, s.at, "restored")
}

// Requests are those of the job that makes them, and not of another one of its key: that of another tenant, or one
// that was created when the former job, or its whole tenant, had been deleted. They carry addresses and secrets. A run
// that outlives its job does what the job did.
func TestRequestsOfASuccessor(t *testing.T) {
	s := newStored(t)
	r, err := New(s, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.want(r, s.at, "first")
	former, other := s.at, s.at
	other.Tenant = "umbrella"
	if got, err := s.calls(r, other); err == nil {
		t.Errorf("a job of another tenant makes the requests %s", got)
	}
	s.apply(kernel.Delete{Key: s.at.Key})
	s.want(r, former, "first")
	s.register()
	s.edit("successor")
	s.want(r, former, "first")
	s.want(r, s.at, "successor")
	fresh, err := New(s, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.calls(fresh, former); err == nil {
		t.Errorf("a run of the former job makes the requests %s of the later one", got)
	}
}

// away is a store that cannot be read.
type away struct{ Store }

func (away) Definition(context.Context, jobs.Tenant, jobs.Key) (*kernel.Definition, error) {
	return nil, kernel.Refuse(jobs.Unavailable, "no node leads")
}

// A run whose job cannot be read now waits, and uses up no retry.
func TestRequestsThatCannotBeRead(t *testing.T) {
	r, err := New(away{}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.plan(t.Context(), jobs.AttemptInfo{Key: "report", Job: jobs.ID{1}})
	if waits, ok := errors.AsType[outcome.Snooze](err); !ok || waits.For != unread {
		t.Errorf("it ends with %v", err)
	}
}
