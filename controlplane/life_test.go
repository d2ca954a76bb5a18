package controlplane_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/internal/timemodel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// lives is a tenant in which jobs with all kinds of settings live for a while around a change of the clocks, and
// people, leaders and workers do what they do. All that happens is recorded for the model.
type lives struct {
	*fixture
	rnd       *rand.Rand
	seed      uint64
	all       []*citizen
	acts      int
	clocks    transition
	common    kernel.Settings // defaults of the tenant
	debug     bool
	suspended bool
	away      bool // no node leads
	idle      bool // no worker lives
	stripped  bool // workers live, and none has the code
	latest    time.Time
	leave     func()
	history   []happening
	reached   map[cell]int
	unmanned  []span // times without a worker that has the code

	mu    sync.Mutex
	under map[jobs.ID]int // handlers at work
}

const acme jobs.Tenant = "acme"

// span is a time from one moment to another.
type span struct{ from, until time.Time }

// citizen is a job with all that happens to it.
type citizen struct {
	key     jobs.Key
	uid     jobs.ID
	version int             // of its code; 0 = a person has made it
	set     kernel.Settings // by code or by people
	paused  bool
	pause   *kernel.Held
	gone    bool
	single  bool // it never had more than one slot
	born    time.Time
	died    time.Time
}

// cell is a change that a job with a setting, or in a state, went through.
type cell struct{ setting, change string }

// transition is when the clocks of a zone are set.
type transition struct {
	zone string
	at   time.Time
}

var transitions = []transition{
	{"Europe/Berlin", time.Date(2000, 3, 26, 1, 0, 0, 0, time.UTC)},
	{"Europe/Berlin", time.Date(2000, 10, 29, 1, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2000, 4, 2, 7, 0, 0, 0, time.UTC)},
	{"America/New_York", time.Date(2000, 10, 29, 6, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2000, 3, 25, 15, 0, 0, 0, time.UTC)},
	{"Australia/Lord_Howe", time.Date(2000, 8, 26, 15, 30, 0, 0, time.UTC)},
}

// now is the time of the store.
func (w *lives) now() time.Time {
	if now := w.clock.Now(); now.After(w.latest) {
		w.latest = now
	}
	return w.latest
}

var ann = ops.Who{Tenant: acme, Actor: "person:ann", Role: ops.Operator}

// at is the leader's store, or if no node leads that which the next leader will have.
func (w *lives) at() metastore.Store {
	if w.away {
		return w.full
	}
	return w.store
}

func (w *lives) ops() *ops.Ops { return ops.New(ops.Config{Store: w.at(), Now: w.now}) }

func (w *lives) definition(key jobs.Key) *kernel.Definition {
	w.t.Helper()
	d, err := w.full.Definition(w.ctx, acme, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// do applies a command as a person, at the leader if there is one.
func (w *lives) do(k kernel.Command) metastore.Result {
	w.t.Helper()
	return w.at().Apply(w.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: acme, Actor: "person:ann", Command: k}})[0]
}

// yes is do, and a refusal fails the test.
func (w *lives) yes(k kernel.Command) metastore.Result {
	w.t.Helper()
	r := w.do(k)
	if r.Err != nil {
		w.t.Fatalf("life %d: %s: %v", w.seed, k.Verb(), r.Err)
	}
	return r
}

// happening is an event of a job, or of all (nil), in the order in which they happened.
type happening struct {
	of *citizen
	timemodel.Event
}

// happened records what happened to all jobs.
func (w *lives) happened(e timemodel.Event) { w.happenedTo(nil, e) }

// happenedTo records what happened to a job. With any change of it, it follows the defaults.
func (w *lives) happenedTo(c *citizen, e timemodel.Event) {
	e.At = w.now()
	if c != nil && e.Spec == nil {
		w.history = append(w.history, happening{c, timemodel.Event{At: e.At, Spec: w.spec(c)}})
	}
	w.history = append(w.history, happening{c, e})
}

// life is what happened to a job, in order, with the ends of its runs.
func (w *lives) life(c *citizen, runs map[time.Time]*kernel.Run) (list []timemodel.Event) {
	for _, h := range w.history {
		if h.of == nil || h.of == c {
			list = append(list, h.Event)
		}
	}
	list = append(list, w.stops(c)...)
	for _, run := range runs {
		if !run.Ended.IsZero() {
			list = append(list, timemodel.Event{At: run.Ended, Ended: true})
		}
	}
	slices.SortStableFunc(list, func(a, b timemodel.Event) int { return a.At.Compare(b.At) })
	return list
}

