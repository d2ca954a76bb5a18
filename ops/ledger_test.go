package ops_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// A ledger contains the time from which retention has purged no run: the start of keepFor, or the end of the oldest run
// that a limit of numbers keeps.
func TestLedgerIsCompleteFrom(t *testing.T) {
	begin := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name                      string
		keepFor                   time.Duration
		keepSucceeded, keepOthers int
		want                      time.Time
	}{
		{"no limit", 0, 0, 0, time.Time{}},
		{"a duration", 3*time.Hour + 30*time.Minute, 0, 0, begin.Add(3 * time.Hour)},
		{"a number", 0, 2, 0, begin.Add(3*time.Hour + time.Minute)},
		{"a number that is not reached", 0, 4, 0, time.Time{}},
		{"a number of others", 0, 0, 3, begin.Add(2*time.Hour + time.Minute)},
		{"the latest counts", 4*time.Hour + 30*time.Minute, 2, 3, begin.Add(3*time.Hour + time.Minute)},
	} {
		now := begin
		store := &metastore.Local{Engine: memstore.New(memstore.Config{Archive: memstore.NewArchive(0)}), Now: func() time.Time { return now }}
		must := func(k kernel.Command) {
			t.Helper()
			if r := store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: "default", Actor: "person:ann", Command: k}})[0]; r.Err != nil {
				t.Fatalf("%s: %s: %v", c.name, k.Verb(), r.Err)
			}
		}
		code := kernel.Settings{Schedule: new("@hourly"), KeepFor: &c.keepFor, KeepSucceeded: &c.keepSucceeded, KeepOthers: &c.keepOthers}
		must(kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "tick", Kind: kernel.Recurring, Code: code}})
		must(kernel.Lead{Term: 1, Node: "n1"})
		d, err := store.Definition(t.Context(), "default", "tick")
		if err != nil {
			t.Fatal(err)
		}
		for n := range 6 { // those due at 1, 3 and 5 succeed, the others fail; each takes a minute
			due := begin.Add(time.Duration(n+1) * time.Hour)
			now = due
			must(kernel.Fire{Key: "tick", Job: d.UID, Revision: d.Revision, Term: 1, From: due.Add(-time.Hour), To: due, Due: []time.Time{due}})
			id := kernel.DueID("default", d.UID, due, 0, 0)
			must(kernel.Start{ID: id, Worker: "w1", Attempt: 1, Term: 1})
			now = due.Add(time.Minute)
			outcome := kernel.OutcomeSuccess
			if n%2 == 1 {
				outcome = kernel.OutcomeFatal
			}
			must(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: outcome})
		}
		now = begin.Add(6*time.Hour + 30*time.Minute)
		verbs := ops.New(ops.Config{Store: store, Now: func() time.Time { return now }})
		var file bytes.Buffer
		if err := verbs.ExportLedger(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.LedgerRange{Job: "tick", From: begin}, &file); err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(file.String(), "\n")
		var h ledgerfile.Header
		if err := json.Unmarshal([]byte(line), &h); err != nil {
			t.Fatal(err)
		}
		if got := h.Jobs[0].Complete; !got.Equal(c.want) {
			t.Errorf("%s: complete from %v, want %v", c.name, got, c.want)
		}
	}
}

// A second export waits for its turn, and a range without time is refused, before anything is written.
func TestLedgerIsRefused(t *testing.T) {
	store := &metastore.Local{Engine: memstore.New(memstore.Config{})}
	verbs := ops.New(ops.Config{Store: store})
	who := ops.Who{Actor: "person:ann", Role: ops.Admin}
	var file bytes.Buffer
	if err := verbs.ExportLedger(t.Context(), who, ops.LedgerRange{From: time.Now().Add(time.Hour)}, &file); !errors.Is(err, jobs.BadInput) || file.Len() > 0 {
		t.Errorf("a range in the future: %v, %q", err, &file)
	}
	if err := verbs.ExportLedger(t.Context(), who, ops.LedgerRange{Job: "none", From: time.Now().Add(-time.Hour)}, &file); !errors.Is(err, jobs.NotFound) || file.Len() > 0 {
		t.Errorf("a job that does not exist: %v, %q", err, &file)
	}
	scoped := ops.Who{Actor: "person:bob", Role: ops.Operator, Scope: &kernel.Scope{Keys: []string{"billing.*"}}}
	if err := verbs.ExportLedger(t.Context(), scoped, ops.LedgerRange{From: time.Now().Add(-time.Hour)}, &bytes.Buffer{}); err != nil {
		t.Errorf("who may act on some jobs may read all: %v", err)
	}
	second := exporter(func([]byte) {
		if err := verbs.ExportLedger(t.Context(), who, ops.LedgerRange{From: time.Now().Add(-time.Hour)}, &file); !errors.Is(err, jobs.Exhausted) {
			t.Errorf("a second export at the same time: %v", err)
		}
	})
	if err := verbs.ExportLedger(t.Context(), who, ops.LedgerRange{From: time.Now().Add(-time.Hour)}, second); err != nil {
		t.Error(err)
	}
}

type exporter func([]byte)

func (e exporter) Write(b []byte) (int, error) { e(b); return len(b), nil }
