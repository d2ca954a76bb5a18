// Package ledger reads the records of recurring jobs from a store: for each due time its run, or the range of due times
// without a run that contains it. It is not promised.
//
// Where to start: [Read].
package ledger

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// readTries is how often the records of a job are read again because it was edited meanwhile.
	readTries = 5
	// mostRanges is how many ranges of due times without a run are read of a job.
	mostRanges = 1_000_000
)

// Part is a job with its records, by due time.
type Part struct {
	Job     ledgerfile.Job
	Records []ledgerfile.Record
}

// Calendars reads the calendars of a tenant.
func Calendars(ctx context.Context, store metastore.Reader, tenant jobs.Tenant) (list []ledgerfile.Calendar, err error) {
	rows, err := store.Calendars(ctx, tenant)
	for _, c := range rows {
		list = append(list, ledgerfile.CalendarOf(c))
	}
	return list, err
}

// Read reads the records of a recurring job for the due times from a time and before another. The job is read before and
// after: the records fit its schedules only if it was not edited meanwhile.
func Read(ctx context.Context, store metastore.Reader, tenant jobs.Tenant, key jobs.Key, from, to, now time.Time) (Part, error) {
	for range readTries {
		d, err := store.Definition(ctx, tenant, key)
		if err != nil {
			return Part{}, err
		}
		r := reader{Reader: store, d: d, from: from, to: to}
		part, err := r.read(ctx, now)
		if err != nil {
			return Part{}, err
		}
		after, err := store.Definition(ctx, tenant, key)
		if err != nil {
			return Part{}, err
		}
		if after.UID == d.UID && after.Revision == d.Revision {
			return part, nil
		}
	}
	return Part{}, kernel.Refuse(jobs.Conflict, "job %s is edited all the time: try again later", key)
}

// reader reads one part.
type reader struct {
	metastore.Reader
	d        *kernel.Definition
	from, to time.Time
}

func (r *reader) read(ctx context.Context, now time.Time) (part Part, err error) {
	job, d := &part.Job, r.d
	job.Key, job.UID, job.Decided = d.Key, d.UID, d.Cursor.UTC()
	if job.Schedules, err = r.schedules(ctx); err != nil {
		return part, err
	}
	// Runs before ranges, and single due times last: a backfill replaces a range by runs.
	runs, err := r.runs(ctx)
	if err != nil {
		return part, err
	}
	ranges, err := r.Ledger(ctx, d.Tenant, d.UID, mostRanges)
	if err != nil {
		return part, err
	}
	ranges = slices.Clone(ranges)
	slices.Reverse(ranges) // the oldest first
	known := make(map[int64]bool, len(runs))
	for _, run := range runs {
		known[run.Due.UnixNano()] = true
		part.Records = append(part.Records, ledgerfile.RunRecord(run))
	}
	in := 0 // ranges[:in] end before the due time
	missed := func(due time.Time) bool {
		for in < len(ranges) && ranges[in].To.Before(due) {
			in++
		}
		return in < len(ranges) && !ranges[in].From.After(due)
	}
	for _, m := range ranges {
		if !m.To.Before(r.from) && m.From.Before(r.to) {
			part.Records = append(part.Records, ledgerfile.MissedRecord(m))
		}
	}
	var lacking []time.Time
	if !d.FixedDelay() {
		err = job.Due(d.Tenant, r.from.Add(-1), sooner(r.to.Add(-1), d.Cursor), func(due time.Time) bool {
			if !known[due.UnixNano()] && !missed(due) {
				lacking = append(lacking, due)
			}
			return ctx.Err() == nil
		})
		if err != nil || ctx.Err() != nil {
			return part, err
		}
	}
	for _, due := range lacking {
		switch run, err := r.Run(ctx, d.Tenant, kernel.DueID(d.Tenant, d.UID, due, 0, 0)); {
		case err == nil:
			part.Records = append(part.Records, ledgerfile.RunRecord(run))
		case !errors.Is(err, jobs.NotFound):
			return part, err
		}
	}
	// A range comes before a run of its first due time, which a backfill has made beside it.
	slices.SortStableFunc(part.Records, func(a, b ledgerfile.Record) int {
		return cmp.Or(a.First().Compare(b.First()), cmp.Compare(b.Count, a.Count))
	})
	job.Complete, err = r.complete(ctx, now)
	return part, err
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// schedules returns the schedules of a job, oldest first.
func (r *reader) schedules(ctx context.Context) (list []ledgerfile.Schedule, err error) {
	h, err := r.History(ctx, r.d.Tenant, r.d.UID)
	if err != nil {
		return nil, err
	}
	after := time.Time{}
	add := func(e kernel.Earlier) {
		if after.Before(e.SetAt) {
			after = e.SetAt
		}
		list = append(list, ledgerfile.ScheduleOf(&e, after))
		after = e.Until
	}
	for _, e := range h.Schedules {
		add(e)
	}
	if r.d.Policy.Schedule != "" {
		add(r.d.Earlier(time.Time{}))
	}
	return list, nil
}

// runs lists the runs of due times that were created since the range began: also those for a time that is no due
// time, which must not exist.
func (r *reader) runs(ctx context.Context) (list []*kernel.Run, err error) {
	d := r.d
	search := metastore.RunQuery{Tenant: d.Tenant, Job: d.Key, From: r.from.Add(-d.Policy.Early), Limit: metastore.MaxPage}
	seen := map[jobs.ID]bool{}
	for {
		page, err := r.Runs(ctx, search)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			due := !run.Due.Before(r.from) && run.Due.Before(r.to) && !run.Due.After(d.Cursor)
			if due && !seen[run.ID] && run.Job == d.UID && ofSchedule(run) {
				seen[run.ID] = true
				list = append(list, run)
			}
		}
		if page.Next == "" {
			return list, nil
		}
		search.Cursor = page.Next
	}
}

