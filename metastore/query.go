package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Matches reports whether a run of the query's tenant passes its filters.
func (q *RunQuery) Matches(run *kernel.Run) bool {
	return (q.State == kernel.New || run.State == q.State) &&
		(q.Job == "" || run.Key == q.Job) &&
		(q.Worker == "" || run.Worker == q.Worker) &&
		(q.Parent.IsZero() || run.Parent == q.Parent) &&
		(q.Origin == "" || run.Origin == q.Origin) &&
		(q.Cause == "" || run.Cause == q.Cause) &&
		(q.Code == "" || run.Code() == q.Code) &&
		(q.From.IsZero() || !run.Created.Before(q.From)) &&
		(q.To.IsZero() || run.Created.Before(q.To))
}

// Past reports that a list of ended runs, last ended first, has no match behind this run: what ended earlier was
// created earlier. Only causes that end at once prove it, because a cancelled run may settle long after its end.
func (q *RunQuery) Past(run *kernel.Run) bool {
	return !q.From.IsZero() && run.Ended.Before(q.From) && (run.State == jobs.Succeeded || run.State == jobs.Skipped)
}

// Size is how many rows the query's page has at most.
func (q *RunQuery) Size() int {
	if q.Limit <= 0 {
		return 50
	}
	return min(q.Limit, MaxPage)
}
