package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// sharedFixture is a cluster in which several processes fire a share of the jobs each. They have the store and its
// members in common, and each has a bus of its own.
type sharedFixture struct {
	*fixture
	members *memstore.Membership
	leads   chan struct{} // has one token: who holds it leads
	mu      sync.Mutex
	ringers map[string]*ringer
}

// ringer is one of the processes.
type ringer struct {
	*controlplane.ControlPlane
	rope *rope
	stop func() // in order
}

func newBelfry(t *testing.T) *sharedFixture {
	t.Helper()
	h := newFixture(t)
	h.stop() // it fires all by itself
	return &sharedFixture{fixture: h, members: new(memstore.Membership), leads: make(chan struct{}, 1), ringers: map[string]*ringer{}}
}

// rope is the way from a process to the store: it may break for good, as when the process is killed, or hang until it
// is thawed, as when the process is frozen; or the process gets no signals of changes, and may write.
type rope struct {
	metastore.Full
	*memstore.Membership
	fixture *sharedFixture

	dead, deaf atomic.Bool
	wasted     atomic.Int64 // fires of what was fired before
	mu         sync.Mutex
	ice        chan struct{} // nil = it is not frozen
}

var errRope = kernel.Refuse(jobs.Unavailable, "the rope is broken")

func (r *rope) pull(ctx context.Context) error {
	r.mu.Lock()
	ice := r.ice
	r.mu.Unlock()
	if ice != nil {
		<-ice
	}
	if r.dead.Load() {
		return errRope
	}
	return nil
}

func (r *rope) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ice = make(chan struct{})
}

func (r *rope) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.ice)
	r.ice = nil
}

func (r *rope) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if err := r.pull(ctx); err != nil {
		return metastore.Refused(batch, err)
	}
	results := r.Full.Apply(ctx, batch)
	for i := range results {
		if _, is := batch[i].Command.(kernel.Fire); is && results[i].Existing {
			r.wasted.Add(1)
		}
	}
	return results
}

// toLeader is the way from a process to the leader.
type toLeader struct{ *rope }

func (l toLeader) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if err := l.pull(ctx); err != nil {
		return metastore.Refused(batch, err)
	}
	leader := l.fixture.leader()
	if leader == nil {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "no process leads"))
	}
	return leader.Store().Apply(ctx, batch)
}

// leader is the process that leads, or nil.
func (b *sharedFixture) leader() *ringer {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.ringers {
		if term, _ := g.Leading(); term > 0 {
			return g
		}
	}
	return nil
}

func (r *rope) State(ctx context.Context) (kernel.StoreRow, error) {
	if err := r.pull(ctx); err != nil || r.deaf.Load() {
		return kernel.StoreRow{}, errRope
	}
	return r.Full.State(ctx)
}

func (r *rope) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	if err := r.pull(ctx); err != nil || r.deaf.Load() {
		return nil, errRope
	}
	return r.Full.Definitions(ctx, q)
}

func (r *rope) Stay(ctx context.Context, m metastore.Member, lease time.Duration) error {
	if err := r.pull(ctx); err != nil {
		return err
	}
	return r.Membership.Stay(ctx, m, lease)
}

func (r *rope) Leave(ctx context.Context, m metastore.Member) error {
	if err := r.pull(ctx); err != nil {
		return err
	}
	return r.Membership.Leave(ctx, m)
}

func (r *rope) Members(ctx context.Context) ([]metastore.Member, error) {
	if err := r.pull(ctx); err != nil {
		return nil, err
	}
	return r.Membership.Members(ctx)
}

// byToken leads while it holds its token.
type byToken struct{ b *sharedFixture }

func (byToken) Confirmed(uint64) time.Time { return time.Now() }

func (e byToken) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	select {
	case e.b.leads <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-e.b.leads }()
	return controlplane.Always{Store: e.b.full}.Lead(ctx, lead)
}

// begin starts a process. The first one leads.
func (b *sharedFixture) begin(name string) *ringer {
	b.t.Helper()
	g := &ringer{}
	g.rope = &rope{Full: b.full, Membership: b.members, fixture: b}
	hub := membus.New()
	if len(b.ringers) == 0 {
		hub = b.hub // workers are at the first one
	}
	cp, err := controlplane.New(controlplane.Config{Node: name, Store: g.rope, Membership: g.rope, Leader: toLeader{g.rope}, Clock: b.clock, Elector: byToken{b},
		Bus:    hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name}),
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&b.logged, b.t.Output()), nil)).With("at", name)})
	if err != nil {
		b.t.Fatal(err)
	}
	g.ControlPlane = cp
	if len(b.ringers) == 0 {
		b.use(cp)
	}
	b.mu.Lock()
	b.ringers[name] = g
	b.mu.Unlock()
	g.stop = b.spawn(func(ctx context.Context) error {
		err := cp.Run(ctx)
		if errors.Is(err, errRope) {
			return nil // it was killed while it led
		}
		return err
	})
	synctest.Wait()
	return g
}

