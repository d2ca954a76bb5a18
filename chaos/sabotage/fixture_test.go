package sabotage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// fixture is a Carillon whose parts can be struck, and all that its witnesses write down. Rows are in one store that
// all nodes share, as with a database, which has a clock of its own that is right.
type fixture struct {
	t     *testing.T
	ctx   context.Context
	begin time.Time
	hub   *membus.Hub
	rows  metastore.Full
	term  uint64
	all   sync.WaitGroup

	mu    sync.Mutex
	c     judge.Case
	mute  map[int]bool // numbers of workers that are dead
	begun map[jobs.ID]bool
	rival *rival
	hired int
}

func newFixture(t *testing.T) (h *fixture, tearDown func()) {
	ctx, cancel := context.WithCancel(context.Background())
	h = &fixture{t: t, ctx: ctx, begin: time.Now(), hub: membus.New(), mute: map[int]bool{}, begun: map[jobs.ID]bool{}}
	h.rival = &rival{bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "rival"}), heads: map[bus.Address]bus.Push{}}
	h.rows = &metastore.Local{Engine: memstore.New(memstore.Config{})}
	return h, func() {
		cancel()
		h.all.Wait()
		time.Sleep(2 * time.Minute) // what is on its way gives up by then
	}
}

// now is this moment of virtual time.
func (h *fixture) now() judge.Moment {
	return judge.Moment{Wall: time.Now().UnixNano(), Mono: int64(time.Hour + time.Since(h.begin))}
}

func (h *fixture) until(at time.Duration) { time.Sleep(time.Until(h.begin.Add(at))) }

// fault records the begin of a fault; the returned function records its end.
func (h *fixture) fault(f judge.Fault) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.Begin = h.now()
	i := len(h.c.Faults)
	h.c.Faults = append(h.c.Faults, f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.c.Faults[i].End = h.now()
	}
}

// wire is one end of the bus.
type wire struct {
	bus.Bus
	cut  chan struct{} // closed: nothing comes through
	heal chan struct{} // closed: all does again
	n    atomic.Uint64
	gone sync.Map    // attempts whose next push finds nothing
	slow atomic.Bool // what comes, comes late
	calm atomic.Bool // nothing happens to pushes

	rival *rival
}

func (h *fixture) wire(role bus.Role, name string) *wire {
	w := &wire{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: role, Name: name}), cut: make(chan struct{}), heal: make(chan struct{}), rival: h.rival}
	return w
}

func (w *wire) dead() bool {
	select {
	case <-w.heal:
		return false
	default:
	}
	select {
	case <-w.cut:
		return true
	default:
		return false
	}
}

var errCut = errors.New("the line is cut")

// silence is a cut line: nothing arrives for a moment.
func silence(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond):
		return errCut
	}
}

func (w *wire) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if w.dead() {
		return nil, silence(ctx)
	}
	return w.Bus.Call(ctx, service, request)
}

func (w *wire) Signal(ctx context.Context, s bus.Signal) error {
	if w.dead() {
		return nil
	}
	return w.Bus.Signal(ctx, s)
}

func (w *wire) Listen(ctx context.Context, tenant jobs.Tenant, topic bus.Topic, to string, fn func(bus.Signal)) error {
	return w.Bus.Listen(ctx, tenant, topic, to, func(s bus.Signal) {
		if !w.dead() {
			fn(s)
		}
	})
}

// Serve ends when the line is cut: others are asked instead.
func (w *wire) Serve(ctx context.Context, service string, fn bus.Handler) error {
	serving, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-w.cut:
		case <-ctx.Done():
		}
	}()
	return w.Bus.Serve(serving, service, fn)
}

// Push has one of these happen to a push now and then: it is lost; it comes late, also when its worker has been cut off
// meanwhile; it comes again when its runs have ended; its answer is lost, and then the worker seems to be gone.
func (w *wire) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	if w.dead() {
		return nil, silence(ctx)
	}
	w.rival.note(to, push)
	if w.calm.Load() {
		return w.Bus.Push(ctx, to, push)
	}
	p, err := bus.DecodePush(push)
	if err != nil {
		return nil, err
	}
	first := dispatch.Attempt{Run: dispatch.Run{Tenant: to.Tenant, ID: p.Runs[0].ID}, N: p.Runs[0].Attempt}
	if _, gone := w.gone.LoadAndDelete(first); gone {
		return nil, bus.ErrNoReceiver
	}
	again := func(in time.Duration) {
		push := bytes.Clone(push)
		time.AfterFunc(in, func() { _, _ = w.Bus.Push(context.Background(), to, push) })
	}
	switch n := w.n.Add(1); {
	case n%61 == 0:
		return nil, silence(ctx)
	case n%53 == 0:
		again(300 * time.Millisecond)
		return nil, silence(ctx)
	case n%47 == 0:
		again(25 * time.Second)
		return nil, silence(ctx)
	case n%5 == 0:
		again(time.Second)
	case n%37 == 0:
		w.gone.Store(first, true)
		_, _ = w.Bus.Push(ctx, to, push)
		return nil, silence(ctx)
	}
	return w.Bus.Push(ctx, to, push)
}

