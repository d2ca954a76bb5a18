package httpjob_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// outside is a server beyond a bubble of virtual time. A waiting connection would stop the bubble's clock, so none
// does.
func outside(t *testing.T, answers http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(answers)
	s.Config.SetKeepAlivesEnabled(false)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A run whose target is paused is put off, reports why, and uses up no retry.
func TestS2_57RunsArePutOff(t *testing.T) {
	var tries atomic.Int32
	far := outside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" && tries.Add(1) <= 5 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	door := outside(t, http.NotFound)
	synctest.Test(t, func(t *testing.T) {
		p := &site{t: t, far: far, door: door}
		defer p.start("")()
		const spec = `{"request":[{"url":"FAR/x"}],"notification":[{"method":"POST","url":"FAR/noted","stateEquals":"finalFailed"},{"method":"POST","url":"FAR/noted","stateEquals":"circuit_open"}]}`
		p.make("first", spec, kernel.Settings{Retries: new(4), RetryDelay: new(time.Duration(0))})
		if run := p.run("first", ""); run.State != jobs.Terminated || run.Attempt != 5 {
			t.Fatalf("%s after %d", run.State, run.Attempt)
		}
		p.make("second", spec, kernel.Settings{Retries: new(0)})
		id := p.begin("second", "")
		time.Sleep(time.Minute)
		e, err := p.s.Ops().ExplainRun(t.Context(), ops.Who{}, id)
		if err != nil {
			t.Fatal(err)
		}
		run, target := e.Run, strings.TrimPrefix(far.URL, "http://")
		if run.State != jobs.Failed || run.Cause != kernel.BySnooze || run.Code() != httpjob.CodeCircuitOpen || run.Attempt != 1 || !strings.Contains(run.Error, target+" did not answer") {
			t.Errorf("%s by %s, attempt %d: put off by %q, %q", run.State, run.Cause, run.Attempt, run.Code(), run.Error)
		}
		if !strings.Contains(e.Why, "was postponed") || !strings.Contains(e.Why, target) {
			t.Errorf("explained: %s", e.Why)
		}
		begun := run.Started
		time.Sleep(90 * time.Second)
		run = p.end(id)
		if run.State != jobs.Succeeded || run.Failures != 0 || run.Started.Sub(begun) < 119*time.Second || run.Started.Sub(begun) > 3*time.Minute {
			t.Errorf("%s %s, %d failures, after %v", run.State, run.Error, run.Failures, run.Started.Sub(begun))
		}
		page, err := p.s.Ops().Runs(t.Context(), ops.Who{}, metastore.RunQuery{Parent: id, Limit: 10})
		if err != nil || len(page.Runs) != 0 {
			t.Errorf("its failure was notified: %+v, %v", page, err)
		}
	})
}

// A URL is good for as long as its run is; later reports are answered with the run's end.
func TestFeedbackAfterTheTimeout(t *testing.T) {
	var callback atomic.Pointer[string]
	far := outside(t, func(_ http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("callback"); to != "" {
			callback.Store(&to)
		}
	})
	door := outside(t, http.NotFound)
	synctest.Test(t, func(t *testing.T) {
		p := &site{t: t, far: far, door: door}
		defer p.start("")()
		p.make("short", calledBack, kernel.Settings{Timeout: new(10 * time.Second), Retries: new(0)})
		run := p.run("short", "")
		if run.State != jobs.Terminated || run.Cause != kernel.ByTimeout || run.Ended.Sub(run.Started) > 15*time.Second || callback.Load() == nil {
			t.Fatalf("%s by %s after %v", run.State, run.Cause, run.Ended.Sub(run.Started))
		}
		r := httptest.NewRequest("POST", *callback.Load(), strings.NewReader(`{"status":"succeed"}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		p.s.Handler().ServeHTTP(w, r)
		if body, _ := io.ReadAll(w.Body); w.Code != 409 || !strings.Contains(string(body), `"resp_code":409`) || !strings.Contains(string(body), "has finished") {
			t.Errorf("%d %s", w.Code, body)
		}
	})
}

// The outcome is polled at the rate of the job, after a first time soon; once a second by default.
func TestS2_19CheckRate(t *testing.T) {
	for rate, took := range map[string][2]time.Duration{`"checkRateSeconds":4,`: {8 * time.Second, 11 * time.Second}, ``: {2 * time.Second, 4 * time.Second}} {
		var checks atomic.Int32
		far := outside(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/check" && checks.Add(1) == 3 {
				_, _ = io.WriteString(w, `{"status":"succeed"}`)
				return
			}
			_, _ = io.WriteString(w, `{"progress":"1/2"}`)
		})
		door := outside(t, http.NotFound)
		synctest.Test(t, func(t *testing.T) {
			p := &site{t: t, far: far, door: door}
			defer p.start("")()
			p.make("rated", `{`+rate+`"async":true,"request":[{"url":"FAR/x"}],"checkUrl":"FAR/check"}`, kernel.Settings{})
			run := p.run("rated", "")
			if d := run.Ended.Sub(run.Started); run.State != jobs.Succeeded || d < took[0] || d > took[1] {
				t.Errorf("%s %s %s after %v", rate, run.State, run.Error, d)
			}
		})
	}
}

// A service in the cluster's network may get another URL than those outside; both lead to the same.
func TestS2_52InnerAndOuterURLs(t *testing.T) {
	p := &site{t: t, times: map[string]int{}, inner: "http://inner.example:7070/base/", answers: func(int, seen) (int, string) { return 200, "" }}
	p.serve()
	t.Cleanup(p.start(""))
	p.make("both", `{"async":true,"request":[{"url":"FAR/x?callback=${schedulingFeedbackUrl}&inner=${schedulingInnerFeedbackUrl}"}]}`, kernel.Settings{})
	id := p.begin("both", "")
	outer := p.callbacks(1)[0]
	inner := mustQuery(t, p.got()[0].path).Get("inner")
	path, is := strings.CutPrefix(inner, "http://inner.example:7070/base/")
	if !is || outer != p.door.URL+"/"+path {
		t.Errorf("outer %s, inner %s", outer, inner)
	}
	p.mustCallBack(outer, `{"status":"succeed"}`, 200)
	if run := p.end(id); run.State != jobs.Succeeded {
		t.Errorf("%s %s", run.State, run.Error)
	}
}
