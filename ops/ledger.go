package ops

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// LedgerRange selects the due times of an export.
type LedgerRange struct {
	Job      jobs.Key  // "" = all recurring jobs of the tenant
	From, To time.Time // due times from From and before To, which is at most now
}

// ledgerTries is how often the records of a job are read again because it was edited meanwhile.
const ledgerTries = 5

// LedgerKey returns the public key that signs exported ledgers, hexadecimal. The first call makes the key.
func (o *Ops) LedgerKey(ctx context.Context, who Who) (string, error) {
	key, err := o.ledgerKey(ctx, who)
	if err != nil {
		return "", err
	}
	return ledgerfile.PublicKey(key), nil
}

func (o *Ops) ledgerKey(ctx context.Context, who Who) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // it never fails
	effect, err := o.apply(ctx, who, kernel.LedgerKey{Seed: seed})
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(effect.LedgerSeed), nil
}

// ExportLedger writes a signed ledger: a record for each due time of a range, with its run or with the reason why there
// is none. An error may come after a part was written; only a whole ledger has a signature.
func (o *Ops) ExportLedger(ctx context.Context, who Who, q LedgerRange, to io.Writer) error {
	now := o.Now()
	if q.To.IsZero() || q.To.After(now) {
		q.To = now
	}
	if !q.From.Before(q.To) {
		return kernel.Invalid("invalid range: from %s must be before to %s", clock(q.From), clock(q.To))
	}
	if !o.exporting.TryLock() {
		return kernel.Refuse(jobs.Exhausted, "another ledger is being exported by this node: try again later")
	}
	defer o.exporting.Unlock()
	defs, err := o.ledgerJobs(ctx, who, q.Job)
	if err != nil {
		return err
	}
	head := ledgerfile.Header{Tenant: who.tenant(), From: q.From.UTC(), To: q.To.UTC(), At: now.UTC()}
	if head.Calendars, err = o.ledgerCalendars(ctx, who, defs); err != nil {
		return err
	}
	key, err := o.ledgerKey(ctx, who)
	if err != nil {
		return err
	}
	// The header comes first and has what the records are checked by, so all jobs are read before it is written.
	parts := make([]ledgerPart, len(defs))
	for i, d := range defs {
		if parts[i], err = o.ledgerPart(ctx, who, d.Key, q, now); err != nil {
			return err
		}
		head.Jobs = append(head.Jobs, parts[i].job)
	}
	w, err := ledgerfile.NewWriter(to, key, head)
	if err != nil {
		return err
	}
	for i := range parts {
		for _, r := range parts[i].records {
			if err := w.Write(r); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// ledgerJobs returns the recurring jobs of an export, by key.
func (o *Ops) ledgerJobs(ctx context.Context, who Who, key jobs.Key) ([]*kernel.Definition, error) {
	if key != "" {
		d, err := o.definition(ctx, who, key)
		if err != nil {
			return nil, err
		}
		if d.Kind != kernel.Recurring {
			return nil, kernel.Refuse(jobs.Conflict, "job %s is triggered: it has no due times, and no ledger", key)
		}
		return []*kernel.Definition{d}, nil
	}
	var defs []*kernel.Definition
	err := metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Kind == kernel.Recurring {
				defs = append(defs, d)
			}
		}
		return nil
	})
	return defs, err
}

// ledgerCalendars returns the calendars of the tenant, if a job has or had any.
func (o *Ops) ledgerCalendars(ctx context.Context, who Who, defs []*kernel.Definition) ([]ledgerfile.Calendar, error) {
	if len(defs) == 0 {
		return nil, nil
	}
	rows, err := o.store.Calendars(ctx, who.tenant())
	if err != nil {
		return nil, err
	}
	var list []ledgerfile.Calendar
	for _, c := range rows {
		list = append(list, ledgerfile.CalendarOf(c))
	}
	return list, nil
}

// ledgerPart is a job of an export with its records, by due time.
type ledgerPart struct {
	job     ledgerfile.Job
	records []ledgerfile.Record
}

// ledgerPart reads a job's part. The job is read before and after: the records fit its schedules only if it was not
// edited meanwhile.
func (o *Ops) ledgerPart(ctx context.Context, who Who, key jobs.Key, q LedgerRange, now time.Time) (part ledgerPart, err error) {
	for range ledgerTries {
		d, err := o.definition(ctx, who, key)
		if err != nil {
			return part, err
		}
		if part, err = o.ledgerOf(ctx, d, q, now); err != nil {
			return part, err
		}
		after, err := o.definition(ctx, who, key)
		if err != nil {
			return part, err
		}
		if after.UID == d.UID && after.Revision == d.Revision {
			return part, nil
		}
	}
	return part, kernel.Refuse(jobs.Conflict, "job %s is edited all the time: try again later", key)
}

