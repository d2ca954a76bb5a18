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

// The version of the rules is a column of the store's own row. A program that does not know it neither opens the
// database nor commits to it, and one that leads ends.
func TestNewerRulesAreRefused(t *testing.T) {
	const newer = kernel.ApplyVersion + 1
	both(t, func(t *testing.T, url string) {
		old, s := open(t, Config{URL: url, Node: "old"}), open(t, Config{URL: url, knows: newer})
		do(t, s, register("k"))
		do(t, old, create("k"))
		raise := []kernel.Envelope{envelope(kernel.FinalizeUpgrade{To: newer}), envelope(create("k"))}
		if r := old.Apply(t.Context(), raise); !errors.Is(r[0].Err, jobs.Conflict) || r[1].Err != nil {
			t.Errorf("a program raises the version to one that it does not know: %v, %v", r[0].Err, r[1].Err)
		}
		leads, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- old.Lead(t.Context(), func(ctx context.Context, _ uint64) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}()
		<-leads
		do(t, s, kernel.FinalizeUpgrade{To: newer}, create("k"))
		if state, err := s.State(t.Context()); err != nil || state.InForce() != newer {
			t.Errorf("version %d is in force, %v", state.InForce(), err)
		}
		says := fmt.Sprintf("version %d of the rules, and this program knows version %d", newer, kernel.ApplyVersion)
		if r := old.Apply(t.Context(), []kernel.Envelope{envelope(create("k"))}); !errors.Is(r[0].Err, jobs.Unavailable) || !strings.Contains(r[0].Err.Error(), says) {
			t.Errorf("an older program commits: %v", r[0].Err)
		}
		select {
		case err := <-ended:
			if !errors.Is(err, metastore.ErrTooOld) {
				t.Errorf("it ends with %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("an older program continues to lead")
		}
		if _, err := Open(t.Context(), Config{URL: url}); !errors.Is(err, metastore.ErrTooOld) || !strings.Contains(err.Error(), says) {
			t.Errorf("an older program opens it: %v", err)
		}
		do(t, s, create("k"))
	})
}
