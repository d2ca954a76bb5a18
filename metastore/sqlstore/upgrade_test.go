package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Entries of the log and snapshots name the version of the rules in force. A program that does not know it neither opens
// the database nor commits to it, and one that waits to lead ends.
func TestNewerRulesAreRefused(t *testing.T) {
	const newer = kernel.ApplyVersion + 1
	both(t, func(t *testing.T, url string) {
		old, s := open(t, Config{URL: url, Node: "old"}), open(t, Config{URL: url, knows: newer})
		stop := leading(t, old)
		do(t, old, register("k"))
		raise := []kernel.Envelope{envelope(kernel.FinalizeUpgrade{To: newer}), envelope(create("k"))}
		if r := old.Apply(t.Context(), raise); !errors.Is(r[0].Err, jobs.Conflict) || r[1].Err != nil {
			t.Errorf("a program raises the version to one that it does not know: %v, %v", r[0].Err, r[1].Err)
		}
		stop()
		leading(t, s)
		ended := make(chan error, 1)
		go func() {
			ended <- old.Lead(t.Context(), func(ctx context.Context, _ uint64) error {
				<-ctx.Done()
				return nil
			})
		}()
		do(t, s, kernel.FinalizeUpgrade{To: newer}, create("k"))
		if state, err := s.State(t.Context()); err != nil || state.InForce() != newer || s.ApplyVersion() != newer {
			t.Errorf("version %d is in force, %v", state.InForce(), err)
		}
		says := fmt.Sprintf("version %d of the rules, and this program knows version %d", newer, kernel.ApplyVersion)
		for what, ch := range map[string]<-chan error{"Lead": ended, "Err": old.Err()} {
			select {
			case err := <-ch:
				if !errors.Is(err, metastore.ErrTooOld) {
					t.Errorf("%s of an older program: %v", what, err)
				}
			case <-time.After(2 * time.Minute):
				t.Errorf("an older program continues: %s", what)
			}
		}
		if r := old.Apply(t.Context(), []kernel.Envelope{envelope(create("k"))}); !errors.Is(r[0].Err, jobs.Unavailable) || !strings.Contains(r[0].Err.Error(), says) {
			t.Errorf("an older program commits: %v", r[0].Err)
		}
		if err := old.Linearizable(t.Context()); !errors.Is(err, jobs.Unavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("an older program is up to date: %v", err)
		}
		refused := func(when string) {
			t.Helper()
			if _, err := Open(t.Context(), Config{URL: url}); !errors.Is(err, metastore.ErrTooOld) || !strings.Contains(err.Error(), says) {
				t.Errorf("an older program opens it %s: %v", when, err)
			}
		}
		refused("by the log")
		if err := s.log.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused("by a snapshot")
		do(t, s, create("k"))
	})
}
