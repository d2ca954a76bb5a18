package assign

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

const lease = 15 * time.Second

// stage is a board with a store beside it.
type stage struct {
	t     testing.TB
	b     *Board
	now   dispatch.Stamp
	rows  map[jobs.ID]*kernel.Run
	turn  uint64
	last  uint64 // version
	acts  dispatch.Acts
	infos map[dispatch.Worker]bus.WorkerInfo
}

func newStage(t testing.TB) *stage {
	return &stage{t: t, b: New(lease, 0, lease), now: 1, rows: map[jobs.ID]*kernel.Run{}, infos: map[dispatch.Worker]bus.WorkerInfo{}}
}

var (
	app1 = App{"t", "app"}
	keys = map[jobs.Key]int{"job": 1}
)

// worker has a worker join, with so many slots, and send a heartbeat.
func (s *stage) worker(name string, slots int, change ...func(*bus.WorkerInfo)) dispatch.Worker {
	i := bus.WorkerInfo{Tenant: app1.Tenant, App: app1.Name, Name: name, Label: name, Slots: slots, Keys: keys}
	for _, fn := range change {
		fn(&i)
	}
	w := dispatch.Worker{Tenant: i.Tenant, Name: i.Name}
	s.infos[w] = i
	s.b.Join(i)
	s.heartbeat(w)
	return w
}

func (s *stage) heartbeat(w dispatch.Worker) {
	var names []dispatch.Attempt
	for _, run := range s.rows {
		if run.Tenant == w.Tenant && run.Worker == w.Name && run.State == jobs.Processing {
			names = append(names, attemptOf(run))
		}
	}
	s.b.Heartbeat(dispatch.Heartbeat{Worker: w, Sent: s.now, Slots: s.infos[w].Slots, Names: names}, s.now, &s.acts)
}

// run makes a row that can start. Its board is not informed yet.
func (s *stage) run(change ...func(*kernel.Run)) *kernel.Run {
	s.turn++
	run := &kernel.Run{Tenant: app1.Tenant, App: app1.Name, Key: "job", State: jobs.Enqueued, Turn: s.turn,
		ID: jobs.ID{byte(s.turn >> 8), byte(s.turn)}}
	s.version(run)
	for _, fn := range change {
		fn(run)
	}
	s.rows[run.ID] = run
	return run
}

// each returns all rows, in a fixed order.
func (s *stage) each() []*kernel.Run {
	return slices.SortedFunc(maps.Values(s.rows), func(a, b *kernel.Run) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// version makes a row the newest of its run.
func (s *stage) version(run *kernel.Run) {
	if run.Version = 0; !run.Settled() {
		s.last++
		run.Version = s.last
	}
}

// ready makes rows that can start.
func (s *stage) ready(n int, change ...func(*kernel.Run)) {
	for range n {
		s.note(s.run(change...))
	}
}

// note informs the board of a row.
func (s *stage) note(run *kernel.Run) {
	s.b.Note(run, s.b.Sender().Current(runOf(run)), s.now, &s.acts)
}

// answer has a worker begin an attempt.
func (s *stage) answer(a dispatch.Attempt, w dispatch.Worker) {
	if sent := s.b.Sender().Find(a); sent != nil {
		s.b.Answer(sent, w, dispatch.Began, &s.acts)
	}
}

// commit applies a start to the rows, or refuses it.
func (s *stage) commit(x Start) {
	run := *s.rows[x.ID]
	if !run.Ready() || run.Next() != x.N {
		s.b.Withdraw(x)
		return
	}
	run.State, run.Attempt, run.Worker = jobs.Processing, x.N, x.Worker
	s.put(&run)
}

// put stores a row and informs the board.
func (s *stage) put(run *kernel.Run) {
	s.version(run)
	s.rows[run.ID] = run
	s.note(run)
}

// end ends an attempt with success.
func (s *stage) end(id jobs.ID) {
	run := *s.rows[id]
	run.State = jobs.Succeeded
	s.put(&run)
}

// starts commits what the board chooses, until it chooses nothing, and returns how many went to each worker.
func (s *stage) starts() (order []string) {
	for {
		s.fill()
		list := s.b.Starts(1000, s.now)
		if len(list) == 0 {
			return order
		}
		for _, x := range list {
			order = append(order, x.Worker)
			s.commit(x)
			s.answer(x.Attempt, dispatch.Worker{Tenant: x.Tenant, Name: x.Worker})
		}
	}
}

// fill has the board read what it lacks.
func (s *stage) fill() {
	s.b.Reread()
	for _, x := range s.b.Short(s.now) {
		s.b.Fill(x, s.read(x))
	}
}

// read returns what a shortage asks for.
func (s *stage) read(x Shortage) []*kernel.Run {
	rows := slices.DeleteFunc(s.sorted(x.App), func(run *kernel.Run) bool { return !x.Has(run.Queue()) })
	return rows[:min(len(rows), x.Want)]
}

func (s *stage) want(got []string, want ...string) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("started on %q, want %q", got, want)
	}
}

