package controlplane_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// whoRan notes which worker ran what.
type whoRan struct {
	mu   sync.Mutex
	runs []ranHere
}

type ranHere struct {
	key      jobs.Key
	customer string
	worker   string // its configured name
	part     string // index/total
}

func (r *whoRan) job(o jobs.Options, takes time.Duration) jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, a charge) error {
		at := jobs.Attempt(ctx)
		index, total := jobs.Part(ctx)
		name, _, _ := strings.Cut(at.Worker, "-")
		r.mu.Lock()
		r.runs = append(r.runs, ranHere{at.Key, a.Customer, name, fmt.Sprintf("%d/%d", index, total)})
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
			return nil
		}
	}), o)
}

// all are the runs so far.
func (r *whoRan) all() []ranHere {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.runs)
}

// names are the workers that ran, in order.
func (r *whoRan) names() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.runs {
		list = append(list, x.worker)
	}
	return list
}

func (r *whoRan) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = nil
}

// fleet starts workers a, b, c ... with the same job.
func (h *fixture) fleet(names string, cfg worker.Config, list ...jobs.Job) map[string]func() {
	stops := map[string]func(){}
	for _, n := range names {
		c := cfg
		c.Name = string(n)
		stops[c.Name] = h.worker(c, list...)
	}
	return stops
}

// ask enqueues through a client, and lets a moment pass after each.
func (h *fixture) ask(key jobs.Key, customers ...string) {
	h.t.Helper()
	c := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
	defer c.Close()
	for _, who := range customers {
		if _, err := jobs.Trigger[charge](key).Enqueue(h.ctx, c, charge{who}); err != nil {
			h.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
	}
}

// over checks that each run of a job succeeded in its first attempt.
func (h *fixture) over(key jobs.Key, n int) {
	h.t.Helper()
	all := h.runs(key)
	if len(all) != n {
		h.t.Errorf("%s has %d runs, want %d", key, len(all), n)
	}
	for _, run := range all {
		if run.State != jobs.Succeeded || run.Attempt != 1 {
			h.t.Errorf("run %s is %s after %d attempts", run.ID, run.State, run.Attempt)
		}
	}
}

func inBubble(t *testing.T, fn func(t *testing.T, h *fixture, r *whoRan)) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		fn(t, h, &whoRan{})
	})
}

func want(t *testing.T, what string, got []string, list string) {
	t.Helper()
	if strings.Join(got, "") != list {
		t.Errorf("%s: ran on %s, want %s", what, strings.Join(got, ""), list)
	}
}

func TestS3_12FirstAndLast(t *testing.T) {
	for _, c := range []struct {
		route jobs.Route
		want  string
	}{{jobs.RouteFirst, "aaabb"}, {jobs.RouteLast, "cccbb"}} {
		inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
			// A slow run fills a slot: the first worker with a free one is meant.
			h.fleet("bca", worker.Config{Slots: 3}, r.job(jobs.Options{Key: "charge", Route: c.route}, time.Minute))
			h.ask("charge", "1", "2", "3", "4", "5")
			want(t, string(c.route), r.names(), c.want)
			time.Sleep(2 * time.Minute)
			h.over("charge", 5)
		})
	}
}

func TestS3_12RoundRobin(t *testing.T) { TestS3_15InTurn(t) }

// Each worker in turn, and a worker that leaves or comes changes nothing for the others.
func TestS3_15InTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge", Route: jobs.RouteRoundRobin}, 0)
		stops := h.fleet("abc", worker.Config{}, job)
		h.ask("charge", "1", "2", "3", "4", "5", "6", "7")
		want(t, "in turn", r.names(), "abcabca")
		stops["b"]()
		r.reset()
		h.ask("charge", "1", "2", "3")
		want(t, "without b", r.names(), "cac")
		h.fleet("d", worker.Config{}, job)
		r.reset()
		h.ask("charge", "1", "2", "3", "4")
		want(t, "with d", r.names(), "dacd")
		h.over("charge", 14)
	})
}

