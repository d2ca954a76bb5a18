package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Effect is what a command did: the changed rows. History, cache invalidation, dispatch to workers and the live
// dashboard are all derived from effects.
type Effect struct {
	Runs        []*Run
	Definitions []*Definition
	Missed      []*Missed
	Global      *Global
	Token       *Token // as Grant made it
	LedgerSeed  []byte // the answer to LedgerKey; secret
	// Existing reports that nothing was done because it had been done before: the command was repeated, or its unique
	// key is taken. The rows are the existing ones.
	Existing bool
	// Summary replaces the rows where the sender does not need them: workers and programs get a run's state, without
	// the data that they sent themselves.
	Summary *Summary
}

// Summary is the state of a run after a command.
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

// Summary returns the state of the run.
func (run *Run) Summary() Summary {
	return Summary{ID: run.ID, Key: run.Key, State: run.State, Cause: run.Cause, Due: run.Due, Attempt: run.Attempt, RetryAt: run.RetryAt, Lingering: run.Lingering}
}

// Run returns a run with only the fields of the summary.
func (r *Summary) Run() *Run {
	return &Run{ID: r.ID, Key: r.Key, State: r.State, Cause: r.Cause, Due: r.Due, Attempt: r.Attempt, RetryAt: r.RetryAt, Lingering: r.Lingering}
}

// Run returns the first run of the effect, or nil: the result of Create, Start, Finish and Cancel. Of a summary it has
// only those fields.
func (e Effect) Run() *Run {
	switch {
	case len(e.Runs) > 0:
		return e.Runs[0]
	case e.Summary != nil:
		return e.Summary.Run()
	}
	return nil
}

// Stands returns the summary of the first run of the effect, if there is one.
func (e *Effect) Stands() (Summary, bool) {
	switch {
	case e.Summary != nil:
		return *e.Summary, true
	case len(e.Runs) > 0:
		return e.Runs[0].Summary(), true
	}
	return Summary{}, false
}

// Definition returns the first definition of the effect, or nil.
func (e Effect) Definition() *Definition {
	if len(e.Definitions) == 0 {
		return nil
	}
	return e.Definitions[0]
}