func placed(p kernel.Place) func(*kernel.Run) {
	return func(run *kernel.Run) { q := p; run.Place = &q }
}

func priority(n int) func(*kernel.Run) { return func(run *kernel.Run) { run.Priority = n } }

// Runs start by priority, then in the order in which they became ready, and only where a slot is free.
func TestOrder(t *testing.T) {
	s := newStage(t)
	for _, p := range []int{0, 5, 0, 9, 5} {
		s.ready(1, priority(p))
	}
	w := s.worker("w", 1)
	s.fill()
	var got []uint64
	for {
		list := s.b.Starts(1000, s.now)
		if len(list) == 0 {
			break
		}
		if len(list) != 1 {
			t.Fatalf("%d starts, one slot", len(list))
		}
		got = append(got, s.rows[list[0].ID].Turn)
		s.commit(list[0])
		s.answer(list[0].Attempt, w)
		s.end(list[0].ID)
	}
	if want := []uint64{4, 2, 5, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// sorted returns the rows of an app that can start, in their order.
func (s *stage) sorted(of App) (list []*kernel.Run) {
	for _, run := range s.rows {
		if run.Tenant == of.Tenant && run.App == of.Name && run.Ready() {
			list = append(list, run)
		}
	}
	slices.SortFunc(list, func(a, b *kernel.Run) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Turn, b.Turn))
	})
	return list
}

