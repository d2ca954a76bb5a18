package httpjob_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// callbacks are the feedback URLs that a server got, in order.
func (p *site) callbacks(n int) []string {
	p.t.Helper()
	var all []string
	p.until("a service has got a feedback URL", func() bool {
		all = nil
		for _, r := range p.got() {
			if u, err := url.Parse(r.path); err == nil && u.Query().Get("callback") != "" {
				all = append(all, u.Query().Get("callback"))
			}
		}
		return len(all) >= n
	})
	return all
}

// callBack posts a report, and returns the status, the code and the text of the answer.
func (p *site) callBack(to, report string) (int, float64, string) {
	p.t.Helper()
	response, err := http.Post(to, "application/json", strings.NewReader(report))
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	var answer map[string]any
	if err := json.Unmarshal(raw, &answer); err != nil {
		p.t.Fatalf("%s: %v", raw, err)
	}
	code, _ := answer["resp_code"].(float64)
	text, _ := answer["resp_msg"].(string)
	return response.StatusCode, code, text
}

func (p *site) mustCallBack(to, report string, want int) string {
	p.t.Helper()
	status, code, text := p.callBack(to, report)
	if status != want || int(code) != want {
		p.t.Errorf("%s: %d, resp_code %v, %s; want %d", report, status, code, text, want)
	}
	return text
}

// progress returns the progress that a run shows.
func (p *site) progress(id jobs.ID) string {
	now, _ := p.s.Ops().Live().Attempt(jobs.DefaultTenant, id)
	if now.Progress == nil {
		return ""
	}
	return strings.TrimSpace(strings.Join([]string{number(now.Progress.Done), number(now.Progress.Total), now.Progress.Text}, " "))
}

func number(n int64) string { raw, _ := json.Marshal(n); return string(raw) }

const calledBack = `{"async":true,"request":[{"method":"POST","url":"FAR/begin?callback=${schedulingFeedbackUrl}"}],
	"notification":[{"method":"POST","url":"FAR/noted","body":"${schedulingNotifyBody}|json"}]}`

