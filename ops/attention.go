package ops

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Attention is a problem that needs a person's attention.
type Attention struct {
	Kind   AttentionKind
	Text   string   // one sentence that names the job, run or worker, if there is one
	Job    jobs.Key // "" = none in particular
	Run    jobs.ID  // zero = none in particular
	Target string   // of Alarmed: the target of alarms that does not accept messages; "" = none
	N      int      // number of runs, requests, due times, jobs or alarms concerned
	Since  time.Time
}

// AttentionKind is the kind of a problem.
type AttentionKind string

// The kinds, most urgent first.
const (
	Clock       AttentionKind = "clock"     // the leader's clock was set, and is not followed yet
	AtLimit     AttentionKind = "limit"     // requests are refused at a limit
	NoWorker    AttentionKind = "no_worker" // runs are ready, and no worker runs them
	Alarmed     AttentionKind = "alarm"     // alarms are open, or a target does not accept messages about them
	Unserving   AttentionKind = "stopped"   // jobs are stopped: no online worker of their app has them any more
	Stuck       AttentionKind = "stuck"     // a handler was asked to stop and has not returned
	Failing     AttentionKind = "failing"   // the last runs of a job failed for good, or one fails again and again
	GaveUp      AttentionKind = "gave_up"   // a job has paused itself because its runs failed
	Lost        AttentionKind = "lost"      // runs ended because their worker was lost
	Undelivered AttentionKind = "outbox"    // requests from transactions were refused after the commit
	Endless     AttentionKind = "endless"   // a run has been processing for a day, without a timeout
	Unfired     AttentionKind = "missed"    // due times passed that the scheduler did not fire
	Trouble     AttentionKind = "trouble"   // a schedule is invalid
	AuditSinks  AttentionKind = "audit"     // a sink of the audit fails, or has a gap
	Paused      AttentionKind = "paused"    // a job has been paused for a day, without an end
)

var urgency = []AttentionKind{Clock, AtLimit, NoWorker, Alarmed, Unserving, Stuck, Failing, GaveUp, Lost, Undelivered, AuditSinks, Endless, Unfired, Trouble, Paused}

const (
	maxAttention = 20
	inARow       = 3                // failed runs in a row, or failed attempts of one run, before they are reported
	unserved     = 10 * time.Second // how long a run may be ready before a missing worker is reported
	recently     = 24 * time.Hour
	auditGap     = 7 * 24 * time.Hour // how long a gap is reported
	lookedJobs   = 2_000              // jobs, by key, that are checked
	lookedLedger = 50                 // jobs whose ledger is read: those with the latest missed due times
	lookedEnds   = 5                  // jobs whose last success is looked up
)

// attention looks for problems. It reads at most a page of each list, so that a store of any size answers at once; what
// is beyond a page is not seen.
func (o *Ops) attention(ctx context.Context, who Who, g *kernel.Global, live map[jobs.State]int) ([]Attention, error) {
	l := look{o: o, ctx: ctx, who: who, now: o.Now()}
	l.clock()
	l.limits()
	l.sinks(g)
	l.workers(g, live)
	l.runs()
	l.jobs()
	l.refused()
	l.alarms()
	slices.SortStableFunc(l.found, func(a, b Attention) int {
		return cmp.Or(slices.Index(urgency, a.Kind)-slices.Index(urgency, b.Kind), b.Since.Compare(a.Since))
	})
	return l.found[:min(len(l.found), maxAttention)], l.err
}

// look collects problems; after an error it does nothing more.
type look struct {
	o     *Ops
	ctx   context.Context
	who   Who
	now   time.Time
	found []Attention
	err   error
}

func (l *look) add(a Attention, format string, args ...any) {
	a.Text = fmt.Sprintf(format, args...)
	l.found = append(l.found, a)
}

