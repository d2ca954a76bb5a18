package ops_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// silenced is a store that answers no read once it has applied a command.
type silenced struct {
	metastore.Store
	done int // commands
}

func (s *silenced) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	s.done += len(batch)
	return s.Store.Apply(ctx, batch)
}

func (s *silenced) refused() error {
	if s.done == 0 {
		return nil
	}
	return kernel.Refuse(jobs.Unavailable, "the leader does not answer")
}

func (s *silenced) Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.Store.Global(ctx, tenant)
}

func (s *silenced) Calendars(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.Store.Calendars(ctx, tenant)
}

func (s *silenced) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.Store.Definition(ctx, tenant, key)
}

func (s *silenced) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.Store.Definitions(ctx, q)
}

func (s *silenced) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if err := s.refused(); err != nil {
		return nil, err
	}
	return s.Store.Run(ctx, tenant, id)
}

func (s *silenced) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	if err := s.refused(); err != nil {
		return metastore.Page{}, err
	}
	return s.Store.Runs(ctx, q)
}

// A change that succeeded is never reported as "not done" because a later read failed: the caller would repeat it, or
// believe that a job is still paused.
func TestCommittedChangesAreNotReportedAsFailed(t *testing.T) {
	weekly := kernel.Settings{Schedule: new("0 0 3 * * 1")}
	for name, c := range map[string]struct {
		do      func(d *fixture, o *ops.Ops) error
		unknown bool // more was meant than that
	}{
		"an edit": {do: func(d *fixture, o *ops.Ops) error {
			_, err := o.Edit(d.t.Context(), ann, kernel.Edit{Key: "app.nightly", Set: weekly})
			return err
		}},
		"a pause": {do: func(d *fixture, o *ops.Ops) error {
			_, err := o.Pause(d.t.Context(), ann, kernel.Pause{Key: "app.nightly"})
			return err
		}},
		"a resume": {do: func(d *fixture, o *ops.Ops) error {
			_, _, err := o.Resume(d.t.Context(), ann, "app.nightly", ops.Resumption{})
			return err
		}},
		"a trigger": {do: func(d *fixture, o *ops.Ops) error {
			_, err := o.Trigger(d.t.Context(), ann, kernel.Create{Key: "app.work"})
			return err
		}},
		"a resume that lets runs go": {do: func(d *fixture, o *ops.Ops) error {
			_, _, err := o.Resume(d.t.Context(), ann, "app.work", ops.Resumption{})
			return err
		}},
		"a second pause, of other runs": {do: func(d *fixture, o *ops.Ops) error {
			d.apply(kernel.Pause{Key: "app.work"})
			_, err := o.Pause(d.t.Context(), ann, kernel.Pause{Key: "app.work"})
			return err
		}},
		"settings that let runs go": {do: func(d *fixture, o *ops.Ops) error {
			_, err := o.Configure(d.t.Context(), ann, kernel.Configure{TriggeredDebug: new(false)}, ops.HeldRelease)
			return err
		}},
		"a calendar": {unknown: true, do: func(d *fixture, o *ops.Ops) error {
			_, err := o.SetCalendar(d.t.Context(), ann, kernel.SetCalendar{Name: "holidays", Zone: "UTC", Rules: []string{"01-01"}})
			return err
		}},
		"a deletion": {do: func(d *fixture, o *ops.Ops) error {
			_, err := o.Delete(d.t.Context(), ann, kernel.Delete{Key: "app.nightly"}, ops.FinishLiveRuns)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFixture(t)
			store := &silenced{Store: d.store}
			err := c.do(d, ops.New(ops.Config{Store: store, Logs: d.logs, Now: func() time.Time { return d.now }}))
			if store.done == 0 {
				t.Fatalf("nothing was done: %v", err)
			}
			if c.unknown != errors.Is(err, jobs.Unknown) || !c.unknown && err != nil {
				t.Errorf("it was done, and the answer is %v", err)
			}
		})
	}
}