func TestS0_23Random(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.fleet("abcd", worker.Config{}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteRandom}, 0))
		h.ask("charge", slices.Repeat([]string{"x"}, 200)...)
		n := map[string]int{}
		for _, name := range r.names() {
			n[name]++
		}
		// By chance 50 each; fewer than 20 happens once in a hundred million times.
		for _, name := range []string{"a", "b", "c", "d"} {
			if n[name] < 20 {
				t.Errorf("worker %s got %d of 200 runs", name, n[name])
			}
		}
		h.over("charge", 200)
	})
}

// The same customer goes to the same worker, and when a worker leaves, only its own customers move.
func TestS3_13ConsistentHash(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge", Route: jobs.RouteHash, RouteBy: "Customer"}, 0)
		stops := h.fleet("abcde", worker.Config{}, job)
		var customers []string
		for i := range 100 {
			customers = append(customers, fmt.Sprintf("c%d", i))
		}
		homes := func() map[string]string {
			r.reset()
			h.ask("charge", customers...)
			at := map[string]string{}
			for _, x := range r.all() {
				at[x.customer] = x.worker
			}
			return at
		}
		before := homes()
		for c, w := range homes() {
			if w != before[c] {
				t.Errorf("customer %s went to %s, and then to %s", c, before[c], w)
			}
		}
		stops["c"]()
		moved := 0
		for c, w := range homes() {
			if before[c] == "c" {
				moved++
			} else if w != before[c] {
				t.Errorf("customer %s moved from %s to %s because c left", c, before[c], w)
			}
		}
		if moved == 0 {
			t.Error("c had no customer")
		}
		h.fleet("c", worker.Config{}, job) // another start of the same name has its customers again
		for c, w := range homes() {
			if w != before[c] {
				t.Errorf("customer %s is at %s after c came back, it was at %s", c, w, before[c])
			}
		}
		h.over("charge", 400)
	})
}

func TestS3_14LeastRecentAndLeastFrequent(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.fleet("abc", worker.Config{}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteLeastRecent}, 0))
		h.ask("charge", "1", "2", "3", "4", "5")
		want(t, "least recent", r.names(), "abcab")
	})
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge", Route: jobs.RouteLeastFrequent}, 0)
		h.fleet("ab", worker.Config{}, job)
		h.ask("charge", "1", "2", "3", "4")
		h.fleet("c", worker.Config{}, job)
		h.ask("charge", "5", "6", "7")
		want(t, "least frequent, a newcomer catches up", r.names(), "ababcca")
	})
}

func TestS3_14LeastFrequentOfADay(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.fleet("ab", worker.Config{}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteLeastFrequent}, 0))
		h.ask("charge", "1")
		want(t, "least frequent", r.names(), "a")
		time.Sleep(25 * time.Hour)
		h.ask("charge", "2", "3")
		want(t, "least frequent, another day", r.names(), "aab")
	})
}

// All of it goes to the first that lives, and waits for it when it is full; only when it is gone the next one has its
// turn.
func TestS3_16Failover(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge", Route: jobs.RouteFailover}, time.Minute)
		stops := h.fleet("ab", worker.Config{Slots: 1}, job)
		h.ask("charge", "1", "2")
		want(t, "failover", r.names(), "a")
		time.Sleep(time.Minute)
		want(t, "failover", r.names(), "aa")
		time.Sleep(2 * time.Minute)
		stops["a"]()
		h.ask("charge", "3")
		want(t, "failover, a is gone", r.names(), "aab")
		time.Sleep(2 * time.Minute)
		h.over("charge", 3)
	})
}

func TestS3_16Idle(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.fleet("ab", worker.Config{Slots: 8}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteIdle}, time.Minute), r.job(jobs.Options{Key: "other"}, 5*time.Minute))
		h.ask("other", "1", "2", "3", "4")
		before := len(r.names())
		h.ask("charge", "1", "2", "3")
		want(t, "idle", r.names()[before:], "ab") // runs of another job do not count; the third waits, although there are slots
		time.Sleep(time.Minute)
		want(t, "idle", r.names()[before:], "aba")
		time.Sleep(10 * time.Minute)
		h.over("charge", 3)
		h.over("other", 4)
	})
}