// spec is what the settings of a job come to.
func (w *lives) spec(c *citizen) *timemodel.Spec {
	s, d := &c.set, &w.common
	return &timemodel.Spec{Schedule: *s.Schedule, Zone: or(s.Zone, or(d.Zone, "UTC")), Start: or(s.Start, time.Time{}), End: or(s.End, time.Time{}),
		First: or(s.First, time.Time{}), TTL: or(s.TTL, 0), Gap: string(or(s.Gap, or(d.Gap, "after"))), Twice: string(or(s.Twice, or(d.Twice, "first"))),
		Calendars: or(s.Calendars, nil), Misfire: string(or(s.Misfire, or(d.Misfire, "fire_once"))), Early: or(s.Early, 0),
		Disabled: or(s.Disabled, false), StartWithin: or(s.StartWithin, 0)}
}

func or[T any](given *T, none T) T {
	if given != nil {
		return *given
	}
	return none
}

// create makes a job, by code or by a person.
func (w *lives) create(key jobs.Key) {
	c := &citizen{key: key}
	if w.rnd.IntN(3) == 0 {
		c.version = 1
	}
	for {
		c.set = w.settings()
		if w.allowed(c) {
			c.single = or(c.set.MaxConcurrency, 1) == 1
			c.uid = w.yes(c.register()).Definition().UID
			break
		}
	}
	w.happenedTo(c, timemodel.Event{Spec: w.spec(c)})
	c.born = w.now()
	w.all = append(w.all, c)
}

// register is the command that makes the job, or that a worker with its code sends.
func (c *citizen) register() kernel.Command {
	k := kernel.Register{App: "default", Worker: "w1", Start: true, Job: kernel.Declaration{Key: c.key, Kind: kernel.Recurring, Version: c.version, Code: c.set}}
	if c.version == 0 {
		k.Worker, k.Set, k.Job.Code = kernel.NoWorker, c.set, kernel.Settings{}
	}
	return k
}

// change gives a job other settings, and reports whether they are allowed.
func (w *lives) change(c *citizen, set kernel.Settings) bool {
	was := c.set
	if c.set = set.Over(c.set); !w.allowed(c) {
		c.set = was
		return false
	}
	var k kernel.Command = kernel.Edit{Key: c.key, Set: set}
	if c.version > 0 {
		c.version++
		k = c.register()
	}
	c.single = c.single && or(c.set.MaxConcurrency, 1) == 1
	if !w.yes(k).Existing { // otherwise it does not follow the defaults either
		w.happenedTo(c, timemodel.Event{Spec: w.spec(c)})
	}
	return true
}

// allowed reports whether the settings of a job are accepted.
func (w *lives) allowed(c *citizen) bool {
	d := &kernel.Definition{Key: c.key, Kind: kernel.Recurring, Code: c.set, Anchor: w.now(), TTLFrom: w.now()}
	d.Policy = d.Resolve(new(kernel.Global))
	return timetable.Check(d) == nil
}

// work starts a worker.
func (w *lives) work() {
	takes := func(at jobs.AttemptInfo) time.Duration {
		h := fnv.New32a()
		fmt.Fprint(h, at.Key, at.Due)
		return time.Duration(h.Sum32()%40) * time.Second
	}
	w.mu.Lock()
	w.under = map[jobs.ID]int{}
	w.mu.Unlock()
	handler := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
		job := jobs.Attempt(ctx).Job
		w.atWork(job, +1)
		defer w.atWork(job, -1)
		select {
		case <-time.After(takes(jobs.Attempt(ctx))):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), jobs.Options{Key: w.code()})
	as := bus.Principal{Tenant: acme, Role: bus.Worker, Name: "w1"}
	b := busstore.Heed(w.hub.As(as), as)
	x, err := worker.New(worker.Config{Tenant: acme, Name: "w1", Slots: worker.Unlimited, Grace: time.Second}, atLeader{w.full, w.fixture}, b, handler)
	if err != nil {
		w.t.Fatal(err)
	}
	w.leave = w.spawn(func(ctx context.Context) error { return errors.Join(x.Run(ctx), b.Close()) })
	synctest.Wait()
}

// atWork counts the handlers of a job that are at work.
func (w *lives) atWork(job jobs.ID, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.under[job] += n; w.under[job] > 1 && slices.ContainsFunc(w.all, func(c *citizen) bool { return c.uid == job && c.single }) {
		w.t.Errorf("life %d: %d runs of job %s at a time", w.seed, w.under[job], job)
	}
}