func TestRoutes(t *testing.T) {
	three := func(s *stage) {
		s.worker("a", 2)
		s.worker("b", 3)
		s.worker("c", 2)
	}
	route := func(r jobs.Route) func(*kernel.Run) { return placed(kernel.Place{Route: r}) }
	for _, c := range []struct {
		name string
		do   func(s *stage)
		want []string
	}{
		{"any: where most slots are free", func(s *stage) { three(s); s.ready(3) }, []string{"b", "a", "b"}},
		{"first", func(s *stage) { three(s); s.ready(3, route(jobs.RouteFirst)) }, []string{"a", "a", "b"}},
		{"last", func(s *stage) { three(s); s.ready(3, route(jobs.RouteLast)) }, []string{"c", "c", "b"}},
		{"round robin", func(s *stage) { three(s); s.ready(7, route(jobs.RouteRoundRobin)) }, []string{"a", "b", "c", "a", "b", "c", "b"}},
		{"least recent", func(s *stage) { three(s); s.ready(5, route(jobs.RouteLeastRecent)) }, []string{"a", "b", "c", "a", "b"}},
		{"least frequent", func(s *stage) { three(s); s.ready(4, route(jobs.RouteLeastFrequent)) }, []string{"a", "b", "c", "a"}},
		{"failover: the first that is there, and no other", func(s *stage) { three(s); s.ready(4, route(jobs.RouteFailover)) }, []string{"a", "a"}},
		{"failover: the next, if the first rests", func(s *stage) {
			three(s)
			s.b.Rest(dispatch.Worker{Tenant: "t", Name: "a"})
			s.ready(4, route(jobs.RouteFailover))
		}, []string{"b", "b", "b"}},
		{"idle: one of the job on each", func(s *stage) { three(s); s.ready(5, route(jobs.RouteIdle)) }, []string{"a", "b", "c"}},
		{"at most one at a time in each", func(s *stage) { three(s); s.ready(5, placed(kernel.Place{Route: jobs.RouteAny, Slots: 1})) }, []string{"a", "b", "c"}},
		{"pinned by label", func(s *stage) {
			three(s)
			s.ready(3, placed(kernel.Place{Route: jobs.RouteAny, Pin: "c"}))
		}, []string{"c", "c"}},
		{"pinned to one that is away waits", func(s *stage) {
			three(s)
			s.ready(3, placed(kernel.Place{Route: jobs.RouteAny, Pin: "d"}))
		}, nil},
		{"pinned to one that is away, or any", func(s *stage) {
			three(s)
			s.ready(1, placed(kernel.Place{Route: jobs.RouteAny, Pin: "d", PinAway: jobs.PinAny}))
		}, []string{"b"}},
		{"a tag", func(s *stage) {
			three(s)
			s.worker("g", 1, func(i *bus.WorkerInfo) { i.Tags = []string{"gpu"} })
			s.ready(2, placed(kernel.Place{Route: jobs.RouteAny, Needs: []string{"gpu"}}))
		}, []string{"g"}},
		{"a code version", func(s *stage) {
			three(s)
			s.worker("new", 1, func(i *bus.WorkerInfo) { i.Keys = map[jobs.Key]int{"job": 2} })
			s.ready(2, placed(kernel.Place{Route: jobs.RouteAny, Version: 2}))
		}, []string{"new"}},
		{"workers for all jobs come after those that have it by name", func(s *stage) {
			s.worker("any", 9, func(i *bus.WorkerInfo) { i.Keys, i.Any = nil, true })
			s.worker("named", 1)
			s.ready(2)
		}, []string{"named"}},
		{"workers for all jobs take what none has by name", func(s *stage) {
			s.worker("any", 9, func(i *bus.WorkerInfo) { i.Keys, i.Any = nil, true })
			s.worker("named", 1)
			s.ready(2, func(run *kernel.Run) { run.Key = "other" })
		}, []string{"any", "any"}},
		{"a handler has another key than the job", func(s *stage) {
			s.worker("w", 9)
			s.ready(1, func(run *kernel.Run) { run.Key, run.Handler = "row", "job" })
		}, []string{"w"}},
		{"a worker without the job gets none", func(s *stage) {
			s.worker("w", 9)
			s.ready(1, func(run *kernel.Run) { run.Key = "other" })
		}, nil},
		{"a worker of another app gets none", func(s *stage) {
			s.worker("w", 9, func(i *bus.WorkerInfo) { i.App = "other" })
			s.ready(1)
		}, nil},
		{"a worker without a limit", func(s *stage) { s.worker("w", 0); s.ready(3) }, []string{"w", "w", "w"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			c.do(s)
			s.want(s.starts(), c.want...)
		})
	}
}

// Runs with one hash start on one worker, and move only if it leaves.
func TestHash(t *testing.T) {
	s := newStage(t)
	for i := range 5 {
		s.worker(fmt.Sprint("w", i), 0)
	}
	where := map[string]string{}
	for i := range 50 {
		text := fmt.Sprint("customer ", i%10)
		s.ready(1, placed(kernel.Place{Route: jobs.RouteHash, Hash: text}))
		got := s.starts()
		if len(got) != 1 || where[text] != "" && where[text] != got[0] {
			t.Fatalf("%s started on %q, before on %s", text, got, where[text])
		}
		where[text] = got[0]
	}
	if len(maps.Collect(maps.All(where))) < 2 {
		t.Error("all texts start on one worker")
	}
	s.b.Leave(dispatch.Worker{Tenant: "t", Name: "w0"})
	for text, before := range where {
		s.ready(1, placed(kernel.Place{Route: jobs.RouteHash, Hash: text}))
		if got := s.starts(); len(got) != 1 || before != "w0" && got[0] != before || got[0] == "w0" {
			t.Errorf("%s started on %q after w0 had left, before on %s", text, got, before)
		}
	}
}