// late is how late a push comes that was sent while the line was cut: its attempt has expired by then.
const late = 25 * time.Second

// Accept gets what was sent while the line was cut when it is cut no more.
func (w *wire) Accept(ctx context.Context, at bus.Address, fn func([]byte) ([]byte, func())) error {
	return w.Bus.Accept(ctx, at, func(push []byte) ([]byte, func()) {
		if w.slow.Load() {
			time.Sleep(200 * time.Millisecond)
		}
		if w.dead() {
			push := bytes.Clone(push)
			time.AfterFunc(late, func() {
				if _, then := fn(push); then != nil && !w.dead() {
					then()
				}
			})
			return []byte("cut"), nil
		}
		return fn(push)
	})
}

// shaky is a store behind a faulty connection: some fires are sent twice, some fail, some have an unknown outcome.
type shaky struct {
	metastore.Full
	n     *atomic.Uint64
	rival *rival
}

func (s shaky) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if slices.ContainsFunc(batch, func(e kernel.Envelope) bool { _, start := e.Command.(kernel.Start); return start }) {
		results := s.Full.Apply(ctx, slices.Clone(batch))
		s.rival.start(ctx, s.Full, batch)
		return results
	}
	if !slices.ContainsFunc(batch, func(e kernel.Envelope) bool { _, fire := e.Command.(kernel.Fire); return fire }) {
		return s.Full.Apply(ctx, batch)
	}
	switch s.n.Add(1) % 8 {
	case 2:
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "the store has a cold"))
	case 4:
		s.Full.Apply(ctx, slices.Clone(batch))
		return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
	case 6:
		s.Full.Apply(ctx, slices.Clone(batch))
		time.Sleep(time.Millisecond)
	}
	return s.Full.Apply(ctx, batch)
}

// node is one life of a control plane.
type node struct {
	name  string
	bus   *wire
	plane *controlplane.ControlPlane
	ahead atomic.Int64 // of its wall clock
	turns chan turn
	stop  func()
}

// turn is a term to lead, until its context ends.
type turn struct {
	ctx  context.Context
	term uint64
}

// Lead makes the test the elector: a node leads when and as long as the test wants.
func (n *node) Confirmed(uint64) time.Time { return time.Now() } // but for its cut line

func (n *node) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t := <-n.turns:
			inner, cancel := context.WithCancel(ctx)
			release := context.AfterFunc(t.ctx, cancel)
			err := lead(inner, t.term)
			release()
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && t.ctx.Err() == nil {
				return err
			}
		}
	}
}

func (h *fixture) node(name string, ahead time.Duration) *node {
	n := &node{name: name, bus: h.wire(bus.Node, name), turns: make(chan turn, 1)}
	n.ahead.Store(int64(ahead))
	conf := controlplane.Config{Node: name, Store: shaky{h.rows, new(atomic.Uint64), h.rival}, Bus: n.bus, Elector: n,
		Clock:  &metastore.Clock{Wall: func() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) }},
		Logger: slog.New(slog.NewTextHandler(h.t.Output(), nil))}
	conf.Serve = func(ctx context.Context, term uint64, store metastore.Store) error {
		return busstore.Serve(ctx, bus.InTerm(n.bus, term), store, busstore.Config{})
	}
	var err error
	if n.plane, err = controlplane.New(conf); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.ctx)
	ended := make(chan struct{})
	h.all.Go(func() {
		defer close(ended)
		if err := n.plane.Run(ctx); err != nil && ctx.Err() == nil {
			h.t.Logf("%s ended: %v", name, err)
		}
		_ = n.bus.Bus.Close()
	})
	n.stop = func() { cancel(); <-ended }
	synctest.Wait()
	return n
}

// lead makes a node the leader of the next term. Only the response tells the leader before that it has lost leadership.
func (h *fixture) lead(n *node) (depose func()) {
	h.term++
	ctx, cancel := context.WithCancel(h.ctx)
	n.turns <- turn{ctx, h.term}
	synctest.Wait()
	return cancel
}

