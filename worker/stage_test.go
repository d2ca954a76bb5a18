package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// stage is what a worker needs around it: a store, a bus, and a leader that the test controls. It records all that the
// worker sends.
type stage struct {
	t     *testing.T
	hub   *membus.Hub
	store metastore.Full
	node  bus.Bus
	queue string
	most  int // the bytes of a call that workers can make; 0 = as many as the hub carries

	mu         sync.Mutex
	silent     bool        // the leader answers no heartbeats
	refuses    error       // the leader refuses heartbeats, for this
	forgot     bool        // the leader answers once that it does not know the worker
	quiet      bool        // nothing is offered by itself
	stops      []bus.Stop  // sent with the next heartbeat's answer
	between    interceptor // sits between the worker and the store
	heartbeats []bus.Heartbeat
	back       []bus.Offer
	lines      []metastore.LogLine
	commands   []kernel.Command // that reached the store
	at         []time.Time      // when
}

// interceptor may answer a batch in the store's place, or change the store's answer.
type interceptor func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result

func newStage(t *testing.T) *stage {
	s := &stage{t: t, hub: membus.New(), store: memstore.Open(memstore.Config{})}
	s.node = s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})
	t.Cleanup(func() { _ = s.node.Close() })
	var err error
	if s.queue, err = s.node.Open(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	s.must(s.node.Serve(t.Context(), bus.ServiceHeartbeat, s.answer))
	s.must(s.node.Listen(t.Context(), "*", bus.TopicBack, "", func(sig bus.Signal) {
		b, err := bus.Decode[bus.Back](sig.Data)
		s.must(err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.back = append(s.back, b.Offers...)
	}))
	s.must(s.node.Listen(t.Context(), "*", bus.TopicLog, "", func(sig bus.Signal) {
		lines, err := metastore.DecodeLogLines(sig.Data)
		s.must(err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, lines...)
	}))
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

// answer is the leader's answer to a heartbeat.
func (s *stage) answer(_ context.Context, _ bus.Principal, raw []byte) ([]byte, error) {
	b, err := bus.Decode[bus.Heartbeat](raw)
	s.must(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heartbeats = append(s.heartbeats, b)
	if s.silent {
		return nil, kernel.Refuse(jobs.Unavailable, "no leader")
	}
	if s.refuses != nil {
		return nil, s.refuses
	}
	a := bus.HeartbeatAnswer{Queue: s.queue, Lease: 15_000, Unknown: s.forgot && b.Info == nil, Stop: s.stops}
	s.stops = nil
	if b.Info != nil {
		s.forgot = false
	}
	return bus.Encode(a), nil
}

// Apply is the store as the worker has it.
func (s *stage) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if err := ctx.Err(); err != nil {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "%v", err))
	}
	s.mu.Lock()
	between := s.between
	s.mu.Unlock()
	apply := func() []metastore.Result { return s.apply(batch) }
	if between != nil {
		return between(batch, apply)
	}
	return apply()
}

// apply applies, remembers, and offers what can be claimed.
func (s *stage) apply(batch []kernel.Envelope) []metastore.Result {
	results := s.store.Apply(context.Background(), batch)
	s.mu.Lock()
	for _, e := range batch {
		s.commands, s.at = append(s.commands, e.Command), append(s.at, time.Now())
	}
	quiet := s.quiet
	s.mu.Unlock()
	if quiet {
		return results
	}
	for _, r := range results {
		for _, run := range r.Runs {
			if r.Err == nil && !r.Existing && run.Offerable() {
				s.offer(offerOf(run))
			}
		}
	}
	return results
}

func offerOf(run *kernel.Run) bus.Offer {
	return bus.Offer{ID: run.ID, Attempt: run.Next(), Key: run.Key}
}

// offer puts a list on the shared lane.
func (s *stage) offer(list ...bus.Offer) {
	s.must(s.node.Offer(context.Background(), s.queue, bus.Lane{Tenant: jobs.DefaultTenant, App: "default"}, list))
}

// offerTo offers a list to one worker.
func (s *stage) offerTo(w *worker.Worker, list ...bus.Offer) {
	s.must(s.node.Hand(context.Background(), bus.Lane{Tenant: jobs.DefaultTenant, App: "default", Worker: w.Name()}, list))
}

// new makes a worker of the stage.
func (s *stage) new(cfg worker.Config, js ...jobs.Job) *worker.Worker {
	s.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "w"
	}
	end := s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: cfg.Name})
	s.t.Cleanup(func() { _ = end.Close() })
	if s.most > 0 {
		end = narrow{end, s.most}
	}
	w, err := worker.New(cfg, s, end, js...)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// narrow is a bus that carries less.
type narrow struct {
	bus.Bus
	most int
}

func (n narrow) Limit() int { return n.most }

func (n narrow) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if len(request) > n.most {
		return nil, kernel.Invalid("a request of %d bytes: the limit is %d", len(request), n.most)
	}
	return n.Bus.Call(ctx, service, request)
}

