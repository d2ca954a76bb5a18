package metastore

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// slow is a committer that takes a second, or as long as it is told, and remembers how large its commits were, and how many ran at a time.
type slow struct {
	enter         chan struct{} // holds one token: its holder may access the rest
	sizes         []int
	running, peak int
	takes         time.Duration
}

func (s *slow) commit(batch []kernel.Envelope) []Result {
	<-s.enter
	s.sizes = append(s.sizes, len(batch))
	s.running++
	s.peak = max(s.peak, s.running)
	s.enter <- struct{}{}
	time.Sleep(s.takes)
	<-s.enter
	s.running--
	s.enter <- struct{}{}
	results := make([]Result, len(batch))
	for i := range batch { // answers carry the ID of their command
		results[i].Err = kernel.Refuse(jobs.Conflict, "%s", batch[i].Actor)
	}
	return results
}

func newSlow() *slow {
	s := &slow{enter: make(chan struct{}, 1), takes: time.Second}
	s.enter <- struct{}{}
	return s
}

func letters(actor string, n int) []kernel.Envelope {
	batch := make([]kernel.Envelope, n)
	for i := range batch {
		batch[i].Actor = actor
	}
	return batch
}

func TestGroupSharesCommits(t *testing.T) {
	for _, tt := range []struct {
		name    string
		callers int
		each    int
		took    time.Duration
		commits int
		peak    int
	}{
		{"one alone does not wait", 1, 1, time.Second, 1, 1},
		{"small ones wait for the one in flight, and go together", 12, 1, 2 * time.Second, 2, 1},
		{"a large one does not wait for it", 4, 40, 2 * time.Second, 3, 2},
		{"no commit is larger than it may be", 5, 60, 3 * time.Second, 5, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSlow()
				g := NewGroup(100, 2, s.commit)
				begin := time.Now()
				done := make(chan struct{})
				for i := range tt.callers {
					actor := string(rune('a' + i))
					go func() {
						defer func() { done <- struct{}{} }()
						for _, r := range g.Apply(t.Context(), letters(actor, tt.each)) {
							if r.Err.Error() != actor {
								t.Errorf("%s got the answer of %s", actor, r.Err)
							}
						}
					}()
					synctest.Wait() // in this order
				}
				for range tt.callers {
					<-done
				}
				if took := time.Since(begin); took != tt.took || len(s.sizes) != tt.commits || s.peak != tt.peak {
					t.Errorf("took %v in commits of %v, %d at a time; want %v, %d commits, %d at a time", took, s.sizes, s.peak, tt.took, tt.commits, tt.peak)
				}
			})
		})
	}
}

func TestGroupReportsUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(100, 1, newSlow().commit)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if r := g.Apply(ctx, letters("a", 2)); jobs.CodeOf(r[0].Err) != jobs.Unknown || jobs.CodeOf(r[1].Err) != jobs.Unknown {
			t.Errorf("a caller that gave up gets %v", r[0].Err)
		}
		if r := g.Apply(ctx, letters("a", 1)); jobs.CodeOf(r[0].Err) != jobs.Unavailable {
			t.Errorf("a caller without time gets %v", r[0].Err)
		}
		time.Sleep(2 * time.Second)
	})
}

// What is committed after its caller has given up is passed on all the same, in one piece, and what was taken back is not.
func TestGroupPassesOnWhatCallersDidNotWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(2, 1, newSlow().commit)
		late := make(chan string, 9)
		begin := func(actor string, n int, patience time.Duration) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				g.Apply(WithLate(ctx, func(batch []kernel.Envelope, results []Result) {
					if len(results) != n || jobs.CodeOf(results[n-1].Err) != jobs.Conflict {
						t.Errorf("%s: results %v", actor, results)
					}
					late <- batch[0].Actor
				}), letters(actor, n))
			}()
			synctest.Wait()
		}
		begin("gave up", 1, time.Second/2)
		begin("waited", 2, time.Minute)
		begin("gave up in the second", 2, 2*time.Second+time.Second/2)
		begin("was taken back", 2, time.Second+time.Second/2)
		time.Sleep(10 * time.Second)
		var got []string
		for len(late) > 0 {
			got = append(got, <-late)
		}
		if !slices.Equal(got, []string{"gave up", "gave up in the second"}) {
			t.Errorf("passed on: %q", got)
		}
	})
}

// While commits stall, a tenant that sends without end is refused, and others are not.
func TestAFullQueueHasRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		hangs := make(chan struct{})
		g := NewGroup(most, 1, func(batch []kernel.Envelope) []Result {
			<-hangs
			return make([]Result, len(batch))
		})
		send := func(tenant jobs.Tenant) <-chan error {
			answer := make(chan error, 1)
			batch := letters("", 1)
			batch[0].Tenant = tenant
			patience, cancel := context.WithTimeout(t.Context(), time.Minute)
			go func() { defer cancel(); answer <- g.Apply(patience, batch)[0].Err }()
			synctest.Wait()
			return answer
		}
		var greedy []<-chan error
		for range 2 * maxQueued * most {
			greedy = append(greedy, send("greedy"))
		}
		modest := send("modest")
		close(hangs)
		if err := <-modest; err != nil {
			t.Errorf("the request of another tenant: %v", err)
		}
		refused := 0
		for _, answer := range greedy {
			if err := <-answer; kernel.BoundReached(err) == kernel.BoundCommitQueue {
				refused++
			}
		}
		if want := 2*maxQueued*most - maxQueued*most/2; refused < want-1 || refused > want {
			t.Errorf("%d requests of the greedy tenant are refused, want %d", refused, want)
		}
	})
}

