package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	wrap  func(bus.Bus) bus.Bus // what workers made from now on use; nil = the hub's

	unread atomic.Pointer[error] // reads of runs by HTTP workers' nodes fail with it

	mu         sync.Mutex
	silent     bool          // the leader answers no heartbeats
	refuses    error         // the leader refuses heartbeats, for this
	forgot     bool          // the leader answers once that it does not know the worker
	quiet      bool          // nothing is started by itself
	slow       time.Duration // how long the leader takes for the answer to a goodbye
	stops      []bus.Stop    // sent with the next heartbeat's answer
	between    interceptor   // sits between the worker and the store
	heartbeats []bus.Heartbeat
	lines      []metastore.LogLine
	commands   []kernel.Command // that reached the store
	at         []time.Time      // when
	answers    []bus.PushAnswer // to the leader's own pushes

	seats   map[string]*seat // by the names of workers
	ready   []jobs.ID        // runs to start, the oldest first
	taken   map[jobs.ID]string
	leading bool // a goroutine starts runs
}

// seat is what the leader knows of a worker.
type seat struct {
	bus.Heartbeat // the last one
	app           string
	slots         int // 0 = unlimited
	refused       bool
}

// interceptor may answer a batch in the store's place, or change the store's answer.
type interceptor func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result

// lease is that of the stage's leader.
const lease = 15 * time.Second

func newStage(t *testing.T) *stage {
	s := &stage{t: t, hub: membus.New(), store: memstore.Open(memstore.Config{}), seats: map[string]*seat{}, taken: map[jobs.ID]string{}}
	s.node = s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})
	t.Cleanup(func() { _ = s.node.Close() })
	s.must(s.node.Serve(t.Context(), bus.ServiceHeartbeat, s.answer))
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
	if b.Leaving {
		s.mu.Unlock()
		time.Sleep(s.slow)
		s.mu.Lock()
	}
	if s.silent {
		return nil, kernel.Refuse(jobs.Unavailable, "no leader")
	}
	if s.refuses != nil {
		return nil, s.refuses
	}
	s.seat(b)
	a := bus.HeartbeatAnswer{Lease: lease.Milliseconds(), Unknown: s.forgot && b.Info == nil, Stop: s.stops}
	s.stops = nil
	if b.Info != nil {
		s.forgot = false
	}
	return bus.Encode(a), nil
}

// seat keeps what a heartbeat reports. The lock is held.
func (s *stage) seat(b bus.Heartbeat) {
	k := s.seats[b.Worker]
	if k == nil {
		k = new(seat)
		s.seats[b.Worker] = k
	}
	if b.Info != nil {
		k.app, k.slots = b.Info.App, b.Info.Slots
	}
	if k.Heartbeat, k.refused = b, false; b.Slots > 0 {
		k.slots = b.Slots
	}
	s.lead()
}

// lead starts ready runs on workers with free slots, unless that is under way. The lock is held.
func (s *stage) lead() {
	if s.leading {
		return
	}
	s.leading = true
	go func() {
		for {
			name, ids := s.assign()
			if len(ids) == 0 {
				return
			}
			s.deliver(name, ids)
		}
	}()
}

// assign takes ready runs for a worker. Without any, the leader rests.
func (s *stage) assign() (name string, ids []jobs.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.seats)) {
		k := s.seats[name]
		free := 1000
		if k.slots > 0 {
			free = k.slots - k.Strays
			for _, other := range s.taken {
				if other == name {
					free--
				}
			}
		}
		if s.quiet || k.refused || k.Draining || k.Leaving || k.Resting || k.Away {
			free = 0
		}
		if n := min(free, len(s.ready)); n > 0 {
			ids, s.ready = s.ready[:n:n], s.ready[n:]
			return name, ids
		}
	}
	s.leading = false
	return "", nil
}

// deliver starts runs and pushes them to a worker, which gets no more until its next heartbeat if it refuses one.
func (s *stage) deliver(name string, ids []jobs.ID) {
	batch := make([]kernel.Envelope, len(ids))
	for i, id := range ids {
		batch[i] = s.envelope(kernel.Start{ID: id, Worker: name, Attempt: s.row(id).Next()})
	}
	var runs []*kernel.Run
	for _, r := range s.apply(batch) {
		if run := r.Run(); r.Err == nil && run.State == jobs.Processing {
			runs = append(runs, run)
		}
	}
	if len(runs) == 0 {
		return
	}
	answer, err := s.pushTo(name, s.head(name), runs...)
	if errors.Is(err, bus.ErrNoReceiver) {
		for _, run := range runs {
			answer.Refused = append(answer.Refused, bus.Attempt{ID: run.ID, N: run.Attempt})
		}
	}
	s.mu.Lock()
	s.answers = append(s.answers, answer)
	s.seats[name].refused = len(answer.Refused) > 0
	s.mu.Unlock()
	for _, a := range answer.Refused {
		s.apply([]kernel.Envelope{s.envelope(kernel.Unstart{ID: a.ID, Attempt: a.N})})
	}
}

