package embed_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A request that is refused at a limit is counted by limit and tenant, one line in the log begins the episode and one
// ends it, and the overviews of those who can act name it until a while after its end.
func TestRefusalsAtLimitsAreSeen(t *testing.T) {
	register := func(start string, key jobs.Key, slots int) m {
		return m{"name": "py", "start": start, "app": "shop", "slots": slots, "jobs": []any{m{"key": key, "kind": "triggered"}}}
	}
	run := func(o *pollFixture, _, operator []string) (int, m) {
		return o.post(o.t.Context(), "/jobs/greet/trigger", m{}, operator...)
	}
	for _, c := range []struct {
		bound   kernel.Bound
		limits  embed.Limits
		memory  int64 // of the process
		does    func(o *pollFixture, worker, operator []string) (int, m)
		command bool // the request is a command
	}{
		{kernel.BoundMemory, embed.Limits{}, 1 << 20, run, true},
		{kernel.BoundWaitingOfToken, embed.Limits{WaitingRunsPerToken: 1}, 0, run, true},
		{kernel.BoundWaitingRuns, embed.Limits{WaitingRuns: 1}, 0, run, true},
		{kernel.BoundJobsOfApp, embed.Limits{JobsPerApp: 1}, 0, func(o *pollFixture, worker, _ []string) (int, m) {
			return o.post(o.t.Context(), "/worker/register", register("b", "more", 1), worker...)
		}, true},
		{kernel.BoundAlarmTargets, embed.Limits{}, 0, func(o *pollFixture, _, _ []string) (int, m) {
			who := ops.Who{Tenant: "acme", Actor: "person:ann", Role: ops.Admin}
			for i := range kernel.MaxAlarmTargets + 1 {
				target := kernel.AlarmTarget{Name: fmt.Sprint("t", i), Kind: "slack", URL: "https://hooks.example/1"}
				if err := o.Ops().SetAlarmTarget(o.t.Context(), who, target, false); err != nil {
					return 429, m{"code": string(jobs.CodeOf(err))}
				}
			}
			return 200, nil
		}, true},
		{kernel.BoundHTTPOfToken, embed.Limits{HTTPWorkersPerToken: 1}, 0, func(o *pollFixture, worker, _ []string) (int, m) {
			return o.post(o.t.Context(), "/worker/register", register("c", "greet", 1), worker...)
		}, false},
		{kernel.BoundHTTPWorkers, embed.Limits{HTTPWorkers: 1}, 0, func(o *pollFixture, worker, _ []string) (int, m) {
			return o.post(o.t.Context(), "/worker/register", register("c", "greet", 1), worker...)
		}, false},
	} {
		t.Run(string(c.bound), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				o := newOffice(t, embed.Config{Tokens: true, Limits: c.limits, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				worker := o.bearer("acme", ops.NewToken{Name: "crew", Role: "worker", App: "shop"})
				operator := o.bearer("acme", ops.NewToken{Name: "ann", Role: "operator"})
				viewer := o.bearer("", ops.NewToken{Name: "prometheus", Role: "viewer"})
				if status, response := o.post(t.Context(), "/worker/register", register("a", "greet", 1), worker...); status != 200 {
					t.Fatal(status, response)
				}
				if c.memory > 0 {
					defer debug.SetMemoryLimit(debug.SetMemoryLimit(c.memory))
					time.Sleep(time.Second) // the limit is read again
				}
				last := 200
				for range 3 {
					if status, response := c.does(o, worker, operator); status == 429 {
						last = status
						if response["code"] != "exhausted" {
							t.Errorf("%d %v", status, response)
						}
					}
				}
				debug.SetMemoryLimit(math.MaxInt64)
				if last != 429 {
					t.Fatal("nothing was refused")
				}
				synctest.Wait()
				metrics := o.metrics(viewer)
				n := 0
				for line := range strings.Lines(metrics) {
					if rest, is := strings.CutPrefix(line, fmt.Sprintf(`carillon_limit_refusals_total{limit="%s",tenant="acme"} `, c.bound)); is {
						fmt.Sscan(rest, &n)
					}
				}
				if n == 0 || c.command && !strings.Contains(metrics, fmt.Sprintf(`carillon_commands_refused_total{code="exhausted"} %d`, n)) {
					t.Errorf("%d refusals are counted; metrics:\n%s", n, metrics)
				}
				if got := strings.Count(log.String(), `msg="requests are refused at a limit" limit=`+string(c.bound)+" tenant=acme"); got != 1 {
					t.Errorf("%d lines begin an episode:\n%s", got, log.String())
				}
				shows := func(tenant jobs.Tenant) (texts []string) {
					t.Helper()
					v, err := o.Ops().Overview(t.Context(), ops.Who{Tenant: tenant, Actor: "person:ann", Role: ops.Viewer})
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range v.Attention {
						if a.Kind == ops.AtLimit && a.N == n {
							texts = append(texts, a.Text)
						}
					}
					return texts
				}
				says := fmt.Sprint("at the limit ", c.bound, ": too many")
				if c.bound == kernel.BoundMemory {
					says = "at the limit memory: too little memory: the leader holds "
				}
				time.Sleep(2 * time.Second)
				if got := shows("acme"); len(got) != 1 || !strings.Contains(got[0], says) || !strings.Contains(got[0], " refused since ") {
					t.Errorf("the tenant's overview shows %q, want %q", got, says)
				}
				if got := shows(""); (len(got) == 1) != c.bound.OfServer() {
					t.Errorf("the server's overview shows %q", got)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := log.String(); !strings.Contains(got, `msg="requests are refused at a limit: ended" limit=`+string(c.bound)) || !strings.Contains(got, fmt.Sprint("count=", n)) {
					t.Errorf("no line ends the episode of %d:\n%s", n, got)
				}
				if got := shows("acme"); len(got) != 1 || !strings.Contains(got[0], " refused until ") {
					t.Errorf("after its end the overview shows %q", got)
				}
				time.Sleep(10 * time.Minute)
				if got := shows("acme"); len(got) != 0 {
					t.Errorf("long after its end the overview shows %q", got)
				}
			})
		})
	}
}

// metrics returns the text of /metrics.
func (o *pollFixture) metrics(headers []string) string {
	r := httptest.NewRequestWithContext(o.t.Context(), "GET", "/metrics", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, r)
	return w.Body.String()
}