func TestS0_06RoutingByTags(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge", Needs: []string{"gpu", "region=eu"}}, 0)
		h.worker(worker.Config{Name: "a", Tags: []string{"gpu"}}, job)
		h.ask("charge", "1")
		if len(r.names()) > 0 {
			t.Errorf("ran on %v, which lacks region=eu", r.names())
		}
		// Runs of other jobs do not wait behind it.
		h.worker(worker.Config{Name: "b", Tags: []string{"gpu", "region=us"}}, r.job(jobs.Options{Key: "other"}, 0))
		h.ask("other", "1")
		want(t, "other", r.names(), "b")
		h.worker(worker.Config{Name: "c", Tags: []string{"region=eu", "gpu"}}, job)
		time.Sleep(time.Second)
		want(t, "tags", r.names(), "bc")
		h.over("charge", 1)
	})
}

func TestS3_04PinnedToAWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		waits, moves := r.job(jobs.Options{Key: "waits", Pin: "b"}, 0), r.job(jobs.Options{Key: "moves", Pin: "b", PinAway: jobs.PinAny}, 0)
		both := func(name string) func() { return h.worker(worker.Config{Name: name}, waits, moves) }
		both("a")
		stop := both("b")
		h.ask("waits", "1")
		h.ask("moves", "1")
		want(t, "pinned", r.names(), "bb")
		stop()
		h.ask("waits", "2")
		h.ask("moves", "2")
		want(t, "pinned, b is away", r.names(), "bba")
		both("b")
		time.Sleep(time.Second)
		want(t, "pinned, b is back", r.names(), "bbab")
		// One run may name another worker.
		request, _ := jobs.Trigger[charge]("waits").Request(charge{"3"}, jobs.OnWorker("a"))
		h.must(kernel.CreateOf(request))
		time.Sleep(time.Second)
		want(t, "on a", r.names(), "bbaba")
		h.over("waits", 3)
		h.over("moves", 2)
	})
}

var clientOf = bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "test"}

// planeLive is what its control plane knows, for ops.
type planeLive struct{ h *fixture }

func (p planeLive) Workers(tenant jobs.Tenant) (list []ops.Worker) {
	for _, m := range p.h.cp.Workers("*") {
		list = append(list, ops.Worker{WorkerInfo: m.WorkerInfo, Running: m.Running, Seen: m.Seen, Leaving: m.Leaving, Drained: m.Drained})
	}
	return list
}
func (p planeLive) Attempt(jobs.Tenant, jobs.ID) (ops.Attempt, bool) { return ops.Attempt{}, false }
func (p planeLive) Leader() ops.Leader                               { return ops.Leader{Node: "n1"} }
func (planeLive) Refusals(jobs.Tenant) []ops.Refusals                { return nil }
func (planeLive) Shares() []ops.Share                                { return nil }
func (p planeLive) Nodes() []ops.Node                                { return nil }
func (p planeLive) Pulse(jobs.Tenant) []ops.Minute                   { return nil }
func (p planeLive) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) {
	<-ctx.Done()
}