// page returns the first page of runs in a state.
func (l *look) page(state jobs.State) []*kernel.Run {
	if l.err != nil {
		return nil
	}
	var page metastore.Page
	page, l.err = l.o.store.Runs(l.ctx, metastore.RunQuery{Tenant: l.who.tenant(), State: state, Limit: metastore.MaxPage})
	return page.Runs
}

// clock reports a leader's clock that was set, or that is off.
func (l *look) clock() {
	leader, way := l.o.live.Leader(), "ahead"
	if leader.Step < 0 {
		way = "back"
	}
	if leader.Step != 0 {
		l.add(Attention{Kind: Clock, N: 1, Since: l.now}, "The clock of %s was set %s by %s. The scheduler keeps the old time until the new one has lasted %s.",
			leader.Node, way, leader.Step.Abs().Round(time.Second), metastore.ClockPatience)
	}
	if leader.Off.Abs() > metastore.ClockSlack {
		l.add(Attention{Kind: Clock, N: 1, Since: l.now}, "The clock of %s, the leader, is %s off the clocks of the other nodes. It fires nothing, and another node takes over: correct the clock.",
			leader.Node, leader.Off.Abs().Round(time.Millisecond))
	}
}

// limits reports requests that limits refuse.
func (l *look) limits() {
	for _, r := range l.o.live.Refusals(l.who.tenant()) {
		n := count(r.N, "request")
		when := fmt.Sprintf("%s %s refused since %s", n, was(r.N), r.First.UTC().Format("15:04:05 MST"))
		if l.now.Sub(r.Last) >= episode.Quiet {
			when = fmt.Sprintf("%s %s refused until %s", n, was(r.N), r.Last.UTC().Format("15:04:05 MST"))
		}
		l.add(Attention{Kind: AtLimit, N: r.N, Since: r.First}, "%s at the limit %s: %s.", when, r.Bound, strings.TrimSuffix(r.Why, "."))
	}
}

// sinks reports sinks that the audit is exported to.
func (l *look) sinks(g *kernel.Global) {
	for i := range g.AuditSinks {
		s := &g.AuditSinks[i]
		if !s.Failing.IsZero() {
			why := "see the log of the leader"
			if l.who.tenant() == jobs.DefaultTenant { // errors name addresses and paths of the server
				why = strings.TrimSuffix(s.Error, ".")
			}
			n := int(g.Audits - s.N)
			l.add(Attention{Kind: AuditSinks, N: n, Since: s.Failing}, "The audit is not exported to %s: %s. It lacks %s.", s.Name, why, count(n, "audit"))
		}
		if s.GapTo > 0 && l.now.Sub(s.GapAt) < auditGap {
			l.add(Attention{Kind: AuditSinks, N: int(s.GapTo - s.GapFrom + 1), Since: s.GapAt}, "Audits %d to %d were purged before %s received them.", s.GapFrom, s.GapTo, s.Name)
		}
	}
}

// workers reports jobs without workers.
func (l *look) workers(g *kernel.Global, live map[jobs.State]int) {
	workers := l.o.live.Workers(l.who.tenant())
	if len(workers) == 0 {
		if g.Jobs > 0 {
			l.add(Attention{Kind: NoWorker, N: g.Jobs}, "No worker is online to run the %s.", count(g.Jobs, "job"))
		}
		return
	}
	if live[jobs.Enqueued] == 0 {
		return
	}
	apps, serves, any := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, w := range workers {
		apps[w.App] = true
		if w.Any {
			any[w.App+"\n"+w.Only] = true
		}
		for key := range w.Keys {
			serves[w.App+"\n"+string(key)] = true
		}
	}
	for _, of := range grouped(l.page(jobs.Enqueued), func(run *kernel.Run) bool {
		return run.Ready() && l.now.Sub(run.Queued) >= unserved && !any[run.App+"\n"] && !any[run.App+"\n"+run.Work] && !serves[run.App+"\n"+string(run.HandlerKey())]
	}) {
		run, n := of[len(of)-1], len(of)
		why := "no worker of the app " + run.App + " is online"
		if apps[run.App] {
			why = "no worker of the app " + run.App + " that is online has this job"
		}
		l.add(Attention{Kind: NoWorker, Job: run.Key, N: n, Since: run.Queued}, "%s of %s %s ready, and %s.", count(n, "run"), run.Key, is(n), why)
	}
}