// What waits for a worker starts when one is free: a slot is free, it may take more of a job, it is back.
func TestWaitsForAWorker(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", 2)
	s.ready(3, placed(kernel.Place{Route: jobs.RouteAny, Slots: 1}))
	s.want(s.starts(), "w")
	s.end(jobs.ID{0, 1})
	s.want(s.starts(), "w")
	s.b.Rest(w)
	s.end(jobs.ID{0, 2})
	s.want(s.starts())
	s.heartbeat(w) // it takes runs again
	s.want(s.starts(), "w")
	s.ready(2)
	s.want(s.starts(), "w")
	s.b.Leave(w)
	s.want(s.starts())
	s.worker("x", 1)
	s.want(s.starts(), "x")
}

// Runs that no worker can take do not delay those behind them.
func TestOthersPass(t *testing.T) {
	s := newStage(t)
	s.worker("w", 5)
	s.ready(100, func(run *kernel.Run) { run.Key = "missing" }, priority(9))
	s.ready(2)
	s.want(s.starts(), "w", "w")
}

// Tenants take turns, and apps of a tenant: a flood delays the others by a share at most.
func TestTurns(t *testing.T) {
	s := newStage(t)
	of := func(a App) func(*bus.WorkerInfo) {
		return func(i *bus.WorkerInfo) { i.Tenant, i.App = a.Tenant, a.Name }
	}
	apps := []App{{"flood", "a"}, {"flood", "b"}, {"small", "a"}}
	for _, a := range apps {
		s.worker(string(a.Tenant)+a.Name, 1_000_000, of(a))
	}
	in := func(a App) func(*kernel.Run) { return func(run *kernel.Run) { run.Tenant, run.App = a.Tenant, a.Name } }
	s.ready(2000, in(apps[0]))
	s.ready(2000, in(apps[1]))
	s.ready(10, in(apps[2]))
	s.fill()
	got := map[string]int{}
	for _, x := range s.b.Starts(200, s.now) {
		got[x.Worker]++
	}
	if got["smalla"] != 10 || got["flooda"] == 0 || got["floodb"] == 0 || got["flooda"]-got["floodb"] > share {
		t.Errorf("200 starts: %v", got)
	}
}

// A broadcast becomes one run for each worker, once those are known, and ends if there is none.
func TestBroadcast(t *testing.T) {
	s := newStage(t)
	all := placed(kernel.Place{Route: jobs.RouteBroadcast})
	s.ready(1, all)
	s.worker("b", 1)
	s.worker("a", 1)
	s.worker("other", 1, func(i *bus.WorkerInfo) { i.Keys = nil })
	if got, wait := s.b.Expansions(s.now); got != nil || wait != lease-s.now {
		t.Errorf("expanded to %v before the workers are known; they are in %v", got, wait)
	}
	s.now = lease
	got, _ := s.b.Expansions(s.now)
	if len(got) != 1 || !slices.Equal(got[0].Command.Workers, []string{"a", "b"}) {
		t.Fatalf("expanded to %v", got)
	}
	s.note(s.rows[jobs.ID{0, 1}])
	if again, _ := s.b.Expansions(s.now); again != nil {
		t.Errorf("expanded twice: %v", again)
	}
	s.b.Retry(got[0])
	s.heartbeat(dispatch.Worker{Tenant: "t", Name: "a"})
	s.fill()
	if again, _ := s.b.Expansions(s.now); len(again) != 1 {
		t.Errorf("after a failure: expanded to %v", again)
	}
	s.ready(1, all, func(run *kernel.Run) { run.App = "deserted" })
	if got, _ := s.b.Expansions(s.now); len(got) != 1 || len(got[0].Command.Workers) != 0 {
		t.Errorf("without workers: expanded to %v", got)
	}
	s.heartbeat(dispatch.Worker{Tenant: "t", Name: "b"})
	part := placed(kernel.Place{Route: jobs.RouteBroadcast, Pin: "b", Total: 2, Index: 1})
	s.ready(1, part)
	s.want(s.starts(), "b")
}

