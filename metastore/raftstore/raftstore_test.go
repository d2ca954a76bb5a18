package raftstore

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

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

func envelope(k jobs.Command) jobs.Envelope {
	return jobs.Envelope{ID: jobs.NewID(time.Now()), Tenant: "t", Actor: "test", Command: k}
}

// do applies commands and fails the test if one is refused.
func do(t testing.TB, s metastore.Applier, commands ...jobs.Command) []metastore.Result {
	t.Helper()
	batch := make([]jobs.Envelope, len(commands))
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

func register(key string) jobs.Register {
	return jobs.Register{App: "app", Worker: "w", Start: true, Job: jobs.Declaration{Key: jobs.Key(key), Kind: jobs.Triggered}}
}

func create(key string) jobs.Create {
	return jobs.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(key), Args: []byte(`{"customer":"c-1234567890","amount":1200,"currency":"EUR","note":"a hundred bytes or so of arguments"}`)}
}

func TestReopen(t *testing.T) {
	for _, kind := range []Log{LogBolt, LogWAL} {
		t.Run(string(kind), func(t *testing.T) {
			c := Config{Dir: t.TempDir(), Log: kind}
			s := open(t, c)
			do(t, s, register("k"))
			k := create("k")
			do(t, s, k)
			do(t, s, jobs.Claim{ID: k.ID, Worker: "w", Attempt: 1})
			do(t, s, jobs.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: jobs.OutcomeSuccess})
			waiting := create("k")
			do(t, s, waiting)
			hash := s.machine.engine.Hash()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			s = open(t, c)
			t.Logf("open for service after %v", time.Since(began))
			if d := time.Since(began); d > time.Second {
				t.Errorf("it took %v", d)
			}
			if s.machine.engine.Hash() != hash {
				t.Error("the rows are not the same")
			}
			if r := do(t, s, k)[0]; !r.Existing {
				t.Errorf("a create that was sent twice made %v", r.Instance())
			}
			page, err := s.Instances(ctx, metastore.InstanceQuery{Tenant: "t"})
			if err != nil || fmt.Sprint(states(page)) != "[Enqueued Succeeded]" {
				t.Errorf("runs are %v, %v", states(page), err)
			}
		})
	}
}

func states(p metastore.Page) (list []jobs.State) {
	for _, in := range p.Instances {
		list = append(list, in.State)
	}
	return list
}
