package busstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
)

// line is a bus that fails as its fields describe.
type line struct {
	bus.Calls
	limit int
	lose  func(n int) error // the n-th call's answer is lost with this error, after it was answered
	stop  func(n int) error // the n-th call fails with this error and reaches no server
	calls atomic.Int32
	bytes atomic.Int32 // of the longest message
}

func (l *line) Limit() int {
	if l.limit > 0 {
		return l.limit
	}
	return l.Calls.Limit()
}

func (l *line) RequestLimit() int { return min(l.Limit(), l.Calls.RequestLimit()) }

func (l *line) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	n := int(l.calls.Add(1))
	if l.stop != nil {
		if err := l.stop(n); err != nil {
			return nil, err
		}
	}
	answer, err := l.Calls.Call(ctx, service, request)
	for {
		most := l.bytes.Load()
		if size := int32(max(len(request), len(answer))); size <= most || l.bytes.CompareAndSwap(most, size) {
			break
		}
	}
	if l.lose != nil {
		if lost := l.lose(n); lost != nil {
			return nil, lost
		}
	}
	return answer, err
}

var errLost = errors.New("connection reset")

func creates(from, n int, args string) []kernel.Envelope {
	batch := make([]kernel.Envelope, n)
	for i := range batch {
		name := fmt.Sprint("run", from+i)
		batch[i] = kernel.Envelope{ID: kernel.DerivedID("e", name), Command: kernel.Create{ID: kernel.DerivedID(name), Key: "charge", Args: []byte(args)}}
	}
	return batch
}

// open is a cluster with a job, and a node's line to it.
func open(t *testing.T) (*fixture, *line) {
	h := newFixture(t, Config{})
	h.must(t, h.as(worker), register("billing", "billing", "charge"))
	return h, &line{Calls: h.hub.As(node)}
}

func live(t *testing.T, s metastore.Reader) int {
	t.Helper()
	c, err := s.Counts(t.Context(), metastore.CountQuery{Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range c.Live {
		n += k
	}
	return n
}

func allDone(t *testing.T, results []metastore.Result) {
	t.Helper()
	for i := range results {
		if results[i].Err != nil {
			t.Fatalf("command %d: %v", i, results[i].Err)
		}
	}
}

// A request whose answer was lost is repeated: the command is done once, and the caller gets its result.
func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := open(t)
		s := New(l, node)
		allDone(t, s.Apply(t.Context(), creates(10, 1, ""))) // learns the server's time by its first call
		l.lose = func(n int) error {
			if n <= 5 {
				return errLost
			}
			return nil
		}
		results := s.Apply(t.Context(), creates(0, 10, ""))
		allDone(t, results)
		if !results[0].Existing || live(t, h.store) != 11 {
			t.Errorf("existing %v, %d runs", results[0].Existing, live(t, h.store))
		}
		if l.calls.Load() != 6 {
			t.Errorf("%d calls", l.calls.Load())
		}
	})
}

// When answers stay away, the outcome is unknown; when no server took the command, it was certainly not done. One of
// the nodes may be frozen: a caller without an answer repeats its request soon, and reaches another.
func TestAFrozenServerCostsSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := open(t)
		s := New(&frozen{l, 2}, node)
		began := time.Now()
		for _, r := range s.Apply(t.Context(), creates(0, 1, `{}`)) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if took := time.Since(began); took > 2*attempt+longestPause {
			t.Errorf("it took %v", took)
		}
	})
}

// frozen is a bus whose first few calls go to a frozen server.
type frozen struct {
	*line
	vain int
}

func (f *frozen) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if f.vain--; f.vain >= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f.line.Call(ctx, service, request)
}

func TestPatienceEnds(t *testing.T) {
	for _, c := range []struct {
		name       string
		lose, stop error
		want       jobs.Code
		after      time.Duration
	}{
		{"answers lost", errLost, nil, jobs.Unknown, patience},
		{"no server", nil, fmt.Errorf("call: %w", bus.ErrNoReceiver), jobs.Unavailable, patience},
		{"store has no leader", nil, kernel.Refuse(jobs.Unavailable, "no leader"), jobs.Unavailable, patience},
		{"server left", nil, kernel.Refuse(jobs.Unknown, "has left"), jobs.Unknown, patience},
		{"own end closed", nil, bus.ErrClosed, jobs.Unknown, 0},
		{"all of it forbidden", nil, kernel.Refuse(jobs.Forbidden, "no"), jobs.Forbidden, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := open(t)
				l.lose, l.stop = func(int) error { return c.lose }, func(int) error { return c.stop }
				began := time.Now()
				for _, r := range New(l, node).Apply(t.Context(), creates(0, 3, "")) {
					if !errors.Is(r.Err, c.want) {
						t.Errorf("got %v, want %s", r.Err, c.want)
					}
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("after %v, want %v", took, c.after)
				}
			})
		})
	}
}