// A worker that does not answer, or was not reached, is passed over until its next heartbeat.
func TestMute(t *testing.T) {
	s := newStage(t)
	a := s.worker("a", 2)
	s.worker("b", 1)
	route := placed(kernel.Place{Route: jobs.RouteFailover})
	s.ready(3, route)
	s.fill()
	x := s.b.Starts(1, s.now)[0]
	s.commit(x)
	if len(s.acts.Push) != 1 {
		t.Fatalf("pushes %v", s.acts.Push)
	}
	s.acts = dispatch.Acts{}
	s.b.Undelivered(x.Attempt, &s.acts)
	if !slices.Equal(s.acts.Unstart, []dispatch.Attempt{x.Attempt}) {
		t.Fatalf("not delivered: to unstart %v", s.acts.Unstart)
	}
	s.want(s.starts(), "b")
	back := *s.rows[x.ID] // unstarted: its old place in line, its number spent
	back.State = jobs.Enqueued
	s.put(&back)
	s.want(s.starts())
	s.heartbeat(a)
	s.want(s.starts(), "a", "a")
	if run := s.rows[x.ID]; run.Attempt != x.N+1 {
		t.Errorf("attempt %d began, want %d", run.Attempt, x.N+1)
	}
}

// Effects that are overtaken by later ones change nothing.
func TestOvertaken(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", 1)
	s.ready(1)
	id := jobs.ID{0, 1}
	first := s.rows[id]
	s.want(s.starts(), "w")
	s.note(first)
	s.want(s.starts())
	retry := *s.rows[id]
	retry.State, retry.Turn = jobs.Failed, 2
	processing := s.rows[id]
	s.put(&retry)
	second := s.b.Starts(1, s.now)
	if len(second) != 1 || second[0].N != 2 {
		t.Fatalf("the retry starts as %v", second)
	}
	s.note(&retry)
	s.note(processing)
	s.commit(second[0])
	s.note(&retry)
	s.note(processing)
	if a := s.b.Sender().Current(dispatch.Run{Tenant: "t", ID: id}); a == nil || a.N != 2 || a.Worker() != w {
		t.Errorf("current is %v", a)
	}
	s.end(id)
	s.ready(1)
	s.want(s.starts(), "w")
}

// While all workers of an app are full, no more of its runs are read: those that wait for them are enough.
func TestFullWorkersNeedNoMore(t *testing.T) {
	s := newStage(t)
	s.b.most.ready = 8
	w := s.worker("w", 1)
	for range 20 {
		s.run()
	}
	s.want(s.starts(), "w")
	if short := s.b.Short(s.now); len(short) > 0 {
		t.Errorf("a full worker is short of %v", short)
	}
	s.worker("other", 1, func(i *bus.WorkerInfo) { i.Keys = map[jobs.Key]int{"rare": 1} })
	s.want(s.starts())
	if short := s.b.Short(s.now); len(short) != 1 {
		t.Errorf("a free worker, for which no run is known, is short of %v", short)
	}
	for range 19 {
		for id, run := range s.rows {
			if run.State == jobs.Processing && run.Worker == w.Name {
				s.end(id)
			}
		}
		s.want(s.starts(), "w")
	}

}

// A tenant whose starts are in several commits waits for one of them, and the others do not.
func TestTenantCommits(t *testing.T) {
	s := newStage(t)
	s.worker("w", 10)
	s.ready(2)
	s.fill()
	for range commitsAtOnce {
		s.b.Committing(app1.Tenant, 1)
	}
	s.b.Committing("other", 1)
	if list := s.b.Starts(10, s.now); len(list) > 0 {
		t.Errorf("%d runs start beside %d commits", len(list), commitsAtOnce)
	}
	s.b.Committing(app1.Tenant, -1)
	if list := s.b.Starts(10, s.now); len(list) != 2 {
		t.Errorf("%d runs start once a commit is done, want 2", len(list))
	}
}

// What was read before a run started and ended starts nothing.
func TestReadTooEarly(t *testing.T) {
	s := newStage(t)
	s.worker("w", 1)
	s.ready(1)
	s.fill()
	s.b.apps[app1].more = true
	short := s.b.Short(s.now)
	if len(short) != 1 {
		t.Fatal("nothing is to be read")
	}
	rows := s.sorted(app1)
	for _, x := range s.b.Starts(1, s.now) {
		s.commit(x)
	}
	s.end(rows[0].ID)
	s.b.Fill(short[0], rows)
	if again := s.b.Starts(1, s.now); len(again) > 0 {
		t.Errorf("it starts again: %v", again)
	}
}

