package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"path"
	"slices"
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
		(q.App == "" || run.App == q.App) &&
		(q.Match == "" || MatchesKey(q.Match, run.Key)) &&
		(q.Jobs == nil || among(q.Jobs, run.Key)) &&
		(q.From.IsZero() || !run.Created.Before(q.From)) &&
		(q.To.IsZero() || run.Created.Before(q.To))
}

// CheckMatch checks a pattern of job keys, in which * is any text, ? any character, and [a-c] one of some: billing.*
func CheckMatch(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > 200 {
		return kernel.Invalid("invalid match %.40q: want a pattern of keys such as billing.*, of at most 200 characters", pattern)
	}
	return nil
}

// MatchesKey reports whether a key matches a pattern that CheckMatch accepts.
func MatchesKey(pattern string, key jobs.Key) bool {
	ok, _ := path.Match(pattern, string(key))
	return ok
}

func among(sorted []jobs.Key, key jobs.Key) bool {
	_, found := slices.BinarySearch(sorted, key)
	return found
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
