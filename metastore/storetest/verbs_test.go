package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// counting is a store that records which commands have an effect.
type counting struct {
	*metastore.Local
	seen map[kernel.Verb]bool
}

func (c counting) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	results := c.Local.Apply(ctx, batch)
	for i, r := range results {
		if r.Err == nil {
			c.seen[batch[i].Command.Verb()] = true
		}
	}
	return results
}

// unaudited are the commands that programs send: rows of runs and of the store record them. The audit of
// FinalizeUpgrade needs a second version of the rules.
var unaudited = []kernel.Verb{kernel.VerbFire, kernel.VerbStart, kernel.VerbUnstart, kernel.VerbFinish, kernel.VerbReturned, kernel.VerbCheckpoint, kernel.VerbExpire,
	kernel.VerbLead, kernel.VerbRefresh, kernel.VerbForget, kernel.VerbHand, kernel.VerbPurgeAudit, kernel.VerbMembers, kernel.VerbExpand,
	kernel.VerbExpect, kernel.VerbReport, kernel.VerbNotify, kernel.VerbTouch, kernel.VerbFinalizeUpgrade, kernel.VerbCheckIn,
	kernel.VerbRaiseAlarm, kernel.VerbSentAlarm, kernel.VerbPurgeAlarms}

// Each command has an effect in a story, and an audit if a person sends it or it changes a definition.
func TestEveryCommandHasAStory(t *testing.T) {
	seen, audited := map[kernel.Verb]bool{}, map[string]bool{}
	var models []Harness
	Retell(t, func(*testing.T) Harness {
		h := Model()
		h.Store = counting{h.Store.(*metastore.Local), seen}
		models = append(models, h)
		return h
	})
	for _, h := range models {
		for row := range h.Rows() {
			if a, ok := row.(*kernel.Audit); ok {
				audited[a.Verb] = true
			}
		}
	}
	for v := kernel.Verb(1); v <= kernel.NewestVerb; v++ {
		if v.String() == "?" {
			continue // a number that is kept free
		}
		if !seen[v] {
			t.Errorf("command %s has no story: read it in metastore/storetest/command.go, and add a file to metastore/storetest/testdata", v)
		}
		if want := !slices.Contains(unaudited, v); audited[v.String()] != want {
			t.Errorf("command %s writes an audit in a story: %v, want %v: audit it where metastore applies it, or change unaudited here", v, !want, want)
		}
	}
}

// keeping is a store that keeps the commands that it applies.
type keeping struct {
	*metastore.Local
	all *[]kernel.Command
}

func (k keeping) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for _, e := range batch {
		*k.all = append(*k.all, e.Command)
	}
	return k.Local.Apply(ctx, batch)
}

// No command leaves a row in a tenant that does not exist: a request of a tenant may arrive after that was deleted, and
// the next tenant of its name must find nothing of it, such as a target of alarms.
func TestNoCommandLeavesARowInNoTenant(t *testing.T) {
	var all []kernel.Command
	Retell(t, func(*testing.T) Harness {
		h := Model()
		h.Store = keeping{h.Store.(*metastore.Local), &all}
		return h
	})
	admin := func(h Harness, more ...kernel.Command) {
		t.Helper()
		for _, k := range more {
			if r := h.Store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:root", Command: k}}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
		}
	}
	for name, before := range map[string][]kernel.Command{
		"never was": nil,
		"deletion":  {kernel.SetTenant{Name: "gone", Create: true}, kernel.SuspendTenant{Name: "gone", On: true}, kernel.DeleteTenant{Name: "gone"}},
		"is gone":   {kernel.SetTenant{Name: "gone", Create: true}, kernel.SuspendTenant{Name: "gone", On: true}, kernel.DeleteTenant{Name: "gone"}, kernel.DropTenant{Name: "gone", Last: true}},
	} {
		h := Model()
		admin(h, before...)
		for _, k := range all {
			r := h.Store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: "gone", Actor: "person:bob", Command: k}})[0]
			for row := range h.Rows() {
				g, global := row.(*kernel.Global)
				if ref := row.Ref(); ref.Tenant == "gone" && (!global || g.Audits > 0 || name == "never was") {
					t.Errorf("%s: %s (%v) leaves %T", name, k.Verb(), r.Err, row)
					h = Model()
					admin(h, before...)
					break
				}
			}
		}
	}
}