// While a commit stalls, as on a disk that hangs, the queue is bounded, and shares without a waiting caller are not
// committed.
func TestGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		hangs := make(chan struct{})
		var committed []string
		g := NewGroup(most, 1, func(batch []kernel.Envelope) []Result {
			<-hangs
			for _, e := range batch {
				committed = append(committed, e.Actor)
			}
			return make([]Result, len(batch))
		})
		patience, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		apply := func(ctx context.Context, actor string, n int) <-chan error {
			answer := make(chan error, 1)
			go func() { answer <- g.Apply(ctx, letters(actor, n))[0].Err }()
			synctest.Wait()
			return answer
		}
		underWay := apply(patience, "under way", 1)
		var waiting []<-chan error
		for range maxQueued / 2 {
			waiting = append(waiting, apply(patience, "gave up", most))
		}
		err := <-apply(patience, "too many", 1)
		if jobs.CodeOf(err) != jobs.Exhausted || !strings.Contains(err.Error(), "160 commands wait to be committed, 160 of them") {
			t.Errorf("one too many is answered %v", err)
		}
		time.Sleep(time.Minute)
		if err := <-underWay; jobs.CodeOf(err) != jobs.Unknown {
			t.Errorf("the share under way gets %v", err)
		}
		for _, answer := range waiting {
			if err := <-answer; jobs.CodeOf(err) != jobs.Unavailable {
				t.Errorf("the waiting share gets %v", err)
			}
		}
		// There is room again, for a batch of any size.
		large := apply(t.Context(), "large", 2*maxQueued*most)
		close(hangs)
		if err := <-large; err != nil {
			t.Error(err)
		}
		if len(committed) != 1+2*maxQueued*most || slices.Contains(committed, "gave up") {
			t.Errorf("%d commands were committed, of %v", len(committed), slices.Compact(committed))
		}
	})
}

// A caller commits what waits with it, not what comes later: others go on with that.
func TestGroupCallerIsNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		g := NewGroup(10, 1, s.commit)
		began := time.Now()
		took := make(chan time.Duration, 3)
		for i := range 3 {
			go func() {
				g.Apply(context.Background(), letters("c", 10))
				took <- time.Since(began)
			}()
			time.Sleep(time.Duration(i+1) * time.Millisecond)
		}
		for i := range 3 {
			if d := <-took; d != time.Duration(i+1)*time.Second {
				t.Errorf("caller %d was answered after %v", i, d)
			}
		}
		if !slices.Equal(s.sizes, []int{10, 10, 10}) {
			t.Errorf("commits of %v commands", s.sizes)
		}
		for i := range 2 {
			synctest.Wait() // it is at rest
			if g.Apply(context.Background(), letters("again", 1)); len(s.sizes) != 4+i {
				t.Errorf("commits of %v commands", s.sizes)
			}
		}
	})
}

// A tenant that sends little waits for two commits at most, however much another one has sent; commits are short then,
// and long again when the other one is alone.
func TestGroupTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.takes = 10 * time.Millisecond
		g := NewGroup(1000, 2, s.commit)
		of := func(tenant jobs.Tenant, n int) []kernel.Envelope {
			batch := letters(string(tenant), n)
			for i := range batch {
				batch[i].Tenant = tenant
			}
			return batch
		}
		done := make(chan struct{})
		apply := func(batch []kernel.Envelope) {
			go func() {
				for i, r := range g.Apply(context.Background(), batch) {
					if r.Err == nil || r.Err.Error() != batch[i].Actor {
						t.Errorf("command %d of %s got the answer of %v", i, batch[i].Actor, r.Err)
					}
				}
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		apply(of("quiet", 1))
		<-done
		const flood = 8
		for range flood {
			apply(of("loud", 500))
		}
		for range 3 {
			began := time.Now()
			apply(of("quiet", 1))
			<-done // nothing of the flood has been answered whole by then
			if took := time.Since(began); took > 3*s.takes {
				t.Errorf("a tenant waited %v, while commits take %v; their sizes: %v", took, s.takes, s.sizes)
			}
		}
		for range flood {
			<-done
		}
		if len(s.sizes) < 30 || slices.Max(s.sizes[:30]) > 3*fairPart {
			t.Errorf("commits have %v commands while tenants take turns", s.sizes)
		}
		time.Sleep(2 * fairFor)
		before := len(s.sizes)
		apply(of("loud", 900))
		<-done
		if len(s.sizes) != before+1 {
			t.Errorf("a tenant that is alone again has commits of %v", s.sizes[before:])
		}
	})
}

// The commands of one batch are committed in their order, in whatever commits.
func TestGroupKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int
		var commits atomic.Int64
		g := NewGroup(1000, 2, func(batch []kernel.Envelope) []Result {
			time.Sleep(time.Second - time.Duration(commits.Add(1))*time.Millisecond) // each overtakes one that began before
			for _, e := range batch {
				if e.Actor == "first" {
					order = append(order, int(e.ID[0])<<8|int(e.ID[1]))
				}
			}
			return make([]Result, len(batch))
		})
		g.Apply(t.Context(), []kernel.Envelope{{Tenant: "quiet"}})
		batch := make([]kernel.Envelope, 300)
		for i := range batch {
			batch[i] = kernel.Envelope{Tenant: "loud", Actor: "first", ID: jobs.ID{byte(i >> 8), byte(i)}}
		}
		var both sync.WaitGroup
		both.Go(func() { g.Apply(t.Context(), batch) })
		synctest.Wait()
		both.Go(func() { g.Apply(t.Context(), []kernel.Envelope{{Tenant: "loud"}}) }) // has a second commit under way
		both.Wait()
		if len(order) != len(batch) || !slices.IsSorted(order) {
			t.Errorf("the commands were committed in the order %v", order)
		}
	})
}
