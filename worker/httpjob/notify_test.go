package httpjob_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// A notification that is not delivered is sent again three times, every 20 s, and then ever more seldom until it is,
// long after its run has finished.
func TestS2_45NotificationsAreSentUntilDelivered(t *testing.T) {
	var tries atomic.Int32
	far := outside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/noted" && tries.Add(1) < 7 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	door := outside(t, http.NotFound)
	synctest.Test(t, func(t *testing.T) {
		p := &site{t: t, far: far, door: door}
		defer p.start("")()
		p.make("work", `{"request":[{"url":"FAR/x"}],"notification":[{"method":"POST","url":"FAR/noted","stateEquals":"finalSucceed","body":"${schedulingNotifyBody}|json"}]}`, kernel.Settings{})
		run := p.run("work", "")
		if run.State != jobs.Succeeded {
			t.Fatalf("%s %s", run.State, run.Error)
		}
		time.Sleep(time.Hour)
		page, err := p.s.Ops().Runs(t.Context(), ops.Who{}, metastore.RunQuery{Parent: run.ID, Limit: 10})
		if err != nil || len(page.Runs) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		note, err := p.s.Ops().Run(t.Context(), ops.Who{}, page.Runs[0].ID)
		if err != nil || note.State != jobs.Succeeded || note.Attempt != 7 {
			t.Fatalf("%+v, %v", note, err)
		}
		want := []time.Duration{20 * time.Second, 20 * time.Second, 20 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute}
		var failed time.Time
		for _, m := range note.Moves {
			switch {
			case m.State == jobs.Failed:
				failed = m.At
			case m.State == jobs.Processing && m.Attempt > 1:
				if gap, want := m.At.Sub(failed), want[m.Attempt-2]; gap < want || gap > want+5*time.Second {
					t.Errorf("attempt %d came %v after the last, want %v", m.Attempt, gap, want)
				}
			}
		}
	})
}
