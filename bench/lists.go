package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
)

// archived is the content of a store with years of history: finished runs, in the order of their ends, and all other
// rows. A store is filled with it as by carillon restore, so that ten million runs take minutes.
type archived struct {
	now      time.Time
	finished int
	engine   *memstore.Engine
	jobs     []*kernel.Definition // sorted by key: 20 apps of 50 jobs, and one app with one job
	more     []kernel.Row         // that no command makes quickly: ended alarms, tallies, the ledger
}

var _ metastore.Content = (*archived)(nil)

// What archived has, beside finished runs. Rare things are a few rows among all of them.
const (
	listApps     = 20
	listJobs     = 50 // of each app
	listTenants  = 10_000
	listAudits   = 1_000_000
	listAlarms   = 10_000
	listWorkers  = 1_000
	listWaiting  = 10_000
	listChildren = 10_000
	listMissed   = 2_000
	listDays     = 30 // in which the runs ended
	rareRuns     = 20
	rareApp      = "rare"
	rareWorker   = "rare-worker"
	rareCode     = "RARE"
)

var searched = []byte(`{"type":"object","properties":{"customer":{"type":"string","x-carillon-search":true}}}`)

// less is a number of rows, or, with -n, as many fewer as there are runs.
func less(n, finished int) int { return max(1, min(n, finished)) }

