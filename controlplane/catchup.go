package controlplane

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// CatchUp decides all due times up to now of all recurring jobs by one policy, instead of their own: for a store that
// has missed a stretch of time as a whole, such as one restored from a backup. None of them is on time, whatever the
// tenant's misfireAfter. No node may lead meanwhile; the term is one that the store has seen. It returns how many due
// times became runs and how many are in the ledger as missed.
func CatchUp(ctx context.Context, store metastore.Full, term uint64, by jobs.Misfire, now time.Time) (fired int, missed uint64, err error) {
	err = metastore.EachChange(ctx, store, 0, func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Gone() {
				continue
			}
			n, m, err := catchUp(ctx, store, term, by, now, d)
			fired, missed = fired+n, missed+m
			if err != nil {
				return fmt.Errorf("catch up with %s: %w", d.Key, err)
			}
		}
		return nil
	})
	return fired, missed, err
}

func catchUp(ctx context.Context, store metastore.Full, term uint64, by jobs.Misfire, now time.Time, d *kernel.Definition) (fired int, missed uint64, err error) {
	g, err := store.Global(ctx, d.Tenant)
	if err != nil {
		return 0, 0, err
	}
	rows, err := store.Calendars(ctx, d.Tenant)
	if err != nil {
		return 0, 0, err
	}
	closed := timetable.Calendars(g.Calendars, rows)
	none := *g
	none.MisfireAfter = kernel.NeverOnTime
	for ctx.Err() == nil {
		s, err := timetable.Schedule(d)
		if err != nil || s == nil || d.Waits() {
			return fired, missed, err
		}
		as := *d
		as.Policy.Misfire, as.Policy.Early = by, 0 // only the leader begins early
		e := &entry{def: &as, schedule: s}
		e.next, _ = s.Next(d.Since())
		f, ok := decide(e, &none, closed, now)
		if !ok {
			return fired, missed, nil
		}
		f.Term = term
		fired += len(f.Due)
		for _, m := range f.Missed {
			missed += m.Count
		}
		r := store.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(now), Tenant: d.Tenant, Actor: "leader:restore", Command: f}})[0]
		if r.Err != nil {
			return fired, missed, r.Err
		}
		d = r.Definition()
	}
	return fired, missed, ctx.Err()
}