// The service reports its progress, and the outcome, at a URL that is good for one attempt of one run.
func TestS2_07FeedbackEndsTheRun(t *testing.T) {
	tests.Long(t)
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{"ticket":7}` })
	p.make("long", calledBack, kernel.Settings{Timeout: new(time.Hour)})
	id := p.begin("long", "")
	to := p.callbacks(1)[0]
	if !strings.HasPrefix(to, p.door.URL+"/api/v1/seed/jobs/long/feedback/1?") {
		t.Errorf("called back at %s", to)
	}
	p.mustCallBack(to, `{"progress":"20/60","message":"well under way"}`, 200)
	p.until("the progress is seen", func() bool { return p.progress(id) == "20 60 well under way" })
	p.mustCallBack(to, `{"progress":"30%","message":"a third"}`, 200)

	// Invalid reports, and forged URLs.
	if text := p.mustCallBack(to, `{"status":"perhaps"}`, 422); !strings.Contains(text, "status") {
		t.Errorf("refused by %s", text)
	}
	other := strings.Replace(to, "token=", "token=A", 1)
	unknown := p.mustCallBack(other, `{"status":"succeed"}`, 401)
	for what, wrong := range map[string]string{
		"another job": strings.Replace(to, "/long/", "/longer/", 1), "another request": strings.Replace(to, "/feedback/1?", "/feedback/2?", 1),
		"another attempt": strings.Replace(to, "attempt=1", "attempt=2", 1), "no attempt": strings.Replace(to, "attempt=1", "", 1),
		"another run": strings.Replace(to, "run="+id.String(), "run="+jobs.NewID(time.Now()).String(), 1), "no token": to[:strings.Index(to, "token=")],
		"another tenant": to + "&tenant=acme",
	} {
		if text := p.mustCallBack(wrong, `{"status":"perhaps"}`, 401); text != unknown {
			t.Errorf("%s is answered with %q, and a wrong token with %q", what, text, unknown)
		}
	}

	p.mustCallBack(to, `{"status":"succeed","data":{"rows":3}}`, 200)
	if run := p.end(id); run.State != jobs.Succeeded || run.Attempt != 1 || string(run.Result) != `{"rows":3}` {
		t.Errorf("%s %s %s", run.State, run.Error, run.Result)
	}
	// A repeated report gets the same answer, and changes nothing.
	p.mustCallBack(to, `{"status":"succeed","data":{"rows":3}}`, 200)
	p.mustCallBack(to, `{"status":"failed"}`, 200)
	// Each report was passed on: two of progress, the outcome, the end.
	p.notices(id, 4)
	token := mustQuery(t, to).Get("token")
	var lines []metastore.LogLine
	p.until("the request is in the log", func() bool {
		var err error
		lines, err = p.s.Ops().Log(context.Background(), ops.Who{}, id, metastore.LogPosition{}, 1000)
		return err == nil && slices.ContainsFunc(lines, func(l metastore.LogLine) bool { return strings.Contains(l.Text, "token%3D***") })
	})
	for _, line := range lines {
		if strings.Contains(line.Text, token) {
			t.Errorf("the log shows by which token others are known: %s", line.Text)
		}
	}
}

func mustQuery(t *testing.T, at string) url.Values {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query()
}

// A failure has the code that the service reports; the next attempt has a URL of its own, and the older one has
// expired.
func TestS2_39FeedbackDrivesRetries(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `` })
	p.make("long", calledBack, kernel.Settings{RetryRules: &[]jobs.RetryRule{{Codes: []string{"error1"}, Attempts: 1, Delay: 10 * time.Millisecond}}, Retries: new(5)})
	id := p.begin("long", "")
	first := p.callbacks(1)[0]
	p.mustCallBack(first, `{"status":"failed","error":"error1","message":"the disk is full"}`, 200)
	second := p.callbacks(2)[1]
	p.mustCallBack(first, `{"status":"succeed"}`, 401) // signed by the key of another attempt
	p.mustCallBack(second, `{"status":"succeed"}`, 200)
	if run := p.end(id); run.State != jobs.Succeeded || run.Attempt != 2 || run.CodeOf(1) != "error1" {
		t.Errorf("%s %s after %d attempts: %+v", run.State, run.Error, run.Attempt, run.Faults)
	}
}

// Without a feedback URL the run fails with that reason, and is not retried.
func TestFeedbackNeedsAURL(t *testing.T) {
	p := &site{t: t, times: map[string]int{}, quiet: true, answers: func(int, seen) (int, string) { return 200, "" }}
	p.serve()
	t.Cleanup(p.start(""))
	p.make("long", calledBack, kernel.Settings{Retries: new(5)})
	if run := p.run("long", ""); run.State != jobs.Terminated || run.Attempt != 1 || !strings.Contains(run.Error, "http-jobs.feedback-url") {
		t.Errorf("%s after %d: %s", run.State, run.Attempt, run.Error)
	}
	if len(p.got()) > 0 && p.got()[0].path != "/noted" {
		t.Errorf("the request was made: %+v", p.got()[0])
	}
}

// With qos 1, the next attempt waits for callbacks to an earlier one, too, and they are accepted as before.
func TestS2_54FeedbackOutlivesTheWorker(t *testing.T) {
	for qos, asked := range map[string]int{"1": 1, "0": 2} {
		t.Run("qos "+qos, func(t *testing.T) {
			dir := t.TempDir()
			p := &site{t: t, times: map[string]int{}, answers: func(int, seen) (int, string) { return 200, "" }}
			p.serve()
			stop := p.start(dir)
			p.make("long", strings.Replace(calledBack, `{"async"`, `{"qos":`+qos+`,"async"`, 1), kernel.Settings{})
			id := p.begin("long", "")
			to := p.callbacks(1)[0]
			p.mustCallBack(to, `{"progress":"1/2"}`, 200)
			if qos == "1" { // the answer to the request is kept
				p.until("the step is kept", func() bool {
					run, err := p.s.Ops().Run(context.Background(), ops.Who{}, id)
					return err == nil && strings.Contains(string(run.Checkpoint), `"step":1`)
				})
			}
			stop()
			stop = p.start(dir)
			defer stop()
			to = p.callbacks(asked)[asked-1]
			p.until("a node leads", func() bool { return p.s.Ready(t.Context()) == nil })
			p.mustCallBack(to, `{"status":"succeed","data":{"rows":3}}`, 200)
			if run := p.end(id); run.State != jobs.Succeeded || string(run.Result) != `{"rows":3}` || run.Attempt != 2 {
				t.Errorf("%s %s after %d: %s", run.State, run.Error, run.Attempt, run.Result)
			}
			if n := len(p.callbacks(asked)); n != asked {
				t.Errorf("asked %d times, want %d", n, asked)
			}
		})
	}
}
