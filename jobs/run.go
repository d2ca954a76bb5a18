package jobs

import (
	"encoding/json"
	"fmt"
	"time"
)

// Run is the request and the outcome of a run, as clients read it.
type Run struct {
	ID       ID              `json:"id"`
	Job      Key             `json:"job"`
	State    State           `json:"state"`
	Cause    string          `json:"cause,omitempty"` // why it is in its state, such as timeout; most states need none
	Actor    string          `json:"actor"`           // the requester, such as client:shop; for due times the leader
	Due      time.Time       `json:"due"`
	Created  time.Time       `json:"created"`
	Started  time.Time       `json:"started,omitzero"`  // its last attempt
	Finished time.Time       `json:"finished,omitzero"` // zero until its State is final
	Attempt  uint32          `json:"attempt"`           // its last attempt, from 1; 0 = none started
	Worker   string          `json:"worker,omitempty"`  // of its last attempt
	Args     json.RawMessage `json:"args,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // what the handler passed to Result; only of a run that Succeeded
	Error    string          `json:"error,omitempty"`  // of its last attempt, or why it was Cancelled or Skipped
	Code     string          `json:"code,omitempty"`   // of that error, as Fail set it
}

// RunError is the error of a run that finished in another state than Succeeded.
type RunError struct{ Run Run }

func (e *RunError) Error() string {
	text := fmt.Sprintf("run %s of %s is %s", e.Run.ID, e.Run.Job, e.Run.State)
	if e.Run.Attempt > 0 {
		text += fmt.Sprintf(" after attempt %d", e.Run.Attempt)
	}
	if e.Run.Error != "" {
		text += ": " + e.Run.Error
	}
	return text
}

// ParentRun describes the run after which a follow-up run starts (OnSuccess, OnFailure). The follow-up run gets it as
// the field "parent" of its arguments:
//
//	type CleanArgs struct {
//		Parent jobs.ParentRun `json:"parent"`
//	}
type ParentRun struct {
	Run    ID              `json:"run,omitzero"`
	Job    Key             `json:"job,omitzero"`
	State  State           `json:"state,omitzero"`
	Result json.RawMessage `json:"result,omitempty"` // what its handler passed to Result
	Cause  string          `json:"cause,omitempty"`  // why it is in its state, such as timeout
	Error  string          `json:"error,omitempty"`  // of its last attempt; empty if the worker was lost
	Code   string          `json:"code,omitempty"`   // of that error
}
