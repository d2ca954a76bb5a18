package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// fixture is a store with a job "j", whose responses a test can replace.
type fixture struct {
	metastore.Store
	t    *testing.T
	node bus.Bus
	bus  bus.Bus

	mu      sync.Mutex
	between func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result
	batches []int // sizes
	looks   int   // at single runs
	schemas int   // reads of jobs
	down    bool  // reads are refused
}

func newFixture(t *testing.T) *fixture {
	hub := membus.New()
	d := &fixture{
		Store: memstore.Open(memstore.Config{}), t: t,
		node: hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}),
		bus:  hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "shop"}),
	}
	t.Cleanup(func() { _, _ = d.node.Close(), d.bus.Close() })
	d.do(kernel.Register{App: "default", Worker: "w-1", Start: true, Job: kernel.Declaration{Key: "j", Kind: kernel.Triggered}})
	return d
}

func (d *fixture) open() *client.Client {
	c := client.New(d, d.bus, client.Config{})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// do applies a command as another client, and signals the change.
func (d *fixture) do(k kernel.Command) *kernel.Run {
	d.t.Helper()
	r := d.Store.Apply(context.Background(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]
	if r.Err != nil {
		d.t.Fatal(r.Err)
	}
	return r.Run()
}

func (d *fixture) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, len(batch))
	apply := func() []metastore.Result { return d.Store.Apply(ctx, batch) }
	if d.between != nil {
		return d.between(batch, apply)
	}
	return apply()
}

func (d *fixture) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	d.mu.Lock()
	d.looks++
	down := d.down
	d.mu.Unlock()
	if down {
		return nil, kernel.Refuse(jobs.Unavailable, "no leader")
	}
	return d.Store.Run(ctx, tenant, id)
}

func (d *fixture) signal(c bus.Changes) {
	if err := d.node.Signal(context.Background(), bus.Signal{Topic: bus.TopicLive, Tenant: jobs.DefaultTenant, Data: bus.Encode(c)}); err != nil {
		d.t.Error(err)
	}
}

type args struct{ N int }

const job = jobs.Trigger[args]("j")

func TestEnqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFixture(t).open()
		first, err := job.Enqueue(t.Context(), c, args{1}, jobs.After(time.Hour), jobs.Unique("c7"))
		if err != nil || first.State != jobs.Scheduled || first.Duplicate || !first.Due.Equal(time.Now().Add(time.Hour)) {
			t.Fatalf("first is %+v, %v", first, err)
		}
		second, err := job.Enqueue(t.Context(), c, args{2}, jobs.Unique("c7"))
		if err != nil || second.ID != first.ID || !second.Duplicate {
			t.Errorf("second is %+v, %v", second, err)
		}
		run, err := c.Get(t.Context(), first.ID)
		if err != nil || run.Actor != "client:client" || string(run.Args) != `{"N":1}` {
			t.Errorf("the run is %+v, %v", run, err)
		}
		if _, err = jobs.Trigger[args]("unheard-of").Enqueue(t.Context(), c, args{}); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a job that is not there: %v", err)
		}
		runs, err := c.Enqueue(t.Context(), jobs.Request{Key: "j"})
		if err != nil || runs[0].ID.IsZero() {
			t.Errorf("a request without an ID: %+v, %v", runs, err)
		}
		if runs, err = c.Enqueue(t.Context()); err != nil || len(runs) != 0 {
			t.Errorf("no requests: %v, %v", runs, err)
		}
	})
}

// A run whose outcome is unknown keeps its ID, and enqueueing it again under that ID finds the run that was made.
func TestEnqueueAgainUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		c := d.open()
		d.between = func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			apply()
			return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
		}
		lost, err := job.Enqueue(t.Context(), c, args{1})
		if !errors.Is(err, jobs.Unknown) || lost.ID.IsZero() || lost.Key != "j" || lost.State != kernel.New {
			t.Fatalf("without an answer: %+v, %v", lost, err)
		}
		d.between = nil
		time.Sleep(2 * time.Minute) // longer than commands are remembered
		again, err := job.Enqueue(t.Context(), c, args{1}, jobs.WithID(lost.ID))
		if err != nil || again.ID != lost.ID || again.State != jobs.Enqueued || again.Duplicate {
			t.Errorf("again: %+v, %v", again, err)
		}
		if counts, err := d.Store.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant}); err != nil || counts.Live[jobs.Enqueued] != 1 {
			t.Errorf("runs are %v, %v", counts.Live, err)
		}
	})
}