// head is the head of a push that follows the worker's last heartbeat.
func (s *stage) head(name string) bus.Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.seats[name]
	return bus.Push{Term: 1, Process: k.Process, Heard: time.Duration(k.Sent), Lease: lease}
}

// pushTo sends runs to a worker.
func (s *stage) pushTo(name string, push bus.Push, runs ...*kernel.Run) (bus.PushAnswer, error) {
	push.Runs = runs
	parcels, large := push.Pack(s.node.Limit())
	if len(parcels) != 1 || len(large) > 0 {
		s.t.Errorf("a push of %d runs takes %d parcels", len(runs), len(parcels))
	}
	return s.send(name, parcels[0].Bytes)
}

func (s *stage) send(name string, push []byte) (answer bus.PushAnswer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.mu.Lock()
	app := s.seats[name].app
	s.mu.Unlock()
	raw, err := s.node.Push(ctx, bus.Address{Tenant: jobs.DefaultTenant, App: app, Worker: name}, push)
	if err == nil {
		answer, err = bus.Decode[bus.PushAnswer](raw)
	}
	return answer, err
}

// push sends runs to a worker, as a leader does that has received its last heartbeat.
func (s *stage) push(w interface{ Name() string }, runs ...*kernel.Run) bus.PushAnswer {
	s.t.Helper()
	answer, err := s.pushTo(w.Name(), s.head(w.Name()), runs...)
	s.must(err)
	return answer
}

// startOn starts a run on a worker and does not push it.
func (s *stage) startOn(w interface{ Name() string }, id jobs.ID) *kernel.Run {
	s.t.Helper()
	s.mu.Lock()
	s.ready = slices.DeleteFunc(s.ready, func(other jobs.ID) bool { return other == id })
	s.mu.Unlock()
	return s.do(kernel.Start{ID: id, Worker: w.Name(), Attempt: s.row(id).Next()})
}

// started is a new run that was started on a worker and not pushed.
func (s *stage) started(w interface{ Name() string }, key jobs.Key) *kernel.Run {
	s.t.Helper()
	s.set(func(s *stage) { s.quiet = true })
	return s.startOn(w, s.create(key, struct{}{}))
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

// apply applies, remembers, and has the leader start what is ready.
func (s *stage) apply(batch []kernel.Envelope) []metastore.Result {
	results := s.store.Apply(context.Background(), batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range batch {
		s.commands, s.at = append(s.commands, e.Command), append(s.at, time.Now())
	}
	for _, r := range results {
		for _, run := range r.Runs {
			if r.Err != nil || r.Existing {
				continue
			}
			if delete(s.taken, run.ID); run.State == jobs.Processing || run.Lingering {
				s.taken[run.ID] = run.Worker
			}
			s.ready = slices.DeleteFunc(s.ready, func(id jobs.ID) bool { return id == run.ID })
			if run.Ready() {
				s.ready = append(s.ready, run.ID)
			}
		}
	}
	s.lead()
	return results
}

// new makes a worker of the stage.
func (s *stage) new(cfg worker.Config, js ...jobs.Job) *worker.Worker {
	s.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "w"
	}
	w, err := worker.New(cfg, s, s.end(cfg.Name), js...)
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

// end is the bus as a worker has it.
func (s *stage) end(name string) bus.Bus {
	end := s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name})
	s.t.Cleanup(func() { _ = end.Close() })
	if s.wrap != nil {
		return s.wrap(end)
	}
	return end
}

// narrow is a bus that carries less.
type narrow struct {
	bus.Bus
	most int
}

func (s *stage) narrow(most int) {
	s.wrap = func(b bus.Bus) bus.Bus { return narrow{b, most} }
}

func (n narrow) Limit() int        { return n.most }
func (n narrow) RequestLimit() int { return n.most }

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

// create makes a run, which starts when a worker has a slot for it, unless the stage is quiet.
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
	if stop.Started == 0 && !stop.ID.IsZero() { // as the leader has it from its rows
		stop.Started = s.row(stop.ID).Started.UnixNano()
	}
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