// A start that was refused is tried again after Reread, not before: it would be refused without end.
func TestRefusedStart(t *testing.T) {
	s := newStage(t)
	s.worker("w", 1)
	s.ready(1)
	s.fill()
	for _, x := range s.b.Starts(1, s.now) {
		s.b.Withdraw(x)
	}
	if short := s.b.Short(s.now); len(short) > 0 {
		t.Errorf("it is read again: %v", short)
	}
	s.b.Reread()
	if len(s.b.Short(s.now)) == 0 {
		t.Error("it is not read again")
	}
	s.want(s.starts(), "w")
}

// What the board lost is found by the second look at it, and counted. What it does not have because it has no room, or
// because no worker takes it, is not lost.
func TestCompare(t *testing.T) {
	s := newStage(t)
	s.b.most = small
	s.worker("w", 1)
	look := func() int {
		has, none := s.b.Looks(app1)
		if none {
			return 0
		}
		return s.b.Compare(app1, slices.DeleteFunc(s.sorted(app1), func(run *kernel.Run) bool { return !has(run.Queue()) }))
	}
	want := func(why string, n int) {
		t.Helper()
		if got := look(); got != n {
			t.Errorf("%s: %d runs are mended, want %d", why, got, n)
		}
	}
	never := func(why string) {
		t.Helper()
		want(why, 0)
		want(why, 0)
	}
	s.run(func(run *kernel.Run) { run.Place = &kernel.Place{Route: jobs.RouteBroadcast} })
	never("not read yet")
	s.ready(1000, func(run *kernel.Run) { run.Key = "missing" })
	for range 9 {
		s.fill()
		s.b.Starts(1, s.now)
	}
	s.ready(2)
	if len(s.b.apps[app1].cuts) == 0 {
		t.Fatal("nothing is cut")
	}
	never("a queue that is cut")
	first, last := s.run(), s.run(func(run *kernel.Run) { run.Place = &kernel.Place{Route: jobs.RouteBroadcast} })
	want("their effects may be on their way", 0)
	want("two are lost, a run and a broadcast", 2)
	want("both are known", 0)
	s.now = lease
	s.heartbeat(dispatch.Worker{Tenant: "t", Name: "w"})
	if list, _ := s.b.Expansions(s.now); len(list) != 2 || list[1].Command.ID != last.ID {
		t.Errorf("expanded: %v", list)
	}
	if a := s.b.apps[app1].all; a[first.ID] == nil {
		t.Error("the run is not held")
	}
	s.want(s.starts(), "w")
	s.run()
	never("no worker can take one now")
	_, n := s.b.Expansions(s.now)
	if n != 0 {
		t.Error("expanded again")
	}
}

// A broadcast that ends before it is expanded is not expanded, and nothing of it is left. What the store knows of it
// later does not name its app.
func TestABroadcastThatEnds(t *testing.T) {
	for name, end := range map[string]func(*kernel.Run){
		"cancelled": func(*kernel.Run) {},
		"known only as settled": func(run *kernel.Run) {
			*run = kernel.Run{Tenant: run.Tenant, ID: run.ID, Key: run.Key, State: run.State}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.worker("w", 1)
			s.fill()
			run := s.run(placed(kernel.Place{Route: jobs.RouteBroadcast}))
			s.note(run)
			ended := *run
			ended.State = jobs.Cancelled
			end(&ended)
			s.put(&ended)
			s.note(run) // is older
			s.now = lease
			s.heartbeat(dispatch.Worker{Tenant: "t", Name: "w"})
			if list, wait := s.b.Expansions(s.now); len(list) != 0 || wait != 0 {
				t.Errorf("it is expanded: %v", list)
			}
			if a := s.b.apps[app1]; len(a.spread)+len(a.all)+len(s.b.expand) != 0 {
				t.Error("something of it is left")
			}
		})
	}
}