// code is the handler that workers have.
func (w *lives) code() jobs.Key {
	if w.stripped {
		return "other"
	}
	return "work"
}

// live plays a life.
func live(t *testing.T, seed uint64, reached map[cell]int) (fates map[string]int) {
	rnd := rand.New(rand.NewPCG(seed, 35))
	clocks := transitions[seed%uint64(len(transitions))]
	time.Sleep(time.Until(clocks.at.Add(-time.Duration(20+rnd.IntN(40)) * time.Minute)))
	time.Sleep(5 * time.Millisecond) // the leader looks around between seconds
	f := newFixture(t)
	defer f.close()
	w := &lives{fixture: f, rnd: rnd, seed: seed, clocks: clocks, reached: reached}
	f.must(kernel.SetTenant{Name: acme, Create: true})
	w.happened(timemodel.Event{LateAfter: 30 * time.Second})
	w.happened(timemodel.Event{Leads: new(true)})
	w.happened(timemodel.Event{Has: new(true)})
	w.work()
	for _, name := range []string{"a", "b"} {
		w.closes(name)
	}
	for i := range 8 {
		time.Sleep(37 * time.Millisecond)
		w.create(jobs.Key(fmt.Sprint("job-", i)))
	}
	deck := slices.Clone(changes)
	rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	for i := range deck {
		most := 240
		if w.debug || w.suspended || w.away || w.stripped {
			most = 80
		}
		w.pause(time.Duration(rnd.IntN(most)) * time.Second)
		w.act(&deck[i])
	}
	w.rest()
	return w.judge()
}

// pause lets time pass up to a fraction of a second at which nothing else happens.
func (w *lives) pause(d time.Duration) {
	w.acts++
	at := time.Now().Truncate(time.Second).Add(d + time.Second + time.Duration(350+7*w.acts)*time.Millisecond)
	time.Sleep(time.Until(at))
}

// act does something to one or to all jobs.
func (w *lives) act(a *change) {
	c := w.all[w.rnd.IntN(len(w.all))]
	touched := []*citizen{c}
	if a.all {
		touched = w.all
	}
	var cells []cell
	for _, c := range touched {
		for _, s := range w.properties(c) {
			cells = append(cells, cell{s, a.name})
		}
	}
	if !a.do(w, c) {
		return
	}
	for _, c := range cells {
		w.reached[c]++
	}
}

// rest has a node lead and a worker work, until all that is due is decided.
func (w *lives) rest() {
	w.pause(0)
	if w.away {
		lead(w, nil)
	}
	if w.idle {
		staff(w, nil)
	}
	if w.stripped {
		strip(w, nil)
	}
	w.pause(10 * time.Second)
	w.pause(time.Minute)
	synctest.Wait()
}

// judge compares what became of each due time with what the model says.
func (w *lives) judge() map[string]int {
	counts := map[string]int{}
	end := w.now()
	for _, c := range w.all {
		runs := w.runsOf(c)
		life := w.life(c, runs)
		fates := timemodel.Fates(life, end)
		for due, run := range runs {
			w.begins(c, life, fates[due], run)
		}
		var ranges []*kernel.Missed
		if !c.gone {
			ranges = w.rangesOf(c)
		}
		w.compare(c, fates, runs, ranges, end, counts)
		if w.t.Failed() {
			w.t.Logf("life %d, %s: %s", w.seed, c.key, w.story(c))
			break
		}
	}
	return counts
}

// stops is when the job was marked as stopped, because no worker had its code, and when not any more.
func (w *lives) stops(c *citizen) (list []timemodel.Event) {
	audits, err := w.store.Audits(w.ctx, metastore.AuditQuery{Tenant: acme, Target: "job " + string(c.key), Since: 1, Limit: metastore.MaxPage})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range audits {
		switch {
		case a.At.Before(c.born) || a.Verb != kernel.VerbMark.String():
		case c.gone && a.At.After(c.died):
		default:
			list = append(list, timemodel.Event{At: a.At, Has: new(string(a.After) != `{"stopped":true}`)})
		}
	}
	return list
}

func (w *lives) runsOf(c *citizen) map[time.Time]*kernel.Run {
	runs := map[time.Time]*kernel.Run{}
	q := metastore.RunQuery{Tenant: acme, Job: c.key, Limit: metastore.MaxPage}
	for {
		p, err := w.store.Runs(w.ctx, q)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, run := range p.Runs {
			if run.Job == c.uid && run.Origin.Automatic() {
				if runs[run.Due] != nil {
					w.t.Errorf("life %d, %s: two runs are due at %v", w.seed, c.key, run.Due)
				}
				runs[run.Due] = run
			}
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			return runs
		}
	}
}