// kill ends a process without notice.
func (b *sharedFixture) kill(name string) {
	g := b.ringers[name]
	g.rope.dead.Store(true)
	g.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ringers, name)
}

// leave stops a process in order.
func (b *sharedFixture) leave(name string) {
	b.ringers[name].stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ringers, name)
}

// cast makes recurring jobs that no worker runs.
func (b *sharedFixture) cast(n int, spec string) (keys []jobs.Key) {
	b.t.Helper()
	for i := range n {
		key := jobs.Key(fmt.Sprintf("bell-%02d", i))
		b.must(kernel.Register{App: "bells", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Recurring,
			Code: kernel.Settings{Schedule: &spec, MaxConcurrency: new(0), Misfire: new(jobs.MisfireAll)}}})
		keys = append(keys, key)
	}
	return keys
}

// strokes are the runs of a job, oldest first; each due time of each second from the first one on must have one.
func (b *sharedFixture) strokes(key jobs.Key) []*kernel.Run {
	b.t.Helper()
	runs := b.runs(key)
	slices.SortFunc(runs, func(x, y *kernel.Run) int { return x.Due.Compare(y.Due) })
	for i := 1; i < len(runs); i++ {
		if gap := runs[i].Due.Sub(runs[i-1].Due); gap != time.Second {
			b.t.Errorf("%s: %v after %v", key, runs[i].Due, runs[i-1].Due)
		}
	}
	if m := b.ledger(key); len(m) > 0 {
		b.t.Errorf("%s: %+v in the ledger", key, *m[0])
	}
	return runs
}

// Several processes fire about the same number of jobs each, and each due time is fired by its owner, on time, whether
// it leads or not. The leader starts their runs at once.
func TestS1_02EachFiresItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBelfry(t)
		defer b.close()
		for _, name := range []string{"n1", "n2", "n3"} {
			b.begin(name)
		}
		var ran atomic.Int64
		var js []jobs.Job
		for i := range 60 {
			js = append(js, job(jobs.Key(fmt.Sprintf("bell-%02d", i)), jobs.Options{Cron: "* * * * * *", MaxConcurrency: jobs.None}, &ran))
		}
		b.worker(worker.Config{App: "bells", Slots: 100}, js...)
		time.Sleep(30*time.Second + time.Second/2)
		synctest.Wait()

		by, late := map[string]int{}, time.Duration(0)
		for _, j := range js {
			runs := b.strokes(j.Key())
			if len(runs) < 29 {
				t.Errorf("%s has fired %d times", j.Key(), len(runs))
			}
			for _, run := range runs[1:] { // all know of it
				if run.Moves[0].By != runs[1].Moves[0].By {
					t.Errorf("%s was fired by %s and by %s", j.Key(), runs[1].Moves[0].By, run.Moves[0].By)
				}
				late = max(late, run.Moves[1].At.Sub(run.Due))
			}
			by[runs[1].Moves[0].By]++
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			// Twenty, give or take: their hashes differ from run to run. One in tens of thousands is beyond this.
			if n := by["member:"+name]; n < 6 || n > 36 {
				t.Errorf("jobs by who fires them: %v", by)
			}
		}
		if late > 100*time.Millisecond {
			t.Errorf("a run began %v late", late)
		}
		// People see the same, at each of them.
		for _, g := range b.ringers {
			shares := g.Shares()
			if len(shares) != 3 {
				t.Fatalf("%+v", shares)
			}
			for _, f := range shares {
				if f.Jobs != by["member:"+f.Node] || f.Here != (f.Node == g.Node()) || f.Fired < uint64(25*f.Jobs) || f.Since.IsZero() {
					t.Errorf("at %s: %+v, and it fires %d", g.Node(), f, by["member:"+f.Node])
				}
			}
		}
		// The leader watches the due times of others, and does not commit them once more.
		if n, wasted := b.cp.Rescued(), b.ringers["n1"].rope.wasted.Load(); n > 60 || wasted > 60 {
			t.Errorf("the leader has fired %d due times of others, and %d that were fired before", n, wasted)
		}
	})
}

