package storetest

import (
	"bytes"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

var update = flag.Bool("update", false, "write the stories' effects anew")

func TestStories(t *testing.T) {
	if *update {
		for name, text := range Retell(t, func(*testing.T) Harness { return Model() }) {
			if err := os.WriteFile(filepath.Join("testdata", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	Sample(t, 1, func(*testing.T) Harness { return Model() })
}

// A store in memory that is encoded and decoded at every crash, as a snapshot is.
func TestRestored(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		return restored(NewClock(), memstore.NewArchive(0))
	})
}

func restored(clock *Clock, archive *memstore.Archive) Harness {
	engine := memstore.New(memstore.Config{Archive: archive})
	rows := func() iter.Seq[kernel.Row] { return engine.Capture().Rows() }
	return Harness{
		Store:  &metastore.Local{Engine: engine, Now: clock.Now},
		Clock:  clock,
		Rows:   rows,
		Retain: archive,
		Crash: func(t *testing.T) Harness {
			var b []byte
			for row := range rows() {
				b = kernel.AppendRow(b, row)
			}
			h := restored(clock, archive)
			if err := h.Store.(*metastore.Local).Engine.(*memstore.Engine).Restore(decoded(b)); err != nil {
				t.Fatal(err)
			}
			return h
		},
	}
}

// decoded are the rows of a snapshot.
func decoded(b []byte) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for len(b) > 0 {
			row, rest, err := kernel.DecodeRow(b)
			if b = rest; !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func TestRestoreThenApply(t *testing.T) {
	RestoreThenApply(t, func(t *testing.T, from *memstore.Engine) *memstore.Engine {
		var b []byte
		for row := range from.Capture().Rows() {
			b = kernel.AppendRow(b, row)
		}
		restored := memstore.New(memstore.Config{})
		if err := restored.Restore(decoded(b)); err != nil {
			t.Fatal(err)
		}
		return restored
	})
}

// What a commit does to several runs of a job is one audit, which later commits leave as it is: it may have been
// exported.
func TestBulksAreOneAudit(t *testing.T) {
	h := Model()
	envelope := func(name string, c kernel.Command) kernel.Envelope {
		return kernel.Envelope{ID: kernel.DerivedID("bulks", name), Tenant: "default", Actor: "person:ann", Reason: "a reason", Command: c}
	}
	create := func(names ...string) {
		t.Helper()
		var batch []kernel.Envelope
		for _, name := range names {
			batch = append(batch, envelope(name, kernel.Create{ID: jobs.NewID(h.Clock.Now()), Key: "charge", Origin: kernel.FromPerson}))
		}
		if err := failed(h.Store.Apply(t.Context(), batch)); err != nil {
			t.Fatal(err)
		}
	}
	job := kernel.Declaration{Key: "charge", Kind: kernel.Triggered}
	if err := failed(h.Store.Apply(t.Context(), []kernel.Envelope{envelope("job", kernel.Register{App: "app", Worker: "w", Start: true, Job: job})})); err != nil {
		t.Fatal(err)
	}
	create("1", "2", "3")
	create("4", "5")
	list, err := h.Store.Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Since: 1})
	if err != nil || len(list) != 3 || string(list[1].After) != `{"runs":3}` || string(list[2].After) != `{"runs":2}` {
		t.Fatalf("audits of two bulks are %+v: %v", list, err)
	}
	for i, a := range list {
		if !bytes.Equal(a.Sum(), a.Hash) || i > 0 && !bytes.Equal(a.Prev, list[i-1].Hash) || a.Reason != "a reason" {
			t.Errorf("audit %d with the reason %q does not continue the chain", a.N, a.Reason)
		}
	}
}
