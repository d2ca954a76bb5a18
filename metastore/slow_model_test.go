package metastore_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// plain implements the pages about limits and retries in the simplest way: it stores only runs. It counts taken slots
// each time, and computes how full a bucket is from the times of all that was taken from it.
type plain struct {
	now    time.Time
	jobs   map[jobs.Key]*plainJob
	runs   []*plainRun            // in the order in which they were asked for
	starts map[string][]time.Time // starts through a gate with a rate, or turns
	app    jobs.Limit
	all    jobs.Rate // retries of all jobs
	came   int
}

type plainJob struct {
	uid jobs.ID
	p   kernel.Policy
}

type plainRun struct {
	id        jobs.ID
	job       *plainJob
	customer  string
	priority  int
	due       time.Time
	state     jobs.State
	cause     kernel.Cause
	attempt   int
	failures  int
	losses    int
	used      map[int]int // retries by rule
	retryAt   time.Time
	budgets   int  // that have let its retry pass
	retry     bool // goes before others
	lingering bool
	holds     bool // slots of all gates
	reserved  bool // slots of the gates of its arguments
	waits     string
	came      int // at its gates
}

// gates are the names of a run's gates, in order, with their limits.
func (m *plain) gates(r *plainRun) (names []string, limits map[string]jobs.Limit) {
	limits = map[string]jobs.Limit{}
	if p := &r.job.p; p.MaxConcurrency > 0 || p.Rate.Max > 0 {
		limits["job/"+r.job.uid.String()] = jobs.Limit{Max: p.MaxConcurrency, Rate: p.Rate}
	}
	for _, l := range r.job.p.Limits {
		if l.By == "" {
			limits["limit/"+l.Name] = l
		} else {
			limits["key/"+l.Name+"/"+r.customer] = l
		}
	}
	if m.app.Name != "" {
		limits["app/"+m.app.Name] = m.app
	}
	for name := range limits {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, limits
}

func ofArgument(gate string) bool { return strings.HasPrefix(gate, "key/") }

func (m *plain) taken(gate string) (n int) {
	for _, r := range m.runs {
		names, _ := m.gates(r)
		if slices.Contains(names, gate) && (r.holds || r.reserved && ofArgument(gate)) {
			n++
		}
	}
	return n
}

// level is how full a bucket is, in units of time: one token is Per/Max of it, and it never holds more than Per.
func (m *plain) level(name string, r jobs.Rate) time.Duration {
	level, at := r.Per, time.Time{}
	for i, t := range m.starts[name] {
		if i > 0 {
			level = min(r.Per, level+t.Sub(at))
		}
		level, at = level-r.Per/time.Duration(r.Max), t
	}
	if at.IsZero() {
		return r.Per
	}
	return min(r.Per, level+m.now.Sub(at))
}

func (m *plain) waiting(gate string) []*plainRun {
	var list []*plainRun
	for _, r := range m.runs {
		if r.waits == gate {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *plainRun) int {
		if a.retry != b.retry {
			return map[bool]int{true: -1, false: 1}[a.retry]
		}
		return cmp.Or(b.priority-a.priority, a.due.Compare(b.due), bytes.Compare(a.id[:], b.id[:]))
	})
	return list
}

// full is the first gate where there is no slot; those of arguments come first. One where others wait is full for a
// new run.
func (m *plain) full(r *plainRun, newcomer bool) string {
	names, limits := m.gates(r)
	for _, arguments := range []bool{true, false} {
		for _, name := range names {
			l := limits[name]
			if ofArgument(name) != arguments || arguments && r.reserved {
				continue
			}
			if l.Max > 0 && m.taken(name) >= l.Max || newcomer && len(m.waiting(name)) > 0 || m.lacks(name, l.Rate, m.admitted(name)) {
				return name
			}
		}
	}
	return ""
}

// lacks reports whether a bucket has no token for one more than those that are admitted.
func (m *plain) lacks(name string, r jobs.Rate, admitted int) bool {
	return r.Max > 0 && m.level(name, r) < time.Duration(admitted+1)*(r.Per/time.Duration(r.Max))
}

// admitted is how many runs have a slot of a gate and have not started.
func (m *plain) admitted(gate string) (n int) {
	for _, r := range m.runs {
		names, _ := m.gates(r)
		if slices.Contains(names, gate) && (r.holds && r.ready() || r.reserved && ofArgument(gate)) {
			n++
		}
	}
	return n
}

func (r *plainRun) ready() bool {
	return !r.lingering && r.waits == "" && (r.state == jobs.Enqueued || r.state == jobs.Failed && r.retryAt.IsZero())
}

// start starts a run, or has it wait at a gate whose rate has no token for it.
func (m *plain) start(r *plainRun) {
	names, limits := m.gates(r)
	for _, name := range names {
		if !m.lacks(name, limits[name].Rate, 0) {
			continue
		}
		r.holds, r.waits, r.retry = false, name, true
		r.reserved = !ofArgument(name) && slices.ContainsFunc(names, ofArgument)
		for _, name := range names {
			if !r.reserved || !ofArgument(name) {
				m.hand(name)
			}
		}
		return
	}
	for _, name := range names {
		if limits[name].Rate.Max > 0 {
			m.starts[name] = append(m.starts[name], m.now)
		}
	}
	r.state, r.cause, r.retry, r.budgets = jobs.Processing, "", false, 0
	r.attempt++
}

func (m *plain) take(r *plainRun) {
	names, _ := m.gates(r)
	r.holds, r.reserved, r.waits = len(names) > 0, false, ""
}

func (m *plain) wait(r *plainRun, gate string) {
	r.waits = gate
	if names, _ := m.gates(r); !ofArgument(gate) && !r.reserved && slices.ContainsFunc(names, ofArgument) {
		r.reserved = true
	}
}

// enter takes a run that is due: a new one, or a retry.
func (m *plain) enter(r *plainRun) {
	if r.came == 0 {
		m.came++
		r.came = m.came
	}
	if r.job.p.Overlap == jobs.OverlapReplace && !r.retry {
		names, limits := m.gates(r)
		for _, name := range names {
			var mine []*plainRun
			for _, o := range m.runs {
				if others, _ := m.gates(o); o != r && o.job == r.job && slices.Contains(others, name) && o.came > 0 && !o.state.Final() {
					mine = append(mine, o)
				}
			}
			slices.SortFunc(mine, func(a, b *plainRun) int { return a.came - b.came })
			for ; limits[name].Max > 0 && len(mine) >= limits[name].Max; mine = mine[1:] {
				o := mine[0]
				o.lingering = o.lingering || o.state == jobs.Processing
				if o.state == jobs.Enqueued {
					o.state = jobs.Skipped
				} else {
					o.state = jobs.Cancelled
				}
				o.cause, o.retryAt = kernel.ByReplaced, time.Time{}
				if !o.lingering {
					m.leave(o)
				}
			}
		}
	}
	full := m.full(r, !r.retry)
	if full == "" {
		m.take(r)
		return
	}
	skip := false
	switch r.job.p.Overlap {
	case jobs.OverlapSkip:
		skip = true
	case jobs.OverlapQueueOne:
		for _, o := range m.waiting(full) {
			skip = skip || o.job == r.job
		}
	}
	if skip && !r.retry {
		r.state, r.cause = jobs.Skipped, kernel.ByOverlap
		return
	}
	m.wait(r, full)
}

// leave frees the slots of a run: the first waiting run gets them.
func (m *plain) leave(r *plainRun) {
	names, _ := m.gates(r)
	held, reserved := r.holds, r.reserved
	r.holds, r.reserved, r.waits = false, false, ""
	for _, name := range names {
		if held || reserved && ofArgument(name) {
			m.hand(name)
		}
	}
}

func (m *plain) hand(gate string) {
	for {
		list := m.waiting(gate)
		if len(list) == 0 {
			return
		}
		r := list[0]
		_, limits := m.gates(r)
		l := limits[gate]
		if l.Max > 0 && m.taken(gate)-m.own(r, gate) >= l.Max || m.lacks(gate, l.Rate, m.admitted(gate)) {
			return
		}
		if full := m.full(r, false); full != "" {
			m.wait(r, full)
		} else {
			m.take(r)
		}
	}
}

// own is how many slots a waiting run has at a gate itself.
func (m *plain) own(r *plainRun, gate string) int {
	if r.reserved && ofArgument(gate) {
		return 1
	}
	return 0
}

// fail ends an attempt of a run. between is the least and the most delay of the next one.
func (m *plain) fail(r *plainRun, code string, lost, final, running bool) (between [2]time.Duration) {
	r.state, r.lingering, r.retryAt, r.budgets = jobs.Failed, running, time.Time{}, 0
	if lost {
		r.cause = kernel.ByLoss
		if r.losses++; r.losses > 3 {
			r.state, r.cause = jobs.Terminated, kernel.ByPoison
			m.leave(r)
		}
		return
	}
	r.cause = kernel.ByError
	r.failures++
	p := &r.job.p
	delay, most, factor, again, n := p.RetryDelay, p.RetryDelayMax, p.RetryFactor, r.failures <= p.Retries, r.failures
	name := code
	if name == "" {
		name = "error"
	}
	for i, rule := range p.RetryRules {
		if !slices.Contains(rule.Codes, name) && !slices.Contains(rule.Codes, "*") {
			continue
		}
		r.used[i]++
		n, delay, again = r.used[i], rule.Delay, r.used[i] <= rule.Attempts && (p.Retries == 0 || r.failures <= p.Retries)
		if rule.Factor > 0 {
			factor = rule.Factor
		}
		if rule.MaxDelay > 0 {
			most = rule.MaxDelay
		}
		break
	}
	if !again || final {
		r.state = jobs.Terminated
		if !running {
			m.leave(r)
		}
		return
	}
	d := float64(delay)
	for range n - 1 {
		d *= factor
	}
	if most > 0 {
		d = min(d, float64(max(most, delay)))
	}
	high := time.Duration(d)
	low := high
	switch p.RetryJitter {
	case jobs.JitterHalf:
		low = high / 2
	case jobs.JitterFull:
		low = 0
	}
	if high == 0 {
		if turn := m.budgeted(r); turn.After(m.now) {
			r.retryAt = turn
		}
	} else {
		r.retryAt = m.now.Add(high) // settled by the caller: chance decides how much is taken off
	}
	if r.retryAt.IsZero() || running {
		return [2]time.Duration{low, high}
	}
	m.leave(r)
	return [2]time.Duration{low, high}
}

// budgeted takes a turn from the budget of the job and then from that of all, each once.
func (m *plain) budgeted(r *plainRun) time.Time {
	for ; r.budgets < 2; r.budgets++ {
		name, rate := "retries of "+r.job.uid.String(), r.job.p.RetryBudget
		if r.budgets == 1 {
			name, rate = "retries of all", m.all
		}
		if rate.Max == 0 {
			continue
		}
		turn := m.now
		if lack := rate.Per/time.Duration(rate.Max) - m.level(name, rate); lack > 0 {
			turn = turn.Add(lack)
		}
		m.starts[name] = append(m.starts[name], turn)
		if turn.After(m.now) {
			r.budgets++
			return turn
		}
	}
	return m.now
}

// release starts a run whose time has come.
func (m *plain) release(r *plainRun) {
	switch {
	case r.waits != "":
		m.hand(r.waits)
	case r.state == jobs.Scheduled:
		r.state = jobs.Enqueued
		m.enter(r)
	case r.state == jobs.Failed && !r.retryAt.IsZero() && !r.lingering:
		if r.cause == kernel.ByError {
			if turn := m.budgeted(r); turn.After(m.now) {
				r.retryAt = turn
				return
			}
		}
		r.retryAt, r.retry, r.budgets = time.Time{}, true, 0
		m.enter(r)
	}
}

func (r *plainRun) String() string {
	return fmt.Sprintf("%s(%s) attempt %d waits %q retry %s lingering %v holds %v reserved %v", r.state, r.cause, r.attempt, r.waits, r.retryAt.Format("04:05.000"), r.lingering, r.holds, r.reserved)
}

func asPlain(run *kernel.Run) string {
	r := plainRun{state: run.State, cause: run.Cause, attempt: int(run.Attempt), waits: run.Waits, retryAt: run.RetryAt, lingering: run.Lingering, holds: run.Holds, reserved: run.Reserved}
	return r.String()
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// Random policies and random lives: the store and the plain model agree about every run after every command.
func TestLimitsAndRetriesMatchThePlainModel(t *testing.T) {
	rounds := tests.Size(60, 300, 300)
	for seed := range uint64(rounds) {
		if !t.Run("", func(t *testing.T) { drive(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func drive(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	store := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return now }}
	m := &plain{now: now, jobs: map[jobs.Key]*plainJob{}, starts: map[string][]time.Time{}}
	var log []string
	send := func(k kernel.Command) metastore.Result {
		res := store.Apply(context.Background(), []kernel.Envelope{{ID: kernel.DerivedID(fmt.Sprint(seed, len(log))), Tenant: jobs.DefaultTenant, Actor: "worker:w", Command: k}})[0]
		log = append(log, fmt.Sprintf("%s %T%+v -> %v", now.Format("04:05.000"), k, k, res.Err))
		return res
	}
	must := func(k kernel.Command) metastore.Result {
		t.Helper()
		res := send(k)
		if res.Err != nil {
			t.Fatalf("%s: %v\n%s", k.Verb(), res.Err, strings.Join(log, "\n"))
		}
		return res
	}
	rate := func() jobs.Rate {
		return pick(r, jobs.Rate{}, jobs.Rate{}, jobs.Rate{Max: 1, Per: 2 * time.Second}, jobs.Rate{Max: 4, Per: 8 * time.Second})
	}
	m.all = pick(r, jobs.Rate{Max: 100, Per: time.Second}, jobs.Rate{Max: 2, Per: 4 * time.Second})
	m.app = pick(r, jobs.Limit{}, jobs.Limit{Name: "app", Max: 1 + r.IntN(4), Rate: rate()})
	change := kernel.Configure{RetryBudget: &m.all}
	if m.app.Name != "" {
		change.AppLimits = &[]jobs.Limit{m.app}
	}
	must(change)
	shared := jobs.Limit{Name: "db", Max: 1 + r.IntN(3), Rate: rate()}
	keyed := jobs.Limit{Name: "customer", Max: 1 + r.IntN(2), By: "args.c", Rate: rate()}
	keys := []jobs.Key{"a", "b", "c"}
	for _, key := range keys {
		s := kernel.Settings{MaxConcurrency: new(r.IntN(4)), Overlap: new(pick(r, jobs.OverlapSkip, jobs.OverlapQueue, jobs.OverlapQueue, jobs.OverlapQueueOne, jobs.OverlapReplace)), Rate: new(rate()),
			Retries: new(r.IntN(5)), RetryDelay: new(pick(r, 0, time.Second, 4*time.Second)), RetryDelayMax: new(pick(r, 5*time.Second, time.Hour)),
			RetryFactor: new(pick(r, 1.0, 2.0, 3.0)), RetryJitter: new(pick(r, jobs.JitterNone, jobs.JitterHalf, jobs.JitterFull)), RetryBudget: new(rate())}
		limits := []jobs.Limit{}
		if r.IntN(2) == 0 {
			limits = append(limits, shared)
		}
		if r.IntN(2) == 0 {
			limits = append(limits, keyed)
		}
		s.Limits = &limits
		rules := []jobs.RetryRule{}
		for _, code := range []string{"x", "y", "error", "*"} {
			if r.IntN(3) == 0 {
				rules = append(rules, jobs.RetryRule{Codes: []string{code}, Attempts: r.IntN(4), Delay: pick(r, 0, time.Second, 3*time.Second), Factor: pick(r, 0.0, 1, 2), MaxDelay: pick(r, 0, 2*time.Second, 4*time.Second)})
			}
		}
		s.RetryRules = &rules
		d := must(kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered, Code: s}}).Definition()
		m.jobs[key] = &plainJob{uid: d.UID, p: d.Policy}
	}
	compare := func() {
		t.Helper()
		for i, run := range m.runs {
			in, err := store.Run(context.Background(), jobs.DefaultTenant, run.id)
			if err != nil {
				t.Fatal(err)
			}
			if got := asPlain(in); got != run.String() {
				t.Fatalf("seed %d, run %d of %s:\nstore %s\nmodel %s\npolicy %+v\napp %+v\n%s", seed, i, in.Key, got, run, run.job.p, m.app, strings.Join(log, "\n"))
			}
		}
	}
	for range 120 {
		some := func(ok func(*plainRun) bool) *plainRun {
			var list []*plainRun
			for _, run := range m.runs {
				if ok(run) {
					list = append(list, run)
				}
			}
			if len(list) == 0 {
				return nil
			}
			return pick(r, list...)
		}
		processing := func(run *plainRun) bool { return run.state == jobs.Processing }
		switch r.IntN(10) {
		case 0, 1, 2: // a new run
			key := pick(r, keys...)
			run := &plainRun{id: kernel.DerivedID("run", fmt.Sprint(seed, len(m.runs))), job: m.jobs[key], customer: pick(r, "u", "v"), used: map[int]int{}, state: jobs.Enqueued, due: now, priority: r.IntN(2)}
			k := kernel.Create{ID: run.id, Key: key, Args: fmt.Appendf(nil, `{"c":%q}`, run.customer), Priority: &run.priority, Origin: pick(r, kernel.FromCode, kernel.FromPerson, kernel.FromParent)}
			if r.IntN(4) == 0 {
				k.Delay = time.Second
				run.due, run.state = now.Add(k.Delay), jobs.Scheduled
			}
			must(k)
			m.runs = append(m.runs, run)
			if run.state == jobs.Enqueued {
				m.enter(run)
			}
		case 3, 4, 5: // a worker takes one that it may
			if run := some(func(run *plainRun) bool {
				return run.holdsOrFree(m) && run.ready()
			}); run != nil {
				must(kernel.Start{ID: run.id, Worker: "w", Attempt: uint32(run.attempt + 1)})
				m.start(run)
			}
		case 6: // it is done, or fails
			if run := some(processing); run != nil {
				if r.IntN(3) == 0 {
					must(kernel.Finish{ID: run.id, Worker: "w", Attempt: uint32(run.attempt), Outcome: kernel.OutcomeSuccess})
					run.state = jobs.Succeeded
					m.leave(run)
					break
				}
				code, outcome, running := pick(r, "", "x", "y"), pick(r, kernel.OutcomeError, kernel.OutcomeError, kernel.OutcomeError, kernel.OutcomeFatal), r.IntN(4) == 0
				must(kernel.Finish{ID: run.id, Worker: "w", Attempt: uint32(run.attempt), Outcome: outcome, Code: code, Error: "no", Running: running})
				between := m.fail(run, code, false, outcome == kernel.OutcomeFatal, running)
				in, err := store.Run(context.Background(), jobs.DefaultTenant, run.id)
				if err != nil {
					t.Fatal(err)
				}
				if high := between[1]; high > 0 && !in.RetryAt.IsZero() {
					if wait := in.RetryAt.Sub(now); wait < between[0]-time.Microsecond || wait > high {
						t.Fatalf("seed %d: a retry waits %v, not between %v and %v", seed, wait, between[0], high)
					}
					run.retryAt = in.RetryAt
				}
			}
		case 7: // its worker is gone; or a handler returns at last
			if run := some(processing); run != nil && r.IntN(2) == 0 {
				must(kernel.Expire{ID: run.id, Attempt: uint32(run.attempt), Cause: kernel.ByLoss})
				m.fail(run, "", true, false, false)
			} else if run := some(func(run *plainRun) bool { return run.lingering }); run != nil {
				must(kernel.Returned{ID: run.id, Worker: "w", Attempt: uint32(run.attempt)})
				run.lingering = false
				if run.state != jobs.Failed || !run.retryAt.IsZero() {
					m.leave(run)
				}
			}
		case 8: // a person cancels one
			if run := some(func(run *plainRun) bool { return !run.state.Final() }); run != nil && r.IntN(2) == 0 {
				must(kernel.Cancel{ID: run.id})
				run.lingering = run.lingering || run.state == jobs.Processing
				run.state, run.cause, run.retryAt = jobs.Cancelled, kernel.ByPerson, time.Time{}
				if !run.lingering {
					m.leave(run)
				}
			}
		case 9: // time passes, and due runs start at their times
			to := now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			for {
				var first *kernel.Run
				var of *plainRun
				for _, run := range m.runs {
					in, err := store.Run(context.Background(), jobs.DefaultTenant, run.id)
					if err != nil {
						t.Fatal(err)
					}
					if at := in.Wake(); !at.IsZero() && !at.After(to) && (first == nil || at.Before(first.Wake())) {
						first, of = in, run
					}
				}
				if first == nil {
					break
				}
				if first.Wake().After(now) {
					now = first.Wake()
				}
				m.now = now
				must(kernel.Release{ID: of.id})
				m.release(of)
				compare()
			}
			now, m.now = to, to
			m.awake(t, seed, log)
		}
		compare()
	}
}

// holdsOrFree reports that a run has its slots: a waiting one has none.
func (r *plainRun) holdsOrFree(m *plain) bool {
	names, _ := m.gates(r)
	return r.holds || len(names) == 0
}

// awake checks that no run waits for a slot that is free.
func (m *plain) awake(t *testing.T, seed uint64, log []string) {
	t.Helper()
	for _, r := range m.runs {
		if r.waits == "" {
			continue
		}
		names, limits := m.gates(r)
		if l := limits[r.waits]; m.waiting(r.waits)[0] == r && slices.Contains(names, r.waits) &&
			(l.Max == 0 || m.taken(r.waits) < l.Max) && !m.lacks(r.waits, l.Rate, m.admitted(r.waits)) {
			t.Fatalf("seed %d: a run waits at %s, where there is room\n%s", seed, r.waits, strings.Join(log, "\n"))
		}
	}
}
