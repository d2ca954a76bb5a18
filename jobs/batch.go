package jobs

import "time"

// BatchSummary is how the runs of a batch ended: see client.Client.EnqueueBatch. The job of its end has it in its arguments:
//
//	type ReportArgs struct {
//		Batch jobs.BatchSummary `json:"batch"`
//	}
type BatchSummary struct {
	ID         ID          `json:"id"`
	Name       string      `json:"name,omitempty"`
	Total      int         `json:"total"` // runs
	Succeeded  int         `json:"succeeded"`
	Terminated int         `json:"terminated"` // failed for good
	Cancelled  int         `json:"cancelled"`
	Skipped    int         `json:"skipped"`
	Failures   []ParentRun `json:"failures,omitempty"`  // the first 20 that did not succeed
	Abandoned  bool        `json:"abandoned,omitempty"` // it was not closed within a day, so runs may be missing
	Closed     time.Time   `json:"closed,omitzero"`     // zero = it is open
	Ended      time.Time   `json:"ended,omitzero"`      // zero = some runs are not final
	Run        ID          `json:"run,omitzero"`        // that began at its end
}