// ofSchedule reports whether a run is the one of its due time: not one that was triggered, a part of a broadcast, or a
// repetition.
func ofSchedule(run *kernel.Run) bool {
	switch run.Origin {
	case kernel.FromCron, kernel.FromMisfire, kernel.FromBackfill:
		return run.ID == kernel.DueID(run.Tenant, run.Job, run.Due, 0, 0)
	}
	return false
}

// complete returns the time from which retention has purged no run of the job: the end of its time limit, or that
// of the last run which its limits of numbers keep.
func (r *reader) complete(ctx context.Context, now time.Time) (time.Time, error) {
	g, err := r.Global(ctx, r.d.Tenant)
	if err != nil {
		return time.Time{}, err
	}
	kept := r.d.Kept(g, now)
	complete := kept.Since
	for _, class := range []struct {
		states []jobs.State
		most   int
	}{{[]jobs.State{jobs.Succeeded}, kept.Succeeded}, {[]jobs.State{jobs.Terminated, jobs.Cancelled, jobs.Skipped}, kept.Others}} {
		var ended []time.Time
		for _, state := range class.states {
			if class.most <= 0 { // no limit
				continue
			}
			list, err := r.ended(ctx, state, complete, class.most)
			if err != nil {
				return time.Time{}, err
			}
			ended = append(ended, list...)
		}
		if slices.SortFunc(ended, func(a, b time.Time) int { return b.Compare(a) }); len(ended) >= class.most && class.most > 0 {
			complete = ended[class.most-1]
		}
	}
	if complete.IsZero() {
		return complete, nil
	}
	return complete.Add(r.d.Policy.Early).UTC(), nil // a run that started early may have ended before its due time
}

// ended lists when the newest runs of a state ended, after a time.
func (r *reader) ended(ctx context.Context, state jobs.State, after time.Time, most int) (list []time.Time, err error) {
	search := metastore.RunQuery{Tenant: r.d.Tenant, Job: r.d.Key, State: state, Limit: metastore.MaxPage}
	for {
		page, err := r.Runs(ctx, search)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			if !run.Ended.After(after) && !run.Lingering || len(list) >= most {
				return list, nil
			}
			list = append(list, run.Ended)
		}
		if page.Next == "" {
			return list, nil
		}
		search.Cursor = page.Next
	}
}
