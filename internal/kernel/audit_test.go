package kernel

import (
	"encoding/hex"
	"testing"
	"time"
)

// The hashes of exported lines are verified by other programs, and by later versions of this one. These come from a
// program of ten lines in Python, by docs/audit.md.
func TestAuditSumGolden(t *testing.T) {
	at := time.Date(2026, 11, 27, 8, 30, 0, 120_000_000, time.UTC)
	first := &Audit{Tenant: "default", N: 1, At: at, Actor: "person:ann", Reason: "too slow", Verb: "edit", Target: "job billing.charge",
		Before: []byte(`{"retries":0}`), After: []byte(`{"retries":3}`)}
	first.Hash = first.Sum()
	second := &Audit{Tenant: "default", N: 2, At: at.In(time.FixedZone("", 3600)), Actor: "person:bob", Verb: "sign-in", Target: "token k3x9a2bq (bob)", From: "192.0.2.7", Prev: first.Hash}
	for i, want := range []string{
		"0b7991d6963a61fb5827b2dee534f827442a1c41143ba5734170fcf28ad104c4",
		"f864e6376f1a1a0c51b60b3b6386e2e7f412c9f56edf7533d95e8bcaac05833b",
	} {
		if got := hex.EncodeToString([]*Audit{first, second}[i].Sum()); got != want {
			t.Errorf("the hash of audit %d is %s, want %s: a changed form needs a new number in auditForm", i+1, got, want)
		}
	}
}

// No two audits have the same hash: each field counts, and text cannot move from one field to the next.
func TestAuditSumCoversEveryField(t *testing.T) {
	a := filled[Audit](1)
	seen := map[string]string{hex.EncodeToString(a.Sum()): "no change"}
	for name, change := range map[string]func(*Audit){
		"tenant": func(a *Audit) { a.Tenant += "x" }, "number": func(a *Audit) { a.N++ }, "time": func(a *Audit) { a.At = a.At.Add(1) },
		"actor": func(a *Audit) { a.Actor += "x" }, "reason": func(a *Audit) { a.Reason += "x" }, "verb": func(a *Audit) { a.Verb += "x" },
		"target": func(a *Audit) { a.Target += "x" }, "before": func(a *Audit) { a.Before = nil }, "after": func(a *Audit) { a.After = nil },
		"from": func(a *Audit) { a.From += "x" }, "prev": func(a *Audit) { a.Prev = nil },
		"actor to reason": func(a *Audit) { a.Actor, a.Reason = "", a.Actor+a.Reason },
	} {
		b := a
		change(&b)
		sum := hex.EncodeToString(b.Sum())
		if was := seen[sum]; was != "" {
			t.Errorf("%s: the hash is that of %s", name, was)
		}
		seen[sum] = name
	}
}