// hired is one worker process.
type hired struct {
	number int
	bus    *wire
	leave  func() // as after SIGTERM
}

func (h *fixture) hire(slots int) *hired {
	h.mu.Lock()
	h.hired++
	w := &hired{number: h.hired}
	h.mu.Unlock()
	conf := worker.Config{Name: fmt.Sprint("w", w.number), App: "house", Slots: slots, Grace: time.Second}
	as, err := conf.Principal()
	if err != nil {
		h.t.Fatal(err)
	}
	w.bus = h.wire(bus.Worker, conf.Name)
	made, err := worker.New(conf, busstore.New(w.bus, as), w.bus, h.jobs(w.number)...)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, leave := context.WithCancel(h.ctx)
	w.leave = leave
	h.all.Go(func() {
		_ = made.Run(ctx)
		_ = w.bus.Bus.Close()
	})
	return w
}

// kill is kill -9: the worker sends nothing any more.
func (h *fixture) kill(w *hired) {
	h.fault(judge.Fault{Kind: judge.Kill, Role: judge.Worker, Target: fmt.Sprint("w", w.number), PID: w.number})()
	h.mu.Lock()
	h.mute[w.number] = true
	h.mu.Unlock()
	close(w.bus.cut)
}

// task is what a run is asked to do.
type task struct {
	Millis  int  `json:"millis"`
	Sleeper int  `json:"sleeper,omitempty"` // milliseconds that its first attempt takes, heeding nothing
	Fails   bool `json:"fails,omitempty"`   // its first attempt fails
}

// handle writes down what it does.
func (h *fixture) handle(ctx context.Context, number int, a task) error {
	at := jobs.Attempt(ctx)
	line := judge.Line{What: judge.Start, Key: string(at.Key), Run: at.Run.String(), Due: at.Due.UnixNano(), Attempt: at.Number, Worker: at.Worker, PID: number}
	h.write(line)
	h.mu.Lock()
	first := !h.begun[at.Run]
	h.begun[at.Run] = true
	h.mu.Unlock()
	err := a.work(ctx, first)
	line.What, line.Outcome = judge.End, "ok"
	if err != nil {
		line.Outcome = err.Error()
	}
	if cause := context.Cause(ctx); cause != nil {
		line.Cause = cause.Error()
	}
	h.write(line)
	if err != nil {
		return err
	}
	return jobs.Result(ctx, judge.Token{Attempt: at.Number, PID: number})
}

func (h *fixture) write(l judge.Line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.At = h.now()
	if !h.mute[l.PID] {
		h.c.Journal = append(h.c.Journal, l)
	}
}

func (a task) work(ctx context.Context, first bool) error {
	if a.Sleeper > 0 && first {
		time.Sleep(time.Duration(a.Sleeper) * time.Millisecond)
		return nil
	}
	select {
	case <-time.After(time.Duration(a.Millis) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if a.Fails && first {
		return errors.New("no luck")
	}
	return nil
}

// specs are the jobs in the judge's form.
var specs = []judge.Spec{
	{Key: "tick", Schedule: "* * * * * *", Misfire: "fire_all", Overlap: "queue"},
	{Key: "five", Schedule: "*/5 * * * * *", Misfire: "fire_all", MaxConcurrency: 1, Overlap: "queue"},
	{Key: "minute", Schedule: "0 * * * * *", Misfire: "skip", Overlap: "queue"},
	{Key: "plain", Overlap: "queue", Retries: 1},
	{Key: "one", MaxConcurrency: 1, Overlap: "queue", Retries: 1},
	{Key: "left", Limits: []judge.Limit{{Name: "shared", Max: 2}}, Overlap: "queue", Retries: 1},
	{Key: "right", Limits: []judge.Limit{{Name: "shared", Max: 2}}, Overlap: "queue", Retries: 1},
}

// jobs are the same in a worker's form.
func (h *fixture) jobs(number int) (all []jobs.Job) {
	for _, s := range specs {
		o := jobs.Options{Key: jobs.Key(s.Key), Cron: s.Schedule, Misfire: jobs.Misfire(s.Misfire), Overlap: jobs.Overlap(s.Overlap), MaxConcurrency: s.MaxConcurrency, Retries: s.Retries,
			KeepSucceeded: jobs.None, KeepOthers: jobs.None} // the judge asks for all of them
		if s.MaxConcurrency == 0 {
			o.MaxConcurrency = jobs.None
		}
		for _, l := range s.Limits {
			o.Limits = append(o.Limits, jobs.Limit{Name: l.Name, Max: l.Max})
		}
		if s.Schedule != "" {
			all = append(all, jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error { return h.handle(ctx, number, task{Millis: 20}) }), o))
			continue
		}
		all = append(all, jobs.NewTriggered(jobs.TriggeredFunc[task](func(ctx context.Context, a task) error { return h.handle(ctx, number, a) }), o))
	}
	return all
}