// A random life: at no time does a worker have more than its slots, and when all is quiet, no run waits that a worker
// could take, although the board holds a small part of them, and effects come in any order. In every second life some of
// runs that became ready are lost: then Compare finds those runs, and else it finds nothing.
func TestLife(t *testing.T) {
	for seed := range uint64(tests.Size(10, 50, 2000)) {
		life(t, rand.New(rand.NewPCG(seed, 1)), seed%2 == 1)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func life(t *testing.T, r *rand.Rand, lossy bool) {
	s := newStage(t)
	s.b.most = bounds{ready: 8, held: 24, cut: 4}
	names := []string{"a", "b", "c", "d"}
	tags := []string{"x", "y"}
	var flight []Start
	var late []*kernel.Run // effects that are on their way
	tell := func(run *kernel.Run) {
		s.version(run)
		s.rows[run.ID] = run
		late = append(late, run)
	}
	deliver := func(all bool) {
		for len(late) > 0 && (all || r.IntN(3) > 0) {
			i := r.IntN(len(late))
			if !lossy || !late[i].Ready() || late[i].State != jobs.Enqueued || r.IntN(4) > 0 {
				s.note(late[i])
			}
			late = slices.Delete(late, i, i+1)
		}
	}
	commit := func(x Start) {
		run := *s.rows[x.ID]
		if !run.Ready() || run.Next() != x.N {
			s.b.Withdraw(x)
			return
		}
		if info := s.infos[dispatch.Worker{Tenant: run.Tenant, Name: x.Worker}]; info.Lacks(run.HandlerKey(), run.Work, run.Place) != "" || info.App != run.App {
			t.Errorf("run %v of %s starts on %s", run.ID, run.Key, x.Worker)
		}
		run.State, run.Attempt, run.Worker = jobs.Processing, x.N, x.Worker
		tell(&run)
	}
	taken := func() map[string]int {
		n := map[string]int{}
		for _, run := range s.each() {
			if run.State == jobs.Processing {
				n[run.Worker]++
			}
		}
		for _, x := range flight {
			n[x.Worker]++
		}
		return n
	}
	pump := func(most int) {
		s.fill()
		flight = append(flight, s.b.Starts(most, s.now)...)
		for name, n := range taken() {
			if slots := s.infos[dispatch.Worker{Tenant: "t", Name: name}].Slots; n > slots {
				t.Errorf("worker %s has %d attempts and %d slots", name, n, slots)
			}
		}
	}
	for range 300 {
		s.now += time.Duration(r.IntN(int(200 * time.Millisecond)))
		switch r.IntN(9) {
		case 0: // a worker joins, or sends a heartbeat
			name := names[r.IntN(len(names))]
			w := dispatch.Worker{Tenant: "t", Name: name}
			if !s.b.Known(w) {
				if taken()[name] > 0 {
					break // it is another start of it
				}
				s.worker(name, 1+r.IntN(4), func(i *bus.WorkerInfo) {
					i.App = []string{"app", "other"}[r.IntN(2)]
					i.Keys = map[jobs.Key]int{}
					for _, k := range []jobs.Key{"one", "two", "three"} {
						if r.IntN(3) > 0 {
							i.Keys[k] = 1
						}
					}
					i.Tags = tags[:r.IntN(3)]
				})
			}
		case 1:
			if r.IntN(4) == 0 {
				s.b.Leave(dispatch.Worker{Tenant: "t", Name: names[r.IntN(len(names))]})
			}
		case 2, 3: // runs become ready
			for range 1 + r.IntN(20) {
				late = append(late, s.run(priority(r.IntN(3)), func(run *kernel.Run) {
					run.Key = []jobs.Key{"one", "two", "three"}[r.IntN(3)]
					run.App = []string{"app", "other"}[r.IntN(2)]
					if r.IntN(3) == 0 {
						run.Place = &kernel.Place{Route: jobs.RouteAny, Needs: tags[:r.IntN(3)], Slots: r.IntN(3)}
					}
					if r.IntN(4) == 0 {
						run.Waits, run.Turn = "limit/x", 0
					}
				}))
			}
		case 4: // attempts end
			for _, run := range s.each() {
				if run.State == jobs.Processing && r.IntN(2) == 0 {
					end := *run
					end.State = jobs.Succeeded
					if r.IntN(4) == 0 {
						s.turn++
						end.State, end.Turn = jobs.Failed, s.turn
					}
					tell(&end)
				}
			}
		case 5: // a run is cancelled
			for _, run := range s.each() {
				if run.Ready() {
					end := *run
					end.State = jobs.Cancelled
					tell(&end)
					break
				}
			}
		case 6: // commits end
			n := r.IntN(len(flight) + 1)
			for _, x := range flight[:n] {
				commit(x)
			}
			flight = slices.Clone(flight[n:])
		case 7:
			pump(1 + r.IntN(10))
		case 8: // gates open and close
			for _, run := range s.each() {
				if run.State != jobs.Enqueued || r.IntN(3) > 0 {
					continue
				}
				next := *run
				if next.Waits, next.Turn = "limit/x", 0; run.Waits != "" {
					s.turn++
					next.Waits, next.Turn = "", s.turn
				}
				tell(&next)
			}
		}
		for _, name := range names {
			if w := (dispatch.Worker{Tenant: "t", Name: name}); s.b.Known(w) {
				s.heartbeat(w)
			}
		}
		deliver(false)
		for _, a := range s.acts.Push {
			s.answer(a.Attempt, dispatch.Worker{Tenant: "t", Name: s.rows[a.ID].Worker})
		}
		s.acts = dispatch.Acts{}
	}
	held := func() (n int) {
		for _, a := range s.b.apps {
			n += len(a.all)
		}
		return n + 1000*sum(taken())
	}
	compare := func() (mended int) {
		for _, name := range []App{app1, {"t", "other"}} {
			if has, none := s.b.Looks(name); !none {
				rows := slices.DeleteFunc(s.sorted(name), func(run *kernel.Run) bool { return !has(run.Queue()) })
				mended += s.b.Compare(name, rows[:min(len(rows), 20)])
			}
		}
		return mended
	}
	for still := 0; still < 3; still++ { // a round may bring as many runs as it takes away
		before := held()
		for _, x := range flight {
			commit(x)
		}
		flight = nil
		deliver(true)
		pump(1000)
		if mended := compare(); mended > 0 && !lossy {
			t.Errorf("%d runs are mended, and no effect was lost", mended)
		}
		if held() != before || len(flight) > 0 {
			still = -1
		}
	}
	busy := taken()
	for _, run := range s.each() {
		for w, i := range s.infos {
			same := 0
			for _, other := range s.rows {
				if other.State == jobs.Processing && other.Worker == w.Name && other.Key == run.Key {
					same++
				}
			}
			if run.Ready() && s.b.Known(w) && i.App == run.App && i.Lacks(run.HandlerKey(), run.Work, run.Place) == "" && busy[w.Name] < i.Slots &&
				(run.Place == nil || run.Place.Slots == 0 || same < run.Place.Slots) {
				t.Errorf("run %v of %s waits, and worker %s could take it: %d of %d slots; held %v", run.ID, run.Key, w.Name, busy[w.Name], i.Slots,
					s.b.app(App{"t", run.App}).all[run.ID])
			}
		}
	}
	for _, a := range s.b.apps {
		if a.starting != 0 {
			t.Errorf("app %v counts %d starts that are on their way", a.name, a.starting)
		}
	}
	for w, m := range s.b.workers { // what is counted is what there is
		n := 0
		for _, run := range s.each() {
			if run.State == jobs.Processing && run.Worker == w.Name {
				n++
			}
		}
		if got := sumOf(m.runs); got != n {
			t.Errorf("worker %s counts %d attempts, has %d", w.Name, got, n)
		}
	}
}

func sum(m map[string]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

func sumOf(m map[jobs.Key]int) (n int) {
	for _, k := range m {
		n += k
	}
	return n
}

// An attempt that a heartbeat tells of is not started again, though its run was waiting by what was known.
func TestLoadOfAHeldRun(t *testing.T) {
	s := newStage(t)
	s.worker("a", 1)
	s.worker("b", 1)
	s.fill()
	s.ready(2)
	run := *s.rows[jobs.ID{0, 1}]
	run.State, run.Attempt, run.Worker = jobs.Processing, 1, "a"
	s.rows[run.ID] = &run
	s.b.Load(&run, s.now)
	s.want(s.starts(), "b")
}