// Once a command may have been done, a later "no server" does not undo it.
func TestDoubtStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := open(t)
		l.lose = func(int) error { return errLost }
		l.stop = func(n int) error {
			if n > 1 {
				return bus.ErrNoReceiver
			}
			return nil
		}
		if r := New(l, node).Apply(t.Context(), creates(0, 1, "")); !errors.Is(r[0].Err, jobs.Unknown) {
			t.Errorf("got %v", r[0].Err)
		}
	})
}

// A caller that gives up learns at once that the outcome is unknown.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := open(t)
		l.stop = func(int) error { return bus.ErrNoReceiver }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		r := New(l, node).Apply(ctx, creates(0, 1, ""))
		if !errors.Is(r[0].Err, jobs.Unknown) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", r[0].Err, time.Since(began))
		}
		if _, err := New(l, node).Global(ctx, "default"); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("a read: %v", err)
		}
		time.Sleep(patience) // the commit without a waiting caller
	})
}

// A leader that starts a little later gets the requests that wait for it.
func TestServerComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, store := membus.New(), memstore.Open(memstore.Config{})
		s := New(hub.As(node), node)
		time.AfterFunc(2*time.Second, func() {
			if err := Serve(t.Context(), hub.As(node), store, Config{}); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		r := s.Apply(t.Context(), []kernel.Envelope{{Command: register("billing", "billing", "charge")}})
		allDone(t, r)
		if d, err := s.Definition(t.Context(), "", "charge"); err != nil || d.App != "billing" {
			t.Errorf("%+v, %v", d, err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 2*time.Second+longestPause {
			t.Errorf("took %v", took)
		}
	})
}

// A store that may be stale answers no reads; it takes commands, which report their outcome themselves. The caller
// repeats the read until a store is sure.
func TestReadsOfWhatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, began := membus.New(), time.Now()
		sure := func(context.Context) error {
			if time.Since(began) < time.Second {
				return kernel.Refuse(jobs.Unavailable, "another node may lead")
			}
			return nil
		}
		if err := Serve(t.Context(), hub.As(node), memstore.Open(memstore.Config{}), Config{Current: sure, Kept: true}); err != nil {
			t.Fatal(err)
		}
		s := New(hub.As(node), node)
		allDone(t, s.Apply(t.Context(), []kernel.Envelope{{Command: register("billing", "billing", "charge")}}))
		if took := time.Since(began); took >= time.Second {
			t.Errorf("a command took %v", took)
		}
		d, err := s.Definition(t.Context(), "", "charge")
		if took := time.Since(began); err != nil || d.App != "billing" || took < time.Second || took > time.Second+longestPause {
			t.Errorf("%+v after %v (%v)", d, took, err)
		}
		// The lookup of a parent is a read, too: only a store that is sure may report that there is none.
		began = time.Now()
		child := kernel.Create{ID: jobs.ID{6}, Key: "charge", Parent: jobs.ID{7}}
		r := New(hub.As(worker), worker).Apply(t.Context(), []kernel.Envelope{{Command: child}})[0]
		if took := time.Since(began); jobs.CodeOf(r.Err) != jobs.Forbidden || took < time.Second {
			t.Errorf("after %v: %v", took, r.Err)
		}
	})
}

// Commands that a store answers with "unavailable" or "unknown" are sent again, and only those.
func TestUncertainAnswersAreAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fixture{hub: membus.New(), store: memstore.Open(memstore.Config{})}
		moody := &moody{Store: h.store}
		if err := Serve(t.Context(), h.hub.As(node), moody, Config{}); err != nil {
			t.Fatal(err)
		}
		h.must(t, h.as(worker), register("billing", "billing", "charge"))
		moody.mood = 3
		moody.sizes = nil
		allDone(t, h.as(node).Apply(t.Context(), creates(0, 9, "")))
		if fmt.Sprint(moody.sizes) != "[9 6 4 2]" {
			t.Errorf("asked about %v commands", moody.sizes)
		}
		if live(t, h.store) != 9 {
			t.Errorf("%d runs", live(t, h.store))
		}
	})
}

// moody is a store that, while its mood lasts, leaves two of three answers open, done or not.
type moody struct {
	metastore.Store
	mood  int
	sizes []int
}

func (m *moody) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	m.sizes = append(m.sizes, len(batch))
	if m.mood == 0 {
		return m.Store.Apply(ctx, batch)
	}
	m.mood--
	results := make([]metastore.Result, len(batch))
	for i := range batch {
		switch i % 3 {
		case 0:
			results[i] = m.Store.Apply(ctx, batch[i:i+1])[0]
		case 1:
			m.Store.Apply(ctx, batch[i:i+1])
			results[i].Err = kernel.Refuse(jobs.Unknown, "lost leadership")
		case 2:
			results[i].Err = kernel.Refuse(jobs.Unavailable, "no leader")
		}
	}
	return results
}