// audits are the lines of the record about targets that begin with a text, newest first.
func (h *fixture) audits(target string) (list []*kernel.Audit) {
	h.t.Helper()
	all, err := h.store.Audits(h.ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range all {
		if strings.HasPrefix(a.Target, target) {
			list = append(list, a)
		}
	}
	return list
}

// Workers come and go, jobs go by routes at random: each run is done once, by a worker that its place allows.
func TestRoutesKeepTheirRules(t *testing.T) {
	for seed := range uint64(4) {
		inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
			rnd := rand.New(rand.NewPCG(seed, 12))
			type done struct {
				worker string
				part   int
			}
			var mu sync.Mutex
			ran := map[jobs.ID][]done{}
			tags := map[string][]string{"a": {"gpu"}, "b": {"gpu", "eu"}, "c": {"eu"}, "d": nil, "e": {"gpu", "eu"}}
			var js []jobs.Job
			var keys []jobs.Key
			for i := range 12 {
				o := jobs.Options{Key: jobs.Key(fmt.Sprintf("j%d", i)), Route: kernel.Routes()[rnd.IntN(len(kernel.Routes()))], RouteBy: "Customer", Slots: rnd.IntN(3)}
				if rnd.IntN(2) == 0 {
					o.Needs = [][]string{{"gpu"}, {"eu"}, {"gpu", "eu"}}[rnd.IntN(3)]
				}
				if rnd.IntN(4) == 0 {
					o.Pin, o.PinAway = string("abe"[rnd.IntN(3)]), []jobs.PinAway{jobs.PinWait, jobs.PinAny}[rnd.IntN(2)]
				}
				keys = append(keys, o.Key)
				takes := time.Duration(rnd.IntN(300)) * time.Millisecond
				js = append(js, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
					at := jobs.Attempt(ctx)
					name, _, _ := strings.Cut(at.Worker, "-")
					mu.Lock()
					ran[at.Run] = append(ran[at.Run], done{name, at.Index})
					mu.Unlock()
					time.Sleep(takes)
					return nil
				}), o))
			}
			names := slices.Sorted(maps.Keys(tags)) // what is drawn while they start is the same again
			live := map[string]func(){}
			start := func(name string) {
				live[name] = h.worker(worker.Config{Name: name, Slots: 1 + rnd.IntN(4), Tags: tags[name]}, js...)
			}
			for _, name := range names {
				start(name)
			}
			asked := 0
			for range 60 {
				h.ask(keys[rnd.IntN(len(keys))], fmt.Sprint("c", rnd.IntN(5)))
				asked++
				if rnd.IntN(6) == 0 {
					name := string("abcde"[rnd.IntN(5)])
					if stop := live[name]; stop != nil {
						stop()
						delete(live, name)
					} else {
						start(name)
					}
				}
				time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			}
			for _, name := range names {
				if live[name] == nil {
					start(name)
				}
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			heads := 0
			for _, key := range keys {
				for _, run := range h.runs(key) {
					if run.Parent.IsZero() {
						heads++
					}
					n := ran[run.ID]
					if run.State == jobs.Skipped && run.Cause == kernel.ByNoWorker && len(n) == 0 {
						continue
					}
					if run.State != jobs.Succeeded || len(n) != 1 {
						t.Errorf("seed %d: run %s of %s is %s and ran %d times: %s", seed, run.ID, key, run.State, len(n), run.Place.Words())
						continue
					}
					if p := run.Place; p != nil {
						for _, need := range p.Needs {
							if !slices.Contains(tags[n[0].worker], need) {
								t.Errorf("seed %d: run %s needs %v and ran on %s", seed, run.ID, p.Needs, n[0].worker)
							}
						}
						if p.Pin != "" && p.PinAway == jobs.PinWait && n[0].worker != p.Pin {
							t.Errorf("seed %d: run %s is meant for %s and ran on %s", seed, run.ID, p.Pin, n[0].worker)
						}
						if n[0].part != int(p.Index) {
							t.Errorf("seed %d: part %d of %s got %d", seed, p.Index, run.ID, n[0].part)
						}
					}
				}
			}
			if heads != asked {
				t.Errorf("seed %d: %d runs, %d were asked for", seed, heads, asked)
			}
		})
	}
}

// The page of routes is right about five runs.
func TestS3_12RoutesAsTheirPageStates(t *testing.T) {
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| .+ \\| (?:`([abc]+)`)? ?\\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(kernel.Routes()) {
		t.Errorf("the page has %d routes, there are %d", len(rows), len(kernel.Routes()))
	}
	for i, row := range rows {
		if i < len(kernel.Routes()) && row[1] != string(kernel.Routes()[i]) {
			t.Errorf("route %d of the page is %s, it is %s", i, row[1], kernel.Routes()[i])
		}
		if row[2] == "" {
			continue
		}
		inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
			h.fleet("abc", worker.Config{Slots: 2}, r.job(jobs.Options{Key: "charge", Route: jobs.Route(row[1])}, time.Millisecond))
			time.Sleep(3 * time.Second)
			var ran []string
			for range 5 {
				r.reset()
				h.ask("charge", "1")
				time.Sleep(100 * time.Millisecond)
				names := r.names()
				slices.Sort(names) // parts of a broadcast begin in any order
				ran = append(ran, names...)
			}
			want(t, row[1], ran, row[2])
		})
	}
}
