package ui_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

// faulty is a store that has an answer of its own to some commands.
type faulty struct {
	metastore.Full
	err func(kernel.Command) error
}

func (f *faulty) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for _, e := range batch {
		if err := f.err(e.Command); err != nil {
			return metastore.Refused(batch, err)
		}
	}
	return f.Full.Apply(ctx, batch)
}

// breaks has the store answer commands with an error, where there is one.
func (s *scene) breaks(err func(kernel.Command) error) {
	s.Handler = ui.New(ui.Config{Ops: ops.New(ops.Config{Store: &faulty{s.store, err}, Logs: s.logs, Live: s.live}), Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil))})
}

var errDoubt error = kernel.Refuse(jobs.Unknown, "outcome unknown: the answer has not come")

// An unknown outcome is not shown as a failure: the user would repeat the request.
func TestOutcomeThatIsNotKnown(t *testing.T) {
	s := newScene(t)
	s.breaks(func(kernel.Command) error { return errDoubt })
	answer, body := s.post("/jobs/app.work/trigger", nil)
	s.has("a run that may have been made", answer, body, 504, "<h1>504: outcome unknown</h1>", "<title>504: outcome unknown", "the answer has not come", "Check before you repeat it")
	s.breaks(func(kernel.Command) error { return errors.New("the disk is on fire") })
	answer, body = s.post("/jobs/app.work/trigger", nil)
	s.has("an error inside", answer, body, 500, "<h1>500: internal error</h1>", "The server log has details", "!disk", "!Check before")
}

// Of several runs, it is said of which the outcome is not known, and what was done of the others.
func TestBulkOfWhichAnOutcomeIsNotKnown(t *testing.T) {
	s := newScene(t)
	first, second := s.runs[jobs.Processing], s.runs[jobs.Scheduled]
	says := errDoubt
	s.breaks(func(k kernel.Command) error {
		if cancel, ok := k.(kernel.Cancel); ok && cancel.ID == second {
			return says
		}
		return nil
	})
	answer, body := s.post("/runs/bulk", url.Values{"id": {first.String(), second.String()}, "do": {"cancel"}, "here": {"/runs"}})
	s.has("the second one", answer, body, 504, "<h1>504: outcome unknown</h1>", "completed for 1 run; the outcome for run "+second.String()+" is unknown")
	third := s.runs[jobs.Failed]
	says = errors.New("the disk is on fire")
	answer, body = s.post("/runs/bulk", url.Values{"id": {third.String(), second.String()}, "do": {"cancel"}, "here": {"/runs"}})
	s.has("an error inside", answer, body, 504, "<h1>504: outcome unknown</h1>", "completed for 1 run, then interrupted", "!disk")
	answer, body = s.post("/runs/bulk", url.Values{"id": {second.String(), "17"}, "do": {"cancel"}, "here": {"/runs"}})
	s.has("what is no run", answer, body, 422, "!interrupted")
}
