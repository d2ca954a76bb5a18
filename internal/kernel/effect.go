package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Effect is what a command did: the rows as they now are. History, cache invalidation, offers to workers and the
// live dashboard are all made of effects.
type Effect struct {
	Runs        []*Run
	Definitions []*Definition
	Missed      []*Missed
	Global      *Global
	Token       *Token // as Grant made it
	// Existing says that nothing was done because it had been done before: the command was sent twice, or its
	// unique key is held. The rows are those that were there.
	Existing bool
	// Receipt stands for the rows where the asker has no use for them: workers and programs are told over the bus how a
	// run stands, and not what they have just said of it themselves.
	Summary *Summary
}

// Receipt is how a run stands after a command.
type Summary struct {
	ID        jobs.ID
	Key       jobs.Key
	State     jobs.State
	Cause     Cause
	Due       time.Time
	Attempt   uint32
	RetryAt   time.Time
	Lingering bool
}

// Receipt is how the run stands.
func (run *Run) Summary() Summary {
	return Summary{ID: run.ID, Key: run.Key, State: run.State, Cause: run.Cause, Due: run.Due, Attempt: run.Attempt, RetryAt: run.RetryAt, Lingering: run.Lingering}
}

// Run is the run that a receipt tells of, without what it does not tell.
func (r *Summary) Run() *Run {
	return &Run{ID: r.ID, Key: r.Key, State: r.State, Cause: r.Cause, Due: r.Due, Attempt: r.Attempt, RetryAt: r.RetryAt, Lingering: r.Lingering}
}

// Run is the first run of the effect, or nil: what Create, Claim, Finish and Cancel answer with. Of a receipt it
// has what that tells.
func (e Effect) Run() *Run {
	switch {
	case len(e.Runs) > 0:
		return e.Runs[0]
	case e.Summary != nil:
		return e.Summary.Run()
	}
	return nil
}

// Stands is how the first run of the effect stands, if there is one.
func (e *Effect) Stands() (Summary, bool) {
	switch {
	case e.Summary != nil:
		return *e.Summary, true
	case len(e.Runs) > 0:
		return e.Runs[0].Summary(), true
	}
	return Summary{}, false
}

// Definition is the first definition of the effect, or nil.
func (e Effect) Definition() *Definition {
	if len(e.Definitions) == 0 {
		return nil
	}
	return e.Definitions[0]
}
