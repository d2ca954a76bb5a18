package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
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