// Members are killed, frozen beyond their lease, stopped and started; so is the leader. Each due time is fired once:
// those of a lost member at most a second and a half late, and on time again once its lease has expired.
func TestMembersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBelfry(t)
		defer b.close()
		for _, name := range []string{"n1", "n2", "n3", "n4"} {
			b.begin(name)
		}
		keys := b.cast(40, "* * * * * *")
		const most = 1500 * time.Millisecond
		var from time.Time
		// lateness looks at what was due since it looked last.
		lateness := func(what string, allowed time.Duration) {
			t.Helper()
			synctest.Wait()
			now, most, n := time.Now(), time.Duration(0), 0
			for _, key := range keys {
				for _, run := range b.strokes(key) {
					if !run.Due.Before(from) {
						n, most = n+1, max(most, run.Created.Sub(run.Due))
					}
				}
			}
			if least := int(now.Sub(from)/time.Second-2) * len(keys); !from.IsZero() && n < least {
				t.Errorf("%s: %d due times were fired, and at least %d were due", what, n, least)
			}
			if most > allowed {
				t.Errorf("%s: fired %v late, %v is allowed", what, most, allowed)
			}
			t.Logf("%s: %d due times, at most %v late", what, n, most)
			from = now.Truncate(time.Second).Add(time.Second)
		}
		time.Sleep(3*time.Second + 300*time.Millisecond)
		from = time.Now().Truncate(time.Second)
		time.Sleep(5 * time.Second)
		lateness("all are there", 50*time.Millisecond)

		b.kill("n2")
		time.Sleep(6 * time.Second)
		lateness("n2 was killed", most)
		time.Sleep(10 * time.Second)
		lateness("n2 is gone", 50*time.Millisecond)
		b.begin("n2")
		time.Sleep(10 * time.Second)
		lateness("n2 is back", 50*time.Millisecond)

		b.ringers["n3"].rope.freeze()
		time.Sleep(6 * time.Second)
		lateness("n3 is frozen", most)
		time.Sleep(10 * time.Second)
		lateness("n3 is frozen and its lease has expired", 50*time.Millisecond)
		b.ringers["n3"].rope.thaw()
		time.Sleep(10 * time.Second)
		lateness("n3 was thawed", 50*time.Millisecond)

		b.leave("n4")
		time.Sleep(10 * time.Second)
		lateness("n4 was stopped", 200*time.Millisecond)

		first := b.ringers["n1"]
		if term, _ := first.Leading(); term == 0 {
			t.Fatal("n1 does not lead")
		}
		b.kill("n1")
		time.Sleep(6 * time.Second)
		lateness("n1 led and was killed", most)
		b.begin("n1")
		b.begin("n5")
		time.Sleep(10 * time.Second)
		lateness("n1 is back, and n5 is new", 50*time.Millisecond)
		for name, g := range b.ringers {
			var fires int
			for _, f := range g.Shares() {
				if f.Here {
					fires = f.Jobs
				}
			}
			if fires == 0 {
				t.Errorf("%s fires nothing", name)
			}
		}
	})
}

// A member that does not know of a pause, or of an edit, fires nothing by the old revision: its fire names that
// revision, and is refused.
func TestAMemberWithAnOldRevisionFiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBelfry(t)
		defer b.close()
		b.begin("n1")
		b.begin("n2")
		keys := b.cast(24, "0 * * * * *")
		time.Sleep(2*time.Minute + 59*time.Second)
		synctest.Wait()
		var theirs []jobs.Key
		for _, key := range keys {
			runs := b.runs(key)
			if len(runs) != 2 {
				t.Fatalf("%s has %d runs", key, len(runs))
			}
			if runs[0].Moves[0].By == "member:n2" {
				theirs = append(theirs, key)
			}
		}
		if len(theirs) < 2 {
			t.Fatalf("n2 fires %v of %v", theirs, keys)
		}
		n2 := b.ringers["n2"].rope
		n2.deaf.Store(true)
		paused, edited := theirs[0], theirs[1]
		b.must(kernel.Pause{Key: paused})
		b.must(kernel.Edit{Key: edited, Set: kernel.Settings{Schedule: new("30 * * * * *")}})
		time.Sleep(time.Second + 500*time.Millisecond)
		synctest.Wait()
		for _, key := range theirs[2:] {
			if runs := b.runs(key); len(runs) != 3 || runs[0].Moves[0].By != "member:n2" {
				t.Errorf("n2 does not fire %s: this shows nothing", key)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		n2.deaf.Store(false)
		time.Sleep(2*time.Minute + 5*time.Second)
		synctest.Wait()
		if runs := b.runs(paused); len(runs) != 2 {
			t.Errorf("a paused job has %d runs, and had 2", len(runs))
		}
		if m := b.ledger(paused); len(m) != 1 || m[0].Reason != kernel.MissedPaused || m[0].Count != 4 {
			t.Errorf("the ledger of a paused job: %v", m)
		}
		var due []int
		for _, run := range b.runs(edited) {
			due = append(due, run.Due.Second())
		}
		if !slices.Equal(due, []int{30, 30, 30, 0, 0}) {
			t.Errorf("an edited job was fired at the seconds %v, newest first", due)
		}
	})
}

// Two processes of one name have one share, which each fires; nothing is fired twice, and the log reports it. One that
// is started again under its name is not reported.
func TestMembersOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBelfry(t)
		defer b.close()
		b.begin("n1")
		b.begin("n2")
		keys := b.cast(12, "* * * * * *")
		time.Sleep(3 * time.Second)
		b.kill("n2")
		b.begin("n2")
		time.Sleep(5 * time.Second)
		const want = "another process fires under this name"
		if n := b.logged.count(want); n != 0 {
			t.Errorf("the log has %d times: %s", n, want)
		}
		b.begin("n2")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := b.logged.count(want); n == 0 || n > 2 {
			t.Errorf("the log has %d times: %s", n, want)
		}
		for _, key := range keys {
			if n := len(b.strokes(key)); n < 26 {
				t.Errorf("%s has fired %d times", key, n)
			}
		}
	})
}