// Neither a request nor an answer is longer than the bus carries, whatever a batch holds.
func TestMessagesFit(t *testing.T) {
	hub, store := membus.New(), memstore.Open(memstore.Config{})
	const limit = 1 << 20
	served := &line{Calls: hub.As(node), limit: limit}
	if err := Serve(t.Context(), served, store, Config{}); err != nil {
		t.Fatal(err)
	}
	l := &line{Calls: hub.As(node), limit: limit}
	s := New(l, node)
	allDone(t, s.Apply(t.Context(), []kernel.Envelope{{Command: register("billing", "billing", "charge")}}))

	big := `{"x":"` + strings.Repeat("x", 100_000) + `"}`
	allDone(t, s.Apply(t.Context(), creates(0, 40, big)))
	if most := l.bytes.Load(); most > limit {
		t.Errorf("a message of %d bytes", most)
	}
	// Small requests, large answers: what does not fit is requested again.
	starts := make([]kernel.Envelope, 40)
	for i := range starts {
		starts[i].Command = kernel.Start{ID: kernel.DerivedID(fmt.Sprint("run", i)), Worker: "w", Attempt: 1}
	}
	results := s.Apply(t.Context(), starts)
	allDone(t, results)
	for i := range results {
		if run := results[i].Run(); run.ID != kernel.DerivedID(fmt.Sprint("run", i)) || string(run.Args) != big || run.State != jobs.Processing {
			t.Fatalf("answer %d is that of run %s in state %s", i, run.ID, run.State)
		}
	}
	// A command beyond the limit is refused without being sent, and affects no other.
	huge := kernel.Register{App: "a", Worker: "w", Job: kernel.Declaration{Key: "huge", Kind: kernel.Triggered, Schema: []byte(`{"title":"` + strings.Repeat("x", 200<<10) + `"}`)}}
	l.limit = 150 << 10
	results = s.Apply(t.Context(), append([]kernel.Envelope{{Command: huge}}, creates(100, 2, "")...))
	if !errors.Is(results[0].Err, jobs.BadInput) || !strings.Contains(results[0].Err.Error(), "bus carries") {
		t.Errorf("a command beyond the limit: %v", results[0].Err)
	}
	allDone(t, results[1:])
	l.limit = limit

	// Pages and lists need several messages.
	var all []*kernel.Run
	q := metastore.RunQuery{Limit: metastore.MaxPage}
	for {
		page, err := s.Runs(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Runs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	seen := map[jobs.ID]bool{}
	for _, run := range all {
		seen[run.ID] = true
	}
	if len(all) != 42 || len(seen) != 42 {
		t.Errorf("the pages hold %d runs, %d different ones", len(all), len(seen))
	}
	schemas := make([]kernel.Envelope, 30)
	for i := range schemas {
		r := register("billing", "billing", jobs.Key(fmt.Sprintf("job%02d", i)))
		r.Job.Schema = []byte(`"` + strings.Repeat("s", 100_000) + `"`)
		schemas[i] = kernel.Envelope{ID: kernel.DerivedID(fmt.Sprint("j", i)), Command: r}
	}
	allDone(t, s.Apply(t.Context(), schemas))
	for _, c := range []struct {
		q    metastore.DefinitionQuery
		want int
	}{
		{metastore.DefinitionQuery{}, 31}, {metastore.DefinitionQuery{Limit: 25}, 25}, {metastore.DefinitionQuery{After: "job09"}, 20},
		{metastore.DefinitionQuery{Since: 11}, 20}, {metastore.DefinitionQuery{Since: 1, Limit: 15}, 15}, {metastore.DefinitionQuery{Tenant: "*"}, 31},
		{metastore.DefinitionQuery{Tenant: "*", Limit: 22}, 22}, {metastore.DefinitionQuery{Keys: []jobs.Key{"job05", "job01", "none"}}, 2},
	} {
		got, err := s.Definitions(t.Context(), c.q)
		here := c.q
		if here.Tenant == "" {
			here.Tenant = "default"
		}
		want, _ := store.Definitions(t.Context(), here)
		if err != nil || len(got) != c.want || len(want) != c.want {
			t.Errorf("%+v: %d jobs, the store has %d, want %d (%v)", c.q, len(got), len(want), c.want, err)
			continue
		}
		for i := range got {
			if got[i].Key != want[i].Key {
				t.Errorf("%+v: job %d is %s, want %s", c.q, i, got[i].Key, want[i].Key)
			}
		}
	}
	if most := l.bytes.Load(); most > limit {
		t.Errorf("a message of %d bytes", most)
	}
}

// Callers that arrive while requests are under way share the next one.
func TestConcurrentCallersShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := open(t)
		gate := make(chan struct{})
		l.stop = func(int) error {
			<-gate
			return nil
		}
		s := New(l, node)
		const callers = 50
		var done sync.WaitGroup
		for i := range callers {
			done.Go(func() {
				if r := s.Apply(t.Context(), creates(i, 1, "")); r[0].Err != nil {
					t.Error(r[0].Err)
				}
			})
		}
		synctest.Wait() // some are on their way, all others wait
		close(gate)
		done.Wait()
		if n := live(t, h.store); n != callers {
			t.Errorf("%d runs", n)
		}
		if calls := int(l.calls.Load()); calls > 2*inFlight {
			t.Errorf("%d calls for %d callers", calls, callers)
		}
	})
}

