package controlplane

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// baselineOf is the time whose runs are a job's baseline, and fewRuns how many it needs.
	baselineOf = 7 * 24 * time.Hour
	fewRuns    = 5
	// baselineFor is how long a baseline is used.
	baselineFor = 10 * time.Minute
	// workersKnown is how long a leader waits for the workers to report before it misses any.
	workersKnown = 20 * time.Second
)

// conditions are looked at by the leader: what holds raises an alarm, and what does not hold any more ends it.
type conditions struct {
	cp        *ControlPlane
	since     time.Time // the first look of the term
	at        time.Time
	baselines map[kernel.Ref]baseline
	expected  map[string]time.Time // by tenant and rule: the day that was looked at, by its time
	silentAt  map[string]time.Time // by tenant and rule: the last look
	succeeded map[kernel.Ref]time.Time
	gaps      map[alarmTarget]*gapSearch // by rule
}

type baseline struct {
	at      time.Time
	average time.Duration // 0 = too few runs
}

// found is a condition that holds.
type found struct {
	tenant jobs.Tenant
	rule   string
	job    jobs.Key
	app    string
}

// find raises and ends the alarms of all rules about conditions.
func (l *conditions) find(ctx context.Context, list []*kernel.AlarmSettings, unsettled []*kernel.Alarm, now time.Time) error {
	open := map[found]*kernel.Alarm{}
	for _, a := range unsettled {
		if a.Ended.IsZero() {
			key := found{a.Tenant, a.Rule, a.Job, a.App}
			if a.Job != "" {
				key.app = ""
			}
			open[key] = a
		}
	}
	holds := map[found]string{}
	if l.since.IsZero() {
		l.since, l.expected = now, map[string]time.Time{}
	}
	days := map[string]time.Time{} // for l.expected, once all is raised
	sure := map[alarmTarget]bool{} // rules, by tenant, all of whose conditions were looked at
	backlog, err := l.cp.cfg.Store.Backlog(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		for i := range s.Rules {
			r := &s.Rules[i]
			if r.Off {
				sure[alarmTarget{s.Tenant, r.Name}] = true
				continue
			}
			looked := true
			switch r.Kind {
			case kernel.AlarmBacklog:
				l.waiting(s.Tenant, r, backlog, now, holds)
			case kernel.AlarmNoWorker:
				if looked = now.Sub(l.since) >= workersKnown; looked {
					l.waiting(s.Tenant, r, backlog, now, holds)
				}
			case kernel.AlarmSlow:
				err = l.slow(ctx, s.Tenant, r, now, holds)
			case kernel.AlarmExpected:
				looked, err = l.late(ctx, s.Tenant, r, now, open, holds, days)
			case kernel.AlarmGap:
				looked, err = false, l.gap(ctx, s.Tenant, r, now)
			case kernel.AlarmPaused:
				err = l.paused(ctx, s.Tenant, r, open, holds)
			default:
				looked = false
			}
			if err != nil {
				return err
			}
			sure[alarmTarget{s.Tenant, r.Name}] = looked
		}
	}
	for key, text := range holds {
		if open[key] == nil {
			if err := l.raise(ctx, key, text); err != nil {
				return err
			}
		}
	}
	maps.Copy(l.expected, days)
	for key, a := range open {
		if _, still := holds[key]; !still && sure[alarmTarget{key.tenant, key.rule}] {
			if err := l.cp.endAlarm(ctx, a, "it does not hold any more"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *conditions) raise(ctx context.Context, f found, text string) error {
	k := kernel.RaiseAlarm{Rule: f.rule, Job: f.job, App: f.app, Text: text}
	r := l.cp.store.Apply(ctx, []kernel.Envelope{l.cp.envelope(f.tenant, k)})[0]
	return unlessRefused(r.Err) // the rule may just have been deleted
}

// waiting looks for apps whose next run has been ready for long.
func (l *conditions) waiting(tenant jobs.Tenant, r *kernel.AlarmRule, backlog []metastore.Backlog, now time.Time, holds map[found]string) {
	for _, b := range backlog {
		waits := now.Sub(b.Since)
		if b.Tenant != tenant || waits < r.After || !r.Scope.Has("", b.App, nil) {
			continue
		}
		text := fmt.Sprintf("%d runs are ready, the oldest for %v.", b.Ready, waits.Round(time.Second))
		if r.Kind == kernel.AlarmNoWorker {
			l.cp.board.mu.Lock()
			board := l.cp.board.Board
			served := !board.AllKnown(l.cp.board.now()) || !board.Deserted(assign.App{Tenant: tenant, Name: b.App})
			l.cp.board.mu.Unlock()
			if served || waits < firstWorkers {
				continue
			}
		}
		holds[found{tenant, r.Name, "", b.App}] = text
	}
}

// slow looks for attempts that take much longer than their job's runs do.
func (l *conditions) slow(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, now time.Time, holds map[found]string) error {
	var ids []jobs.ID
	b := &l.cp.board
	b.mu.Lock()
	for k := range b.attempts {
		if k.Tenant == tenant && k.over == nil {
			ids = append(ids, k.ID)
		}
	}
	b.mu.Unlock()
	for _, id := range ids {
		run, err := l.cp.cfg.Store.Run(ctx, tenant, id)
		if err != nil {
			if jobs.CodeOf(err) == jobs.NotFound {
				continue
			}
			return err
		}
		took := now.Sub(run.Started)
		if run.State != jobs.Processing || took < max(r.After, time.Second) {
			continue
		}
		var tags []string
		if len(r.Scope.Tags) > 0 {
			if d, err := l.cp.cfg.Store.Definition(ctx, tenant, run.Key); err == nil {
				tags = d.Policy.Tags
			}
		}
		if !r.Scope.Has(run.Key, run.App, tags) {
			continue
		}
		average, err := l.baseline(ctx, tenant, run.Key, run.Job, now)
		if err != nil {
			return err
		}
		if average > 0 && float64(took) >= r.Factor*float64(average) {
			holds[found{tenant, r.Name, run.Key, ""}] = fmt.Sprintf("Run %s has taken %v; runs of the last days took %v on average.", id, took.Round(time.Second), average.Round(time.Millisecond))
		}
	}
	return nil
}

// baseline returns how long runs of a job take on average; 0 = there are too few.
func (l *conditions) baseline(ctx context.Context, tenant jobs.Tenant, key jobs.Key, job jobs.ID, now time.Time) (time.Duration, error) {
	ref := kernel.Ref{Kind: kernel.RowTally, Tenant: tenant, ID: job}
	if b, known := l.baselines[ref]; known && now.Sub(b.at) < baselineFor {
		return b.average, nil
	}
	counts, err := l.cp.cfg.Store.Counts(ctx, metastore.CountQuery{Tenant: tenant, Job: key, From: now.Add(-baselineOf), To: now})
	if err != nil {
		return 0, err
	}
	var n int64
	var took time.Duration
	for _, t := range counts.Tallies {
		n += t.Runs[jobs.Succeeded]
		took += t.Took
	}
	b := baseline{at: now}
	if n >= fewRuns {
		b.average = max(took/time.Duration(n), 1)
	}
	if l.baselines == nil || len(l.baselines) > 10_000 {
		l.baselines = map[kernel.Ref]baseline{}
	}
	l.baselines[ref] = b
	return b.average, nil
}

// late looks for jobs that have not succeeded in time. That is looked at once a day for all of its jobs, and then for
// those with an alarm.
func (l *conditions) late(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, now time.Time, open map[found]*kernel.Alarm, holds map[found]string, days map[string]time.Time) (looked bool, err error) {
	if r.At == "" {
		return l.silent(ctx, tenant, r, now, open, holds)
	}
	from, by := alarms.Expected(r, now)
	name := string(tenant) + "/" + r.Name
	all := !l.expected[name].Equal(by)
	q := metastore.DefinitionQuery{Tenant: tenant}
	if !all {
		for key := range open {
			if key.tenant == tenant && key.rule == r.Name {
				q.Keys = append(q.Keys, key.job)
			}
		}
		if len(q.Keys) == 0 {
			return true, nil
		}
	}
	list, err := l.cp.cfg.Store.Definitions(ctx, q)
	if err != nil {
		return false, err
	}
	for _, d := range list {
		if kernel.SystemKey(d.Key) || !r.Scope.Has(d.Key, d.App, d.Policy.Tags) || d.Created.After(from) {
			continue
		}
		if r.Edited.After(by) && open[found{tenant, r.Name, d.Key, ""}] == nil { // an edit ends no alarm, and raises none
			continue
		}
		last, text, err := l.succeededLast(ctx, d, from)
		if err != nil {
			return false, err
		}
		if last.After(from) {
			continue
		}
		holds[found{tenant, r.Name, d.Key, ""}] = fmt.Sprintf("A run was to succeed by %s. %s", by.Format("15:04 MST on January 2"), text)
	}
	days[name] = by
	return true, nil
}

// succeededLast returns when a job succeeded last, and says so in a sentence. It looks back to a time at least.
func (l *conditions) succeededLast(ctx context.Context, d *kernel.Definition, from time.Time) (time.Time, string, error) {
	q := metastore.RunQuery{Tenant: d.Tenant, Job: d.Key, State: jobs.Succeeded, Limit: 1}
	for {
		page, err := l.cp.cfg.Store.Runs(ctx, q)
		switch {
		case err != nil:
			return time.Time{}, "", err
		case len(page.Runs) > 0:
			at := page.Runs[0].Ended
			return at, fmt.Sprintf("It succeeded last at %s.", at.UTC().Format("2006-01-02 15:04:05 MST")), nil
		case page.Next == "":
			return time.Time{}, "No run that is kept has succeeded.", nil
		case !page.Searched.IsZero() && page.Searched.Before(from):
			return time.Time{}, fmt.Sprintf("No run has succeeded since %s.", page.Searched.UTC().Format("2006-01-02 15:04:05 MST")), nil
		}
		q.Cursor = page.Next // the search was cut short
	}
}

// silent looks for jobs that have not succeeded for a time, once a minute or more often if that time is short. It counts
// from the rule and the job, if they are younger. A job that succeeded is not looked at before the time is over.
func (l *conditions) silent(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, now time.Time, open map[found]*kernel.Alarm, holds map[found]string) (looked bool, err error) {
	name := string(tenant) + "/" + r.Name
	if now.Sub(l.silentAt[name]) < min(r.After/10, time.Minute) {
		return false, nil
	}
	if l.silentAt == nil {
		l.silentAt = map[string]time.Time{}
	}
	if l.succeeded == nil || len(l.succeeded) > 100_000 {
		l.succeeded = map[kernel.Ref]time.Time{}
	}
	l.silentAt[name] = now
	from, young := now.Add(-r.After), r.Edited.After(now.Add(-r.After))
	list, err := l.cp.cfg.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: tenant})
	if err != nil {
		return false, err
	}
	for _, d := range list {
		if kernel.SystemKey(d.Key) || !r.Scope.Has(d.Key, d.App, d.Policy.Tags) || d.Created.After(from) || l.succeeded[d.Ref()].After(from) {
			continue
		}
		if young && open[found{tenant, r.Name, d.Key, ""}] == nil { // an edit ends no alarm, and raises none
			continue
		}
		last, text, err := l.succeededLast(ctx, d, from)
		if err != nil {
			return false, err
		}
		if l.succeeded[d.Ref()] = last; last.After(from) {
			continue
		}
		holds[found{tenant, r.Name, d.Key, ""}] = fmt.Sprintf("No run has succeeded for %v. %s", r.After, text)
	}
	return true, nil
}

// paused keeps the alarms of jobs that are still paused.
func (l *conditions) paused(ctx context.Context, tenant jobs.Tenant, r *kernel.AlarmRule, open map[found]*kernel.Alarm, holds map[found]string) error {
	for key, a := range open {
		if key.tenant != tenant || key.rule != r.Name {
			continue
		}
		d, err := l.cp.cfg.Store.Definition(ctx, tenant, key.job)
		switch {
		case jobs.CodeOf(err) == jobs.NotFound:
		case err != nil:
			return err
		case d.Paused != nil:
			holds[key] = a.Text
		}
	}
	return nil
}