// history makes the content of a store with finished runs.
func history(ctx context.Context, finished int) (*archived, error) {
	a := &archived{now: kernel.Instant(time.Now()), finished: finished, engine: memstore.New(memstore.Config{})}
	store := &metastore.Local{Engine: a.engine}
	var batch []kernel.Envelope
	var failed error
	flush := func() {
		for _, r := range store.Apply(ctx, batch) {
			failed = errors.Join(failed, r.Err)
		}
		batch = batch[:0]
	}
	do := func(k kernel.Command) {
		batch = append(batch, kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:bench", Command: k})
		if len(batch) == 1000 && failed == nil {
			flush()
		}
	}
	days, many := 400*24*time.Hour, 0
	do(kernel.Configure{Defaults: &kernel.Settings{KeepFor: &days, KeepSucceeded: &many, KeepOthers: &many}})
	register := func(app string, key jobs.Key, code kernel.Settings) {
		kind := kernel.Triggered
		if code.Schedule != nil {
			kind = kernel.Recurring
		}
		do(kernel.Register{App: app, Worker: "bench", Start: true, Job: kernel.Declaration{Key: key, Kind: kind, Code: code, Schema: searched}})
	}
	for i := range listApps * listJobs {
		tags := []string{fmt.Sprintf("team-%d", i%listJobs)}
		code := kernel.Settings{Tags: &tags}
		if i%2 == 1 {
			schedule := fmt.Sprintf("%d %d * * *", i%60, i%24)
			code.Schedule = &schedule
		}
		register(appOf(i), keyOf(i), code)
	}
	register(rareApp, "rare.job", kernel.Settings{Tags: &[]string{"rare"}})
	for i := range less(100, finished) {
		do(kernel.SetCalendar{Name: fmt.Sprintf("calendar-%d", i), Rules: []string{"SAT", "SUN"}})
	}
	title := "a tenant"
	for i := range less(listTenants, finished) {
		do(kernel.SetTenant{Name: jobs.Tenant(fmt.Sprintf("tenant-%d", i)), Create: true, Title: &title})
	}
	for i := range less(listAudits, finished) / 2 {
		do(kernel.Pause{Key: keyOf(i % 500 * 2), Reason: "bench"})
		do(kernel.Resume{Key: keyOf(i % 500 * 2)})
	}
	for i := range less(listWaiting, finished) {
		create := kernel.Create{ID: jobs.NewID(time.Now()), Key: keyOf(i % 100), Args: argsOf(i)}
		if i%2 == 0 {
			create.Delay = 24*time.Hour + time.Duration(i)*time.Second
		}
		do(create)
	}
	if flush(); failed != nil {
		return nil, failed
	}
	var err error
	if a.jobs, err = a.engine.Definitions(ctx, metastore.DefinitionQuery{Tenant: jobs.DefaultTenant}); err != nil {
		return nil, err
	}
	a.extend()
	return a, nil
}

// extend adds rows that come slowly by commands.
func (a *archived) extend() {
	a.more = append(a.more, &kernel.AlarmSettings{Tenant: jobs.DefaultTenant, Last: listAlarms, Rules: []kernel.AlarmRule{{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1, Off: true}}})
	for i := range less(listAlarms, a.finished) {
		at := a.now.Add(time.Duration(i-listAlarms-1) * time.Minute)
		a.more = append(a.more, &kernel.Alarm{Tenant: jobs.DefaultTenant, N: uint64(i + 1), Rule: "failed", Kind: kernel.AlarmFailed, Job: keyOf(i % 1000), Since: at, Last: at, Count: 1, Text: "a run failed",
			Ended: at.Add(time.Minute), Why: "a run succeeded"})
	}
	day := a.now.Truncate(24 * time.Hour)
	for _, d := range a.jobs {
		sums := kernel.Sums{Took: time.Minute}
		sums.Runs[jobs.Succeeded], sums.Runs[jobs.Terminated], sums.Runs[jobs.Processing] = 95, 3, 100
		for i := range listDays {
			a.more = append(a.more, &kernel.Tally{Tenant: d.Tenant, Job: d.UID, Span: kernel.Day, At: day.AddDate(0, 0, -i-3).UnixNano(), Sums: sums})
		}
		for i := range 48 {
			a.more = append(a.more, &kernel.Tally{Tenant: d.Tenant, Job: d.UID, Span: kernel.Hour, At: a.now.Truncate(time.Hour).Add(time.Duration(-i) * time.Hour).UnixNano(), Sums: sums})
		}
	}
	d := a.of(1)
	for i := range less(listMissed, a.finished) {
		at := a.now.Add(time.Duration(i-listMissed-1) * time.Hour).Truncate(time.Second)
		a.more = append(a.more, &kernel.Missed{Tenant: d.Tenant, Job: d.UID, Key: d.Key, From: at, To: at, Count: 1, Reason: kernel.MissedLate})
	}
}

func appOf(job int) string   { return fmt.Sprintf("app-%02d", job/listJobs%listApps) }
func keyOf(job int) jobs.Key { return jobs.Key(fmt.Sprintf("%s.job-%03d", appOf(job), job)) }
func argsOf(run int) []byte {
	return fmt.Appendf(nil, `{"customer":"c%d","note":"about as many bytes as most arguments have"}`, run%100_000)
}
func workerOf(run int) string { return fmt.Sprintf("worker-%d", run%listWorkers) }

// of is the ith job.
func (a *archived) of(i int) *kernel.Definition { return a.jobs[i] }

// Rows are all but finished runs.
func (a *archived) Rows(context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for row := range a.engine.Capture().Rows() {
			if !yield(row, nil) {
				return
			}
		}
		for _, row := range a.more {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// Lines are none.
func (a *archived) Lines(context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(func(metastore.LogLine, error) bool) {}
}

// id is that of the nth finished run, which has ended at a time.
func (a *archived) id(n int) (id jobs.ID, ended time.Time) {
	ended = a.now.Add(-listDays*24*time.Hour + time.Duration(float64(n)/float64(a.finished)*float64(listDays*24*time.Hour)))
	id = jobs.NewID(ended.Add(-time.Second))
	for i := range 8 { // the same whenever it is asked for
		id[15-i] = byte(n >> (8 * i))
	}
	id[6], id[7], id[8] = id[6]&0xF0, 0, 0x80
	return id, ended
}

// parent is the run that has made others: those in the middle.
func (a *archived) parent() int { return a.finished/2 - 1 }

// Ended are the finished runs: a third are of one job, and the others of all; 5 % did not succeed.
func (a *archived) Ended(context.Context) iter.Seq2[*kernel.Run, error] {
	parent, _ := a.id(a.parent())
	every := max(1, a.finished/rareRuns)
	return func(yield func(*kernel.Run, error) bool) {
		for n := range a.finished {
			of := 0
			if n%3 > 0 {
				of = n * 7 % (listApps * listJobs)
			}
			d := a.of(of)
			id, ended := a.id(n)
			begun := ended.Add(-500 * time.Millisecond)
			run := &kernel.Run{Tenant: d.Tenant, ID: id, Job: d.UID, Key: d.Key, App: d.App, Revision: d.Revision, Kind: d.Kind, State: jobs.Succeeded, Origin: kernel.FromCode, Actor: "client:bench",
				Args: argsOf(n), Due: ended.Add(-time.Second), Created: ended.Add(-time.Second), Queued: ended.Add(-time.Second), Started: begun, Ended: ended, Attempt: 1, Worker: workerOf(n)}
			if d.Kind == kernel.Recurring {
				run.Origin, run.Actor = kernel.FromCron, "node:bench"
			}
			switch n % 100 {
			case 7, 27, 47:
				run.State, run.Cause, run.Error, run.Failures = jobs.Terminated, kernel.ByError, "the handler failed", 1
			case 67:
				run.State, run.Cause = jobs.Cancelled, kernel.ByPerson
			case 87:
				run.State, run.Cause, run.Worker, run.Attempt, run.Started = jobs.Skipped, kernel.ByOverlap, "", 0, time.Time{}
			}
			if n > a.parent() && n <= a.parent()+listChildren {
				run.Parent, run.Origin, run.Depth = parent, kernel.FromParent, 1
			}
			if n%every == every/3 && n < a.finished/2 { // what is rare ended long ago
				r := a.of(len(a.jobs) - 1)
				run.Job, run.Key, run.App, run.Worker, run.Origin = r.UID, r.Key, r.App, rareWorker, kernel.FromBackfill
			}
			run.Moves = []kernel.Move{{State: jobs.Enqueued, At: run.Created, By: run.Actor}, {State: jobs.Processing, At: begun, Attempt: 1, By: "worker:" + run.Worker}, {State: run.State, Cause: run.Cause, At: ended, Attempt: run.Attempt}}
			if !yield(run, nil) {
				return
			}
		}
	}
}

// fill puts the content into the store of a server that has not started.
func (h *fixture) fill(ctx context.Context) (err error) {
	if h.past, err = history(ctx, number(10_000_000)); err != nil {
		return err
	}
	unread := func(metastore.Content) error { return nil } // the figures do not depend on a second reading
	begin := time.Now()
	defer func() { h.filled = time.Since(begin) }()
	if h.db == nil {
		if err := os.Mkdir(filepath.Join(h.dir, "data"), 0o700); err != nil {
			return err
		}
		return raftstore.Fill(ctx, raftstore.Config{Dir: filepath.Join(h.dir, "data", "rows"), Logs: hashicorp.Kinds()}, h.past, unread)
	}
	cfg := sqlstore.Config{URL: h.db.url.String()}
	if h.db.url.Scheme != "postgres" {
		return sqlstore.Fill(ctx, cfg, h.past, unread)
	}
	again, err := h.withoutIndexes(ctx, cfg)
	if err == nil {
		err = sqlstore.Fill(ctx, cfg, h.past, unread)
	}
	if err == nil {
		err = again()
	}
	return err
}

// withoutIndexes drops the indexes of finished runs, and returns what makes them again: one pass over all rows is
// quicker than an entry for each.
func (h *fixture) withoutIndexes(ctx context.Context, cfg sqlstore.Config) (again func() error, err error) {
	s, err := sqlstore.Open(ctx, cfg) // makes the tables
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return nil, err
	}
	db, err := h.db.open()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'carillon_runs'")
	if err != nil {
		return nil, err
	}
	var names, texts []string
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		names, texts = append(names, name), append(texts, strings.Replace(text, " ON ONLY ", " ON ", 1))
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	do := func(statements ...string) error {
		c, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, s := range append([]string{"SET maintenance_work_mem = '1GB'"}, statements...) {
			if _, err := c.ExecContext(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
	if err := do("DROP INDEX " + strings.Join(names, ", ")); err != nil {
		return nil, err
	}
	return func() error {
		defer db.Close()
		if err := do(append(texts, "CHECKPOINT")...); err != nil {
			return err
		}
		return do("VACUUM ANALYZE carillon_runs") // as the database does by itself some time later
	}, nil
}

func (h *fixture) say(format string, args ...any) {
	if *verbose {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}