// Reads return what the store returns: refusals keep their code, and every read its rows.
func TestReadsAreThoseOfTheStore(t *testing.T) {
	h, l := open(t)
	s := New(l, node)
	allDone(t, s.Apply(t.Context(), creates(0, 5, `{"a":1}`)))
	ctx := t.Context()
	if _, err := s.Definition(ctx, "", "none"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a job that is not there: %v", err)
	}
	if _, err := s.Run(ctx, "", jobs.ID{9}); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	if _, err := s.Runs(ctx, metastore.RunQuery{Cursor: "forged"}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("a forged cursor: %v", err)
	}
	g, err := s.Global(ctx, "")
	if err != nil || g == nil {
		t.Errorf("global: %+v, %v", g, err)
	}
	d, err := h.store.Definition(ctx, "default", "charge")
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := s.Ledger(ctx, "", d.UID, 10); err != nil || len(rows) != 0 {
		t.Errorf("ledger: %v, %v", rows, err)
	}
	hour := time.Now().Truncate(time.Hour)
	c, err := s.Counts(ctx, metastore.CountQuery{Job: "charge", From: hour.Add(-time.Hour), To: hour.Add(2 * time.Hour)})
	if err != nil || c.Live[jobs.Enqueued] != 5 || len(c.Tallies) != 1 || c.Tallies[0].Runs[jobs.Enqueued] != 5 {
		t.Errorf("counts: %+v, %v", c, err)
	}
}

// Malformed requests do not harm a server, nor malformed answers a client.
func FuzzRequest(f *testing.F) {
	f.Add(appendApply(nil, askApply, creates(0, 2, `{}`)))
	f.Add(appendApply(nil, askBrief, creates(0, 2, `{}`)))
	f.Add(encodeQuestion(askRuns, question{Cursor: "x", Limit: 1 << 60}))
	f.Add(encodeQuestion(askDefinitions, question{Skip: -1, Limit: -1}))
	f.Add(encodeQuestion(askLedger, question{Limit: -5}))
	f.Add([]byte{version, byte(askApply), 1, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, request []byte) {
		s := &server{store: memstore.Open(memstore.Config{}), limit: 1 << 20, clock: newClock()}
		s.Logger = discard
		for _, from := range []bus.Principal{node, worker, client} {
			answer, err := s.answer(t.Context(), from, request)
			if err == nil && len(answer) == 0 {
				t.Error("no answer and no error")
			}
		}
		_, _, _ = decodeAnswers(request, 10)
		_, _, _ = decodeRows[*kernel.Run](request)
	})
}

// A message of many small commands is refused before it takes its memory.
func TestTooManyCommands(t *testing.T) {
	h, _ := open(t)
	_, err := h.hub.As(client).Call(t.Context(), bus.ServiceStore, appendApply(nil, askApply, creates(0, maxCommands+1, "")))
	if !errors.Is(err, jobs.BadInput) {
		t.Errorf("got %v", err)
	}
	allDone(t, h.as(node).Apply(t.Context(), creates(0, 2*maxCommands+1, ""))) // a client cuts it into pieces
	for _, bad := range [][]byte{nil, {}, {1}, {9, 1}, {version, 99, '{', '}'}, []byte("hello"), make([]byte, 1<<20)} {
		if _, err := h.hub.As(node).Call(t.Context(), bus.ServiceStore, bad); !errors.Is(err, jobs.BadInput) {
			t.Errorf("request %.10q: %v", bad, err)
		}
	}
}

func BenchmarkApply(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			hub, st := membus.New(), memstore.Open(memstore.Config{})
			if err := Serve(b.Context(), hub.As(node), st, Config{}); err != nil {
				b.Fatal(err)
			}
			s := New(hub.As(node), node)
			s.Apply(b.Context(), []kernel.Envelope{{Command: register("billing", "billing", "charge")}})
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			var done sync.WaitGroup
			for range callers {
				done.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						s.Apply(b.Context(), creates(int(i), 1, `{"customer":"c7"}`))
					}
				})
			}
			done.Wait()
		})
	}
}
