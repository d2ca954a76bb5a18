package storetest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// RestoreThenApply checks that an engine that was restored from a snapshot applies commands as the live one does, at
// every step of random lives: the same answers, the same rows, the same order of the ready runs. carry
// encodes an engine's rows and decodes them into a new one.
func RestoreThenApply(t *testing.T, carry func(t *testing.T, from *memstore.Engine) *memstore.Engine) {
	for seed := range uint64(tests.Size(1, 2, 4)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f, now, engine := newFate(seed), Start, memstore.New(memstore.Config{})
			f.whole = true
			for step := range tests.Size(60, 200, 200) {
				before := rows{}
				for r := range engine.Capture().Rows() {
					before[r.Ref()] = r
				}
				now = now.Add(f.pause())
				restored := carry(t, engine)
				metastore.Checked(f.batch(before, now), func(batch []kernel.Envelope) []metastore.Result {
					metastore.Stamp(batch, now, timeOf(before))
					want, got := applied(engine, batch), applied(restored, batch)
					for i := range batch {
						sameResult(t, batch[i], got[i], want[i])
					}
					return want
				})
				if engine.Hash() != restored.Hash() {
					t.Error("the restored engine has another fingerprint")
				}
				sameTurns(t, restored, engine)
				if t.Failed() {
					t.Fatalf("at step %d", step)
				}
			}
		})
	}
}

func applied(e *memstore.Engine, batch []kernel.Envelope) (results []metastore.Result) {
	e.Update(func(tx metastore.Tx) { results = metastore.ApplyBatch(tx, batch) })
	return results
}

// sameTurns checks that two engines start runs in the same order.
func sameTurns(t *testing.T, got, want *memstore.Engine) {
	t.Helper()
	apps, err := want.ReadyApps(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range apps {
		a, err := got.Ready(t.Context(), metastore.ReadyQuery{Tenant: l.Tenant, App: l.App, Limit: l.Ready})
		b, other := want.Ready(t.Context(), metastore.ReadyQuery{Tenant: l.Tenant, App: l.App, Limit: l.Ready})
		if err != nil || other != nil || len(a) != len(b) {
			t.Fatalf("%d runs of %s are ready, want %d: %v, %v", len(a), l.App, len(b), err, other)
		}
		for i := range a {
			if !bytes.Equal(kernel.AppendRow(nil, a[i]), kernel.AppendRow(nil, b[i])) {
				t.Errorf("ready run %d of %s is %s of %s, want %s of %s", i, l.App, a[i].ID, a[i].Queued.Format(time.StampMilli), b[i].ID, b[i].Queued.Format(time.StampMilli))
				return
			}
		}
	}
}