func (w *lives) rangesOf(c *citizen) []*kernel.Missed {
	ranges, err := w.store.Ledger(w.ctx, acme, c.uid, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return ranges
}

// compare compares the records of a job with the fates of its due times.
func (w *lives) compare(c *citizen, fates map[time.Time]timemodel.Fate, runs map[time.Time]*kernel.Run, ranges []*kernel.Missed, end time.Time, counts map[string]int) {
	complain := func(due time.Time, format string, args ...any) {
		w.t.Errorf("life %d, %s, due %s: %s", w.seed, c.key, clock(due), fmt.Sprintf(format, args...))
	}
	inRanges := map[*kernel.Missed]uint64{}
	dues := make([]time.Time, 0, len(fates))
	for due := range fates {
		dues = append(dues, due)
	}
	slices.SortFunc(dues, time.Time.Compare)
	for _, due := range dues {
		f := fates[due]
		run := runs[due.UTC()]
		delete(runs, due.UTC())
		got := "nothing"
		for _, m := range ranges {
			if !due.Before(m.From) && !due.After(m.To) {
				got = string(m.Reason)
				inRanges[m]++
				if run != nil {
					complain(due, "it has a run, and is in the ledger as %s", m.Reason)
				}
			}
		}
		if run != nil {
			got = string(run.Origin)
		}
		want := cmp.Or(string(f.Why), "cron")
		if f.Late {
			want = "misfire"
		}
		counts[want]++
		if c.gone && f.Why != "" {
			continue // its ledger is deleted
		}
		if got != want {
			complain(due, "it has %s, want %s, decided at %s", got, want, clock(f.Decided))
		}
	}
	for due := range runs {
		complain(due, "it has a run and is no due time")
	}
	for _, m := range ranges {
		if inRanges[m] != m.Count {
			complain(m.From, "the ledger counts %d due times up to %s as %s, want %d", m.Count, clock(m.To), m.Reason, inRanges[m])
		}
	}
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

// story is what happened to a job.
func (w *lives) story(c *citizen) string {
	var b strings.Builder
	for _, e := range w.life(c, nil) {
		what := ""
		switch {
		case e.Spec != nil:
			what = fmt.Sprintf("set %+v", *e.Spec)
		case e.Restart:
			what = "restarted"
		case e.Deleted:
			what = "deleted"
		case e.Pause != nil:
			what = "paused until " + clock(*e.Pause)
		case e.Resume:
			what = "resumed"
		case e.Debug != nil:
			what = fmt.Sprint("debug ", *e.Debug)
		case e.Suspended != nil:
			what = fmt.Sprint("suspended ", *e.Suspended)
		case e.Leads != nil:
			what = fmt.Sprint("a node leads: ", *e.Leads)
		case e.Has != nil:
			what = fmt.Sprint("a worker has it: ", *e.Has)
		case e.LateAfter > 0:
			what = fmt.Sprint("late after ", e.LateAfter)
		case e.Calendar != "":
			what = "calendar " + e.Calendar
		}
		fmt.Fprintf(&b, "\n  %s %s", clock(e.At), what)
	}
	return b.String()
}

var (
	lifeFirst = flag.Uint64("life", 0, "the number of the first life of TestLives; alone: the only one")
	livesFor  = flag.Duration("lives", 0, "for how long TestLives plays lives")
)

// Random lives: each due time has one run or one reason, the one that the model names, and each setting goes through each
// change.
func TestLives(t *testing.T) {
	tests.WithoutRace(t)
	const many = 80 // reach every cell of the table
	lives := tests.Size[uint64](3, many, 2000)
	if *lifeFirst > 0 {
		lives = 1
	}
	reached, fates := map[cell]int{}, map[string]int{}
	played, began := uint64(0), time.Now()
	for ; played < lives || time.Since(began) < *livesFor; played++ {
		life := *lifeFirst + played
		synctest.Test(t, func(t *testing.T) {
			for why, n := range live(t, life, reached) {
				fates[why] += n
			}
		})
		if t.Failed() {
			t.Fatalf("the first difference is in life %d: go test ./controlplane -run TestLives$ -life %d", life, life)
		}
	}
	t.Logf("%d lives, and what became of their due times: %v", played, fates)
	complete(t, reached, played >= many)
}