// runs reports runs that are stuck, endless or failed.
func (l *look) runs() {
	processing, failed, cancelled, terminated := l.page(jobs.Processing), l.page(jobs.Failed), l.page(jobs.Cancelled), l.page(jobs.Terminated)
	for _, run := range slices.Concat(processing, failed, cancelled, terminated) {
		if run.State != jobs.Processing && !run.Lingering {
			continue
		}
		if now, known := l.o.live.Attempt(run.Tenant, run.ID); known && now.Stuck {
			l.add(Attention{Kind: Stuck, Job: run.Key, Run: run.ID, N: 1, Since: last(run)}, "A run of %s was asked to stop, and its handler has not returned.", run.Key)
		}
	}
	for _, of := range grouped(processing, func(run *kernel.Run) bool { return run.Deadline.IsZero() && l.now.Sub(run.Started) >= recently }) {
		run := of[len(of)-1]
		l.add(Attention{Kind: Endless, Job: run.Key, Run: run.ID, N: len(of), Since: run.Started}, "A run of %s has been processing for %s, and its job has no timeout.",
			run.Key, count(int(l.now.Sub(run.Started)/recently), "day"))
	}
	said := map[jobs.Key]bool{}
	recent := func(run *kernel.Run) bool { return l.now.Sub(run.Ended) < recently }
	for i, of := range grouped(terminated, recent) {
		if len(of) < inARow || i >= lookedEnds || l.err != nil {
			continue
		}
		key := of[0].Key
		of, l.err = l.o.sinceSuccess(l.ctx, l.who, of)
		if n := len(of); n >= inARow {
			said[key] = true
			l.add(Attention{Kind: Failing, Job: key, Run: of[0].ID, N: n, Since: of[n-1].Ended}, "The last %d runs of %s failed for good.", n, key)
		}
	}
	for _, of := range grouped(failed, func(run *kernel.Run) bool { return run.Failures >= inARow }) {
		if run := of[0]; !said[run.Key] {
			l.add(Attention{Kind: Failing, Job: run.Key, Run: run.ID, N: len(of), Since: last(run)}, "A run of %s has failed %d times, and is retried.", run.Key, run.Failures)
		}
	}
	for _, of := range grouped(terminated, func(run *kernel.Run) bool {
		return recent(run) && (run.Cause == kernel.ByLoss || run.Cause == kernel.ByPoison)
	}) {
		run, n := of[0], len(of)
		l.add(Attention{Kind: Lost, Job: run.Key, Run: run.ID, N: n, Since: run.Ended}, "%s of %s ended because the worker was lost.", count(n, "run"), run.Key)
	}
}