// A bulk goes in commits of at most a thousand runs and half a megabyte, in order.
func TestABulkIsCutIntoBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		c := d.open()
		all := make([]args, 2500)
		for i := range all {
			all[i].N = i
		}
		runs, err := job.EnqueueAll(t.Context(), c, all)
		if err != nil || fmt.Sprint(d.batches) != "[1000 1000 500]" {
			t.Fatalf("batches of %v, %v", d.batches, err)
		}
		run, err := c.Get(t.Context(), runs[2100].ID)
		if err != nil || string(run.Args) != `{"N":2100}` {
			t.Errorf("run 2100 has %s, %v", run.Args, err)
		}
		d.batches = nil
		large := jobs.Request{Key: "j", Args: []byte(`{"x":"` + strings.Repeat("x", 200<<10) + `"}`)}
		if _, err := c.Enqueue(t.Context(), large, large, large, large, large); err != nil || fmt.Sprint(d.batches) != "[2 2 1]" {
			t.Errorf("large ones went in batches of %v, %v", d.batches, err)
		}
	})
}

// A bulk with an invalid request is refused whole, before anything is sent; the error has the request's place.
func TestABadBulkIsRefusedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		c := d.open()
		requests := make([]jobs.Request, 1500)
		for i := range requests {
			requests[i] = jobs.Request{Key: "j"}
		}
		requests[1234].Args = []byte("7")
		_, err := c.Enqueue(t.Context(), requests...)
		if !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "number 1234") || len(d.batches) > 0 {
			t.Errorf("error is %v, %d batches were sent", err, len(d.batches))
		}
		_, err = c.Enqueue(t.Context(), make([]jobs.Request, kernel.MaxBulk+1)...)
		if !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "100001") {
			t.Errorf("too many: %v", err)
		}
		_, err = c.Enqueue(t.Context(), jobs.Request{Key: "a b"})
		if !errors.Is(err, jobs.BadInput) || strings.Contains(err.Error(), "number 0") {
			t.Errorf("a single one: %v", err)
		}
	})
}

// A bulk's error names the runs that the store refused; the others are enqueued.
func TestABulkIsDoneInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFixture(t).open()
		runs, err := c.Enqueue(t.Context(), jobs.Request{Key: "j"}, jobs.Request{Key: "unheard-of"}, jobs.Request{Key: "j"}, jobs.Request{Key: "unheard-of"})
		var bulk *client.BulkError
		if !errors.As(err, &bulk) || bulk.Total != 4 || len(bulk.Failed) != 2 || !errors.Is(bulk.Failed[3], jobs.NotFound) || !errors.Is(err, jobs.NotFound) {
			t.Fatalf("error is %v", err)
		}
		if !strings.Contains(err.Error(), "2 of 4 runs were not enqueued, the first is number 1") {
			t.Errorf("error is %v", err)
		}
		if runs[0].State != jobs.Enqueued || runs[1].State != kernel.New || runs[2].State != jobs.Enqueued {
			t.Errorf("runs are %+v", runs)
		}
	})
}

// A request without a response is sent again unchanged, and makes no second run; after 30 s the client gives up.
func TestLostAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		done bool // what has no answer was done
		code jobs.Code
		lost int // answers
		want error
	}{
		{"done, then answered", true, jobs.Unknown, 3, nil},
		{"not done, then answered", false, jobs.Unavailable, 3, nil},
		{"never answered", true, jobs.Unknown, 1000, jobs.Unknown},
		{"never done", false, jobs.Unavailable, 1000, jobs.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				cl := d.open()
				tries := 0
				seen := map[jobs.ID]bool{}
				d.between = func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
					seen[batch[0].ID] = true
					if tries++; tries <= c.lost {
						if c.done {
							apply()
						}
						return metastore.Refused(batch, kernel.Refuse(c.code, "%s: no answer", c.code)) // as stores say it
					}
					return apply()
				}
				began := time.Now()
				run, err := job.Enqueue(t.Context(), cl, args{1})
				if took := time.Since(began); c.want == nil && took > time.Second || took > 31*time.Second {
					t.Errorf("took %v", took)
				}
				if c.want != nil && (!errors.Is(err, c.want) || jobs.CodeOf(err) != c.want || !strings.Contains(err.Error(), "no answer")) {
					t.Errorf("error is %v, want %v", err, c.want)
				}
				if c.want == jobs.Unknown && !strings.HasSuffix(err.Error(), "outcome unknown: no response in time: no answer") {
					t.Errorf("an unknown outcome: %v", err)
				}
				if c.want == nil && (err != nil || run.Duplicate) {
					t.Errorf("run is %+v, %v", run, err)
				}
				if len(seen) != 1 || tries > 100 {
					t.Errorf("%d tries with %d envelopes, want the same one again and again", tries, len(seen))
				}
				p, err := d.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant})
				want := 1
				if c.want == jobs.Unavailable {
					want = 0
				}
				if err != nil || len(p.Runs) != want {
					t.Errorf("there are %d runs, want %d", len(p.Runs), want)
				}
			})
		})
	}
}