// client asks for runs.
type client struct {
	h    *fixture
	rows metastore.Store
	n    int
}

func (h *fixture) client() *client {
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "client"}
	end := h.hub.As(as)
	h.all.Go(func() { <-h.ctx.Done(); _ = end.Close() })
	return &client{h: h, rows: busstore.New(end, as)}
}

// ask asks for a run, as a program does that gets no answer now and then and asks again.
func (c *client) ask(key string, a task, in time.Duration) {
	raw, err := json.Marshal(a)
	if err != nil {
		c.h.t.Error(err)
		return
	}
	c.n++
	k := kernel.Create{Key: jobs.Key(key), Args: raw, Idempotency: fmt.Sprint("request ", c.n)}
	o := judge.Op{What: judge.Create, Client: "client", Key: key, Idempotency: k.Idempotency}
	if in > 0 {
		k.Due = kernel.Instant(time.Now().Add(in))
		o.Due = k.Due.UnixNano()
	}
	tries := 1
	if c.n%4 == 0 {
		tries = 2
	}
	for try := range tries {
		k.ID = jobs.NewID(time.Now())
		o.RequestID, o.Invoked = k.ID.String(), c.h.now()
		r := c.rows.Apply(c.h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Command: k}})[0]
		o.Returned, o.Outcome, o.Run, o.Duplicate = c.h.now(), judge.OK, "", r.Existing
		switch {
		case r.Err != nil && (jobs.CodeOf(r.Err) == jobs.Unknown || jobs.CodeOf(r.Err) == jobs.Unavailable):
			o.Outcome, o.Text = judge.Unknown, r.Err.Error()
		case r.Err != nil:
			o.Outcome, o.Text = judge.Refused, r.Err.Error()
		case try+1 < tries: // the answer gets lost
			o.Outcome, o.Text, o.Duplicate = judge.Unknown, "no answer", false
		default:
			o.Run = r.Run().ID.String()
		}
		c.h.mu.Lock()
		c.h.c.History = append(c.h.c.History, o)
		c.h.mu.Unlock()
	}
}

// person does what only people do, through the store itself.
func (h *fixture) person(o judge.Op, k kernel.Command) {
	o.Invoked = h.now()
	r := h.rows.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]
	if r.Err != nil {
		h.t.Fatal(r.Err)
	}
	o.Returned, o.Outcome = h.now(), judge.OK
	h.mu.Lock()
	defer h.mu.Unlock()
	h.c.History = append(h.c.History, o)
}

// read returns the content of the store.
func (h *fixture) read() {
	s := judge.Store{At: h.now()}
	for q := (metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage}); ; {
		page, err := h.rows.Runs(h.ctx, q)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, run := range page.Runs {
			r := judge.Run{ID: run.ID.String(), Key: string(run.Key), State: run.State.String(), Cause: string(run.Cause), Origin: string(run.Origin), Due: run.Due, Created: run.Created,
				Started: run.Started, Ended: run.Ended, RetryAt: run.RetryAt, Attempt: run.Attempt, Worker: run.Worker, Unique: run.Unique, Error: run.Error, Result: run.Result}
			for _, m := range run.Moves {
				r.Moves = append(r.Moves, judge.Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By, Text: m.Text})
			}
			s.Runs = append(s.Runs, r)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	definitions, err := h.rows.Definitions(h.ctx, metastore.DefinitionQuery{Tenant: jobs.DefaultTenant})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, d := range definitions {
		s.Definitions = append(s.Definitions, judge.Definition{Key: string(d.Key), Schedule: d.Policy.Schedule, Created: d.Created, Revision: d.Revision})
		missed, err := h.rows.Ledger(h.ctx, jobs.DefaultTenant, d.UID, 10_000)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, m := range missed {
			s.Missed = append(s.Missed, judge.Missed{Key: string(m.Key), From: m.From, To: m.To, Count: m.Count, Reason: string(m.Reason)})
		}
	}
	h.c.Stores = append(h.c.Stores, s)
}