// start runs a worker and waits until it is at work. stop ends it, and waits until Run has returned.
func (s *stage) start(cfg worker.Config, js ...jobs.Job) (w *worker.Worker, stop func()) {
	s.t.Helper()
	w = s.new(cfg, js...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	stop = sync.OnceFunc(func() {
		cancel()
		s.must(<-ended)
	})
	s.t.Cleanup(stop)
	return w, stop
}

// create makes a run, which is offered unless the stage is quiet.
func (s *stage) create(key jobs.Key, args any, how ...jobs.EnqueueOption) jobs.ID {
	s.t.Helper()
	request, err := jobs.Trigger[any](key).Request(args, how...)
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.apply([]kernel.Envelope{s.envelope(kernel.CreateOf(request))})[0]
	if r.Err != nil {
		s.t.Fatal(r.Err)
	}
	return request.ID
}

func (s *stage) envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}
}

// do applies a command that is not the worker's.
func (s *stage) do(k kernel.Command) *kernel.Run {
	s.t.Helper()
	r := s.apply([]kernel.Envelope{s.envelope(k)})[0]
	if r.Err != nil {
		s.t.Fatalf("%s: %v", k.Verb(), r.Err)
	}
	return r.Run()
}

// stop sends a worker the request to end an attempt, over the bus.
func (s *stage) stop(w *worker.Worker, stop bus.Stop) {
	s.must(s.node.Signal(context.Background(), bus.Signal{Topic: bus.TopicCancel, Tenant: jobs.DefaultTenant, To: w.Name(), Data: bus.Encode(stop)}))
}

// row is a run as the store has it.
func (s *stage) row(id jobs.ID) *kernel.Run {
	s.t.Helper()
	run, err := s.store.Run(context.Background(), jobs.DefaultTenant, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// wantState waits until all that can happen now has happened, and compares a run's state.
func (s *stage) wantState(id jobs.ID, want jobs.State, cause kernel.Cause) *kernel.Run {
	s.t.Helper()
	synctest.Wait()
	run := s.row(id)
	if run.State != want || run.Cause != cause {
		s.t.Errorf("run is %s (%s), want %s (%s); its error is %.300q", run.State, run.Cause, want, cause, run.Error)
	}
	return run
}

// sent are the commands of one kind that reached the store.
func sent[T kernel.Command](s *stage) (list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.commands {
		if k, ok := k.(T); ok {
			list = append(list, k)
		}
	}
	return list
}

// intercept puts fn between the worker and the store; nil takes it away.
func (s *stage) intercept(fn interceptor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = fn
}

// set changes what the leader does.
func (s *stage) set(fn func(*stage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(s)
}

func (s *stage) lastHeartbeat() bus.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.heartbeats) == 0 {
		return bus.Heartbeat{}
	}
	return s.heartbeats[len(s.heartbeats)-1]
}

// unavailable answers everything of one verb as not done; 0 = of all.
func unavailable(v kernel.Verb) interceptor {
	return func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
		if v == 0 || batch[0].Command.Verb() == v {
			return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "the store is away"))
		}
		return apply()
	}
}

// handler is a triggered job named "j" that takes any arguments.
func handler(o jobs.Options, fn func(ctx context.Context, args json.RawMessage) error) jobs.Job {
	if o.Key == "" {
		o.Key = "j"
	}
	if o.RetryDelay == 0 { // the stage has no clock that releases retries
		o.RetryDelay = jobs.None
	}
	return jobs.NewTriggered(jobs.TriggeredFunc[json.RawMessage](fn), o)
}

// gate is a handler that waits until it is released, and ignores its context.
type gate struct {
	mu      sync.Mutex
	entered []context.Context
	open    chan error
}

func newGate() *gate { return &gate{open: make(chan error)} }

func (g *gate) run(ctx context.Context, _ json.RawMessage) error {
	g.mu.Lock()
	g.entered = append(g.entered, ctx)
	g.mu.Unlock()
	return <-g.open
}

// inside is how many handlers have been entered.
func (g *gate) inside() int {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.entered)
}

func (g *gate) cause(i int) error {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return context.Cause(g.entered[i])
}

// heedful waits for the end of its context and passes on why it ended.
func heedful(causes chan<- error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, _ json.RawMessage) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func wantFinished(t *testing.T, w *worker.Worker, want map[kernel.Outcome]uint64) {
	t.Helper()
	named := map[string]uint64{}
	for outcome, n := range want {
		named[outcome.String()] = n
	}
	if got := w.Stats().Finished; !maps.Equal(got, named) {
		t.Errorf("finished %v, want %v", got, named)
	}
}

// wantStateAfter is wantState, some time from now.
func (s *stage) wantStateAfter(d time.Duration, id jobs.ID, want jobs.State, cause kernel.Cause) *kernel.Run {
	s.t.Helper()
	time.Sleep(d)
	return s.wantState(id, want, cause)
}

// written are the log lines that have come so far.
func (s *stage) written() []metastore.LogLine {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// cameBack are the offers that were given back so far.
func (s *stage) cameBack() []bus.Offer {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.back)
}