// A caller that gives up before the client does learns for how long its request may yet be stored.
func TestAnUnknownOutcomeSaysUntilWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		c := d.open()
		d.between = func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			return metastore.Refused(batch, kernel.OutcomeUnknown("no answer"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := job.Enqueue(ctx, c, args{1}); !errors.Is(err, jobs.Unknown) || !strings.Contains(err.Error(), "no response in time (it may yet be stored within 27s): ") {
			t.Errorf("error is %v", err)
		}
	})
}

// Without a response, a bulk fails as soon as a single run would; the error separates runs that were not sent.
func TestBulkWithoutResponse(t *testing.T) {
	for _, code := range []jobs.Code{jobs.Unavailable, jobs.Unknown} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				c := d.open()
				first := true
				d.between = func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
					if first { // what was done before stays done
						first = false
						return apply()
					}
					return metastore.Refused(batch, kernel.Refuse(code, "no answer"))
				}
				began := time.Now()
				runs, err := job.EnqueueAll(t.Context(), c, make([]args, 4500))
				if took := time.Since(began); took > 31*time.Second {
					t.Errorf("took %v", took)
				}
				var bulk *client.BulkError
				if !errors.As(err, &bulk) || len(bulk.Failed) != 3500 || runs[999].State != jobs.Enqueued {
					t.Fatalf("error is %v", err)
				}
				if err := bulk.Failed[1999]; jobs.CodeOf(err) != code || strings.Contains(err.Error(), "not sent") {
					t.Errorf("what was sent: %v, want %v", err, code)
				}
				last := bulk.Failed[4499]
				if jobs.CodeOf(last) != jobs.Unavailable || !strings.Contains(last.Error(), "not sent") || runs[4499].ID.IsZero() {
					t.Errorf("what was not: %v", last)
				}
			})
		})
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		name string
		news *bus.Changes // the signal when the run is finished; nil = none
		most time.Duration
	}{
		{"named", &bus.Changes{}, 0},
		{"one of many", &bus.Changes{Many: true}, 250 * time.Millisecond},
		{"no signal", nil, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t)
				cl := d.open()
				run, err := job.Enqueue(t.Context(), cl, args{1})
				if err != nil {
					t.Fatal(err)
				}
				var over time.Time
				go func() {
					time.Sleep(time.Hour)
					d.do(kernel.Start{ID: run.ID, Worker: "w-1", Attempt: 1})
					d.do(kernel.Finish{ID: run.ID, Worker: "w-1", Attempt: 1, Outcome: kernel.OutcomeSuccess, Result: []byte("7")})
					over = time.Now()
					if c.news != nil {
						if !c.news.Many {
							c.news.Runs = []jobs.ID{run.ID}
						}
						d.signal(*c.news)
					}
				}()
				r, err := cl.Wait(t.Context(), run.ID)
				if err != nil || r.State != jobs.Succeeded || string(r.Result) != "7" {
					t.Fatalf("run is %+v, %v", r, err)
				}
				synctest.Wait()
				if late := time.Since(over); late > c.most {
					t.Errorf("known %v after it was over, want %v at most", late, c.most)
				}
				if d.looks > 730 {
					t.Errorf("%d looks in an hour", d.looks)
				}
			})
		})
	}
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		cl := d.open()
		run, err := job.Enqueue(t.Context(), cl, args{1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Wait(t.Context(), jobs.ID{}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("an empty ID: %v", err)
		}
		if _, err := cl.Wait(t.Context(), jobs.NewID(time.Now())); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d.down = true // a store that is away is waited for
		if _, err := cl.Wait(ctx, run.ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("patience is over: %v", err)
		}
		d.down = false
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := cl.Wait(t.Context(), run.ID)
				ended <- err
			}()
		}
		synctest.Wait()
		if err := errors.Join(cl.Close(), cl.Close()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, client.ErrClosed) {
				t.Errorf("the client was closed: %v", err)
			}
		}
		if _, err := cl.Wait(t.Context(), run.ID); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a closed client waits: %v", err)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		cl := client.New(d, nil, client.Config{Actor: "client:shop"})
		defer cl.Close()
		run, err := job.Enqueue(t.Context(), cl, args{1})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := cl.Cancel(t.Context(), run.ID, "a mistake"); err != nil {
				t.Fatal(err)
			}
		}
		r, err := cl.Wait(t.Context(), run.ID) // without signals
		if failed, ok := errors.AsType[*jobs.RunError](err); !ok || r.State != jobs.Cancelled || failed.Run.ID != run.ID ||
			!strings.HasSuffix(err.Error(), " of j is Cancelled: cancelled by client:shop: a mistake") {
			t.Fatalf("run is %+v, %v", r, err)
		}
		if err := cl.Cancel(t.Context(), jobs.NewID(time.Now()), ""); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
	})
}
