package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var ctx = context.Background()

func open(t testing.TB, c Config) *Store {
	t.Helper()
	if c.Logger == nil && testing.Verbose() {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}
}

// do applies commands and fails the test if one is refused.
func do(t testing.TB, s metastore.Applier, commands ...kernel.Command) []metastore.Result {
	t.Helper()
	batch := make([]kernel.Envelope, len(commands))
	for i, k := range commands {
		batch[i] = envelope(k)
	}
	results := s.Apply(ctx, batch)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("%T: %v", commands[i], r.Err)
		}
	}
	return results
}

func register(key string) kernel.Register {
	return kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: jobs.Key(key), Kind: kernel.Triggered}}
}

func create(key string) kernel.Create {
	return kernel.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(key), Args: []byte(`{"customer":"c-1234567890","amount":1200,"currency":"EUR","note":"a hundred bytes or so of arguments"}`)}
}

func TestReopen(t *testing.T) {
	for _, kind := range []string{LogBolt, LogWAL} {
		t.Run(string(kind), func(t *testing.T) {
			c := Config{Dir: t.TempDir(), Log: kind}
			s := open(t, c)
			do(t, s, register("k"))
			k := create("k")
			do(t, s, k)
			do(t, s, kernel.Start{ID: k.ID, Worker: "w", Attempt: 1})
			do(t, s, kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
			waiting := create("k")
			do(t, s, waiting)
			accessRows(t, s)
			if err := s.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
			// In the log, after the snapshot.
			do(t, s, kernel.Revoke{ID: "bbbb2222"}, kernel.Configure{MaxJobs: new(9)})
			hash := s.machine.Engine.Hash()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s = open(t, c)
			took := time.Since(began)
			t.Logf("open for service after %v", took)
			if tests.Rough() && took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			if s.machine.Engine.Hash() != hash {
				t.Error("the rows are not the same")
			}
			reopened(t, s)
			if r := do(t, s, k)[0]; !r.Existing {
				t.Errorf("a create that was sent twice made %v", r.Run())
			}
			page, err := s.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant})
			if err != nil || fmt.Sprint(states(page)) != "[Enqueued Succeeded]" {
				t.Errorf("runs are %v, %v", states(page), err)
			}
		})
	}
}

// accessRows makes a token and deletes a job, so that there is a row of each kind.
func accessRows(t *testing.T, s *Store) {
	t.Helper()
	for _, id := range []string{"aaaa1111", "bbbb2222"} {
		do(t, s, kernel.Grant{Token: kernel.Token{ID: id, Name: id, Role: kernel.RoleAdmin, Hash: make([]byte, 32)}})
	}
	do(t, s, kernel.SignIn{Session: kernel.Session{ID: strings.Repeat("a", 64), Token: "aaaa1111", Until: time.Now().Add(time.Hour)}})
	do(t, s, register("gone"), kernel.Pause{Key: "k", Reason: "holidays"})
	do(t, s, kernel.Delete{Key: "gone"})
}

// reopened checks what accessRows left.
func reopened(t *testing.T, s *Store) {
	t.Helper()
	tokens, err := s.Tokens(ctx, jobs.DefaultTenant)
	if err != nil || len(tokens) != 1 || tokens[0].ID != "aaaa1111" {
		t.Errorf("tokens are %v, %v", tokens, err)
	}
	if _, err := s.Session(ctx, jobs.DefaultTenant, strings.Repeat("a", 64)); err != nil {
		t.Error(err)
	}
	audits, err := s.Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant})
	if err != nil || len(audits) != 9 || audits[0].Verb != "configure" {
		t.Errorf("%d audits, %v: %v", len(audits), err, audits)
	}
	if _, err := s.Definition(ctx, jobs.DefaultTenant, "gone"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a deleted job: %v", err)
	}
	changed, err := s.Definitions(ctx, metastore.DefinitionQuery{Tenant: jobs.DefaultTenant, Since: 1})
	if err != nil || len(changed) != 2 || !changed[1].Gone() {
		t.Errorf("changed jobs are %v, %v", changed, err)
	}
	if g, err := s.Global(ctx, jobs.DefaultTenant); err != nil || g.Jobs != 1 || g.Admins != 1 || g.MaxJobs != 9 {
		t.Errorf("the settings are %+v, %v", g, err)
	}
	if r := s.Apply(ctx, []kernel.Envelope{envelope(kernel.Revoke{ID: "aaaa1111"})})[0]; !errors.Is(r.Err, jobs.Conflict) {
		t.Errorf("the last admin is revoked: %v", r.Err)
	}
}

func states(p metastore.Page) (list []jobs.State) {
	for _, run := range p.Runs {
		list = append(list, run.State)
	}
	return list
}

// A store reports the size of its log and its archive.
func TestStats(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := s.Stats()
	r := s.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "leader:n", Command: kernel.Lead{Term: 1, Node: "n"}}})
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	now := s.Stats()
	switch {
	case now.Commits != before.Commits+1 || now.Commands != before.Commands+1 || now.Seconds.Sum <= 0:
		t.Errorf("commits: %+v", now)
	case now.Log.Term == 0 || now.Log.Applied <= before.Log.Applied || now.Log.Snapshot.IsZero():
		t.Errorf("log: %+v, before %+v", now.Log, before.Log)
	case now.Archive.Files != 1:
		t.Errorf("archive: %+v", now.Archive)
	}
}

// stuck is a log in which raft stalls, as on a full disk, from when it is armed until it is released.
type stuck struct {
	slog.Handler
	armed     atomic.Bool
	here, let chan struct{}
}

func (h *stuck) Enabled(context.Context, slog.Level) bool { return true }

func (h *stuck) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "entering") && h.armed.CompareAndSwap(true, false) {
		close(h.here)
		<-h.let
	}
	return nil
}

func (h *stuck) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *stuck) WithGroup(string) slog.Handler      { return h }

// A process that ends because its store has failed does not wait for raft to have another node lead.
func TestAFailedStoreYieldsAtOnce(t *testing.T) {
	h := &stuck{here: make(chan struct{}), let: make(chan struct{})}
	s := open(t, Config{Dir: t.TempDir(), Logger: slog.New(h)})
	h.armed.Store(true)
	go s.standForElection()
	defer close(h.let)
	<-h.here
	yielded := make(chan error, 1)
	go func() { yielded <- s.Yield() }()
	s.fail(errors.New("the disk is full"))
	if err := <-yielded; err == nil || !strings.Contains(err.Error(), "has failed") {
		t.Errorf("it has yielded with %v", err)
	}
}

func TestYieldAlone(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	if err := s.Yield(); err == nil {
		t.Error("the only voter has found another node to lead")
	}
	do(t, s, register("k")) // it still leads
}
