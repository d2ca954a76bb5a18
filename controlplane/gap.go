package controlplane

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/ledger"
)

const (
	// gapsEvery is how often a rule compares ledgers, and gapsBack how far back: each due time is looked at twice.
	gapsEvery, gapsBack = time.Hour, 2 * time.Hour
	// gapsSettle is the age of due times that are looked at.
	gapsSettle = time.Minute
	// gapsAtOnce is how long a look at conditions may read ledgers; the next one goes on.
	gapsAtOnce = 50 * time.Millisecond
)

// gapSearch is how far a rule has come.
type gapSearch struct {
	head ledgerfile.Header
	jobs []jobs.Key // that are still to be compared
}

// gap looks for due times with neither a run nor a reason, and for other records that do not fit the schedules. Such an
// alarm does not end by itself: what was lost stays lost.
func (l *conditions) gap(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, now time.Time) error {
	name := alarmTarget{tenant, r.Name}
	s := l.gaps[name]
	if s == nil || len(s.jobs) == 0 && now.Sub(s.head.At) >= gapsEvery {
		var err error
		from := now.Add(-gapsBack)
		if s != nil && s.head.To.Before(from) {
			from = s.head.To
		}
		if s, err = l.gapSearch(ctx, tenant, r, from, now); err != nil {
			return err
		}
		if l.gaps == nil {
			l.gaps = map[alarmTarget]*gapSearch{}
		}
		l.gaps[name] = s
	}
	for began := time.Now(); len(s.jobs) > 0 && time.Since(began) < gapsAtOnce; s.jobs = s.jobs[1:] {
		part, err := ledger.Read(ctx, l.cp.cfg.Store, tenant, s.jobs[0], s.head.From, s.head.To, now)
		switch jobs.CodeOf(err) {
		case jobs.NotFound, jobs.Conflict: // deleted, or edited all the time
			continue
		}
		if err != nil {
			return err
		}
		report, err := s.head.Check(&part.Job, part.Records)
		if err != nil || len(report.Problems) == 0 { // a schedule that this process cannot read is a trouble of its own
			continue
		}
		text := report.Problems[0]
		if n := len(report.Problems) - 1 + report.More; n > 0 {
			text += fmt.Sprintf("; and %d more", n)
		}
		if err := l.raise(ctx, found{tenant, r.Name, part.Job.Key, ""}, text+"."); err != nil {
			return err
		}
	}
	return nil
}

// gapSearch begins to compare the ledgers of a rule's jobs.
func (l *conditions) gapSearch(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, from, now time.Time) (*gapSearch, error) {
	s := gapSearch{head: ledgerfile.Header{Tenant: tenant, From: from.UTC(), To: now.Add(-gapsSettle).UTC(), At: now.UTC()}}
	err := metastore.EachDefinition(ctx, l.cp.cfg.Store, tenant, func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Kind == kernel.Recurring && r.Scope.Has(d.Key, d.App, d.Policy.Tags) {
				s.jobs = append(s.jobs, d.Key)
			}
		}
		return nil
	})
	if err == nil && len(s.jobs) > 0 {
		s.head.Calendars, err = ledger.Calendars(ctx, l.cp.cfg.Store, tenant)
	}
	return &s, err
}
