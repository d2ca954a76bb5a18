package jobs

import (
	"encoding/json"
)

// ParentRun is what a run that follows another is told of it: the member "parent" of its arguments. The arguments of a
// job that is meant to follow others can have it as a field:
//
//	type CleanArgs struct {
//		Parent jobs.ParentRun `json:"parent"`
//	}
type ParentRun struct {
	Run    ID              `json:"run,omitzero"`
	Job    Key             `json:"job,omitzero"`
	State  State           `json:"state,omitzero"`
	Result json.RawMessage `json:"result,omitempty"` // what its handler gave as its result
	Cause  string          `json:"cause,omitempty"`  // why it ended like that
	Error  string          `json:"error,omitempty"`  // of its last attempt; none if the worker was lost
	Code   string          `json:"code,omitempty"`   // of that error
}