func (o *Ops) ledgerOf(ctx context.Context, d *kernel.Definition, q LedgerRange, now time.Time) (part ledgerPart, err error) {
	job := &part.job
	job.Key, job.UID, job.Decided = d.Key, d.UID, d.Cursor.UTC()
	if job.Schedules, err = o.ledgerSchedules(ctx, d); err != nil {
		return part, err
	}
	// Runs before ranges, and single due times last: a backfill replaces a range by runs.
	runs, err := o.ledgerRuns(ctx, d, q)
	if err != nil {
		return part, err
	}
	ranges, err := o.ledger(ctx, d)
	if err != nil {
		return part, err
	}
	known := make(map[int64]bool, len(runs))
	for _, run := range runs {
		known[run.Due.UnixNano()] = true
		part.records = append(part.records, ledgerfile.RunRecord(run))
	}
	in := 0 // ranges[:in] end before the due time
	missed := func(due time.Time) bool {
		for in < len(ranges) && ranges[in].To.Before(due) {
			in++
		}
		return in < len(ranges) && !ranges[in].From.After(due)
	}
	for _, m := range ranges {
		if !m.To.Before(q.From) && m.From.Before(q.To) {
			part.records = append(part.records, ledgerfile.MissedRecord(m))
		}
	}
	var lacking []time.Time
	if !d.FixedDelay() {
		err = job.Due(d.Tenant, q.From.Add(-1), sooner(q.To.Add(-1), d.Cursor), func(due time.Time) bool {
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
		run, err := o.found(ctx, d.Tenant, kernel.DueID(d.Tenant, d.UID, due, 0, 0))
		if err != nil {
			return part, err
		}
		if run != nil {
			part.records = append(part.records, ledgerfile.RunRecord(run))
		}
	}
	// A range comes before a run of its first due time, which a backfill has made beside it.
	slices.SortStableFunc(part.records, func(a, b ledgerfile.Record) int {
		return cmp.Or(a.First().Compare(b.First()), cmp.Compare(b.Count, a.Count))
	})
	job.Complete, err = o.ledgerComplete(ctx, d, now)
	return part, err
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// ledgerSchedules returns the schedules of a job, oldest first.
func (o *Ops) ledgerSchedules(ctx context.Context, d *kernel.Definition) (list []ledgerfile.Schedule, err error) {
	h, err := o.store.History(ctx, d.Tenant, d.UID)
	if err != nil {
		return nil, err
	}
	after := time.Time{}
	add := func(e kernel.Earlier) {
		if after.Before(e.Anchor) {
			after = e.Anchor
		}
		list = append(list, ledgerfile.ScheduleOf(&e, after))
		after = e.Until
	}
	for _, e := range h.Schedules {
		add(e)
	}
	if d.Policy.Schedule != "" {
		add(d.Earlier(time.Time{}))
	}
	return list, nil
}

// ledgerRuns lists the runs of due times that were created since the range began: also those for a time that is no due
// time, which must not exist.
func (o *Ops) ledgerRuns(ctx context.Context, d *kernel.Definition, q LedgerRange) (list []*kernel.Run, err error) {
	search := metastore.RunQuery{Tenant: d.Tenant, Job: d.Key, From: q.From.Add(-d.Policy.Early), Limit: metastore.MaxPage}
	seen := map[jobs.ID]bool{}
	for {
		page, err := o.store.Runs(ctx, search)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			due := !run.Due.Before(q.From) && run.Due.Before(q.To) && !run.Due.After(d.Cursor)
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

// ledgerComplete returns the time from which retention has purged no run of the job: the end of its time limit, or that
// of the last run which its limits of numbers keep.
func (o *Ops) ledgerComplete(ctx context.Context, d *kernel.Definition, now time.Time) (time.Time, error) {
	g, err := o.store.Global(ctx, d.Tenant)
	if err != nil {
		return time.Time{}, err
	}
	kept := d.Kept(g, now)
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
			list, err := o.endedOf(ctx, d, state, complete, class.most)
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
	return complete.Add(d.Policy.Early).UTC(), nil // a run that started early may have ended before its due time
}

// endedOf lists when the newest runs of a state ended, after a time.
func (o *Ops) endedOf(ctx context.Context, d *kernel.Definition, state jobs.State, after time.Time, most int) (list []time.Time, err error) {
	search := metastore.RunQuery{Tenant: d.Tenant, Job: d.Key, State: state, Limit: metastore.MaxPage}
	for {
		page, err := o.store.Runs(ctx, search)
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