// jobs reports jobs that cannot fire or are paused.
func (l *look) jobs() {
	if l.err != nil {
		return
	}
	var list, late []*kernel.Definition
	list, l.err = l.o.store.Definitions(l.ctx, metastore.DefinitionQuery{Tenant: l.who.tenant(), Limit: lookedJobs})
	if l.err != nil {
		return
	}
	global, err := l.o.store.Global(l.ctx, l.who.tenant())
	if err != nil {
		l.err = err
		return
	}
	stopped := map[string][]*kernel.Definition{}
	for _, d := range list {
		if !d.Stopped.IsZero() && !d.Policy.Disabled {
			stopped[d.App] = append(stopped[d.App], d)
		}
		if _, err := l.o.next(d, global, l.now); err != nil {
			l.add(Attention{Kind: Trouble, Job: d.Key, N: 1, Since: d.Edited}, "The schedule of %s is invalid: %v.", d.Key, err)
		}
		if p := d.Paused; p != nil && p.By == kernel.ByItself {
			l.add(Attention{Kind: GaveUp, Job: d.Key, N: d.Failing, Since: p.At}, "%s has paused itself: %s.", d.Key, strings.TrimSuffix(p.Why(), "."))
		} else if p != nil && p.Until.IsZero() && l.now.Sub(p.At) >= recently {
			l.add(Attention{Kind: Paused, Job: d.Key, N: 1, Since: p.At}, "%s has been paused by %s for %s, without an end.",
				d.Key, strings.TrimPrefix(p.By, "person:"), count(int(l.now.Sub(p.At)/recently), "day"))
		}
		if !d.Missed.IsZero() {
			late = append(late, d)
		}
	}
	for _, app := range slices.Sorted(maps.Keys(stopped)) {
		of := stopped[app]
		a := Attention{Kind: Unserving, N: len(of), Since: of[0].Stopped}
		if len(of) == 1 {
			a.Job = of[0].Key
			l.add(a, "%s is stopped: no online worker of the app %s has it any more.", a.Job, app)
		} else {
			l.add(a, "%s and %s are stopped: no online worker of the app %s has them any more.", of[0].Key, count(len(of)-1, "other job"), app)
		}
	}
	slices.SortStableFunc(late, func(a, b *kernel.Definition) int { return b.Missed.Compare(a.Missed) })
	for _, d := range late[:min(len(late), lookedLedger)] {
		l.missed(d)
	}
}

// missed reports due times of a job that the scheduler did not fire. Due times that were skipped on purpose are left
// out.
func (l *look) missed(d *kernel.Definition) {
	if l.err != nil {
		return
	}
	var ranges []*kernel.Missed
	ranges, l.err = l.o.store.Ledger(l.ctx, d.Tenant, d.UID, 10)
	n, since := 0, time.Time{}
	for _, m := range ranges {
		if m.Reason == kernel.MissedLate && l.now.Sub(m.To) < recently {
			n, since = n+int(m.Count), m.From
		}
	}
	if n > 0 {
		l.add(Attention{Kind: Unfired, Job: d.Key, N: n, Since: since}, "%s of %s passed before the scheduler could fire %s.", count(n, "due time"), d.Key, them(n))
	}
}

// grouped returns the runs that match, by job, in the order of the first of each.
func grouped(list []*kernel.Run, want func(*kernel.Run) bool) [][]*kernel.Run {
	at, groups := map[jobs.ID]int{}, [][]*kernel.Run(nil)
	for _, run := range list {
		if !want(run) {
			continue
		}
		i, known := at[run.Job]
		if !known {
			i = len(groups)
			at[run.Job], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], run)
	}
	return groups
}

// last returns when a run last changed its state.
func last(run *kernel.Run) time.Time {
	if n := len(run.Moves); n > 0 {
		return run.Moves[n-1].At
	}
	return run.Created
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func is(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func was(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// lately caches the result of an expensive look for twenty times as long as it took: however many users have the page
// open, it uses at most a twentieth of the time. A quick look is not cached.
type lately[T any] struct {
	mu sync.Mutex
	of map[jobs.Tenant]seen[T]
}

type seen[T any] struct {
	what  T
	until time.Time
}

const quick = 5 * time.Millisecond

func (l *lately[T]) look(of jobs.Tenant, look func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := time.Now()
	if s, known := l.of[of]; known && begun.Before(s.until) {
		return s.what, nil
	}
	what, err := look()
	took := time.Since(begun)
	if err != nil || took < quick {
		delete(l.of, of)
		return what, err
	}
	if l.of == nil {
		l.of = map[jobs.Tenant]seen[T]{}
	}
	l.of[of] = seen[T]{what, time.Now().Add(20 * took)}
	return what, nil
}
