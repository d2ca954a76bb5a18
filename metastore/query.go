package metastore

import "github.com/carillon-scheduler/carillon/jobs"

// Matches says whether a run of the query's tenant passes its filters.
func (q *InstanceQuery) Matches(in *jobs.Instance) bool {
	return (q.State == jobs.New || in.State == q.State) &&
		(q.Job == "" || in.Key == q.Job) &&
		(q.Worker == "" || in.Worker == q.Worker) &&
		(q.Parent.IsZero() || in.Parent == q.Parent) &&
		(q.Origin == "" || in.Origin == q.Origin) &&
		(q.Cause == "" || in.Cause == q.Cause) &&
		(q.Code == "" || in.Code() == q.Code) &&
		(q.From.IsZero() || !in.Created.Before(q.From)) &&
		(q.To.IsZero() || in.Created.Before(q.To))
}

// Past says that a list of ended runs, last ended first, holds no match behind this run: what ended earlier was
// created earlier. Only causes that end at once tell, because a cancelled run may settle long after its end.
func (q *InstanceQuery) Past(in *jobs.Instance) bool {
	return !q.From.IsZero() && in.Ended.Before(q.From) && (in.State == jobs.Succeeded || in.State == jobs.Skipped)
}

// Size is how many rows the query's page has at most.
func (q *InstanceQuery) Size() int {
	if q.Limit <= 0 {
		return 50
	}
	return min(q.Limit, MaxPage)
}
