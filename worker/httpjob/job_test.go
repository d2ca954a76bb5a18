package httpjob_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// seen is a request as the service got it.
type seen struct {
	method, path, body string
	header             http.Header
}

// site is a whole Carillon in this process, and a service whose answers a test controls.
type site struct {
	t       *testing.T
	s       *embed.Scheduler
	far     *httptest.Server
	mu      sync.Mutex
	asked   []seen
	answers func(n int, r seen) (int, string) // to the n-th request to a path, from 1
	times   map[string]int
	door    *httptest.Server // where others reach the API
	inside  atomic.Pointer[http.Handler]
	quiet   bool // it publishes no feedback URL
	breaker httpjob.Breaker
	inner   string // where neighbours reach the API
}

func newSite(t *testing.T, dir string, answers func(n int, r seen) (int, string)) *site {
	p := &site{t: t, answers: answers, times: map[string]int{}}
	p.serve()
	t.Cleanup(p.start(dir))
	return p
}

// serve starts the service.
func (p *site) serve() {
	p.far = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := seen{r.Method, r.URL.RequestURI(), string(body), r.Header}
		p.mu.Lock()
		p.asked = append(p.asked, got)
		p.times[r.URL.Path]++
		n := p.times[r.URL.Path]
		p.mu.Unlock()
		status, text := p.answers(n, got)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	p.t.Cleanup(p.far.Close)
}

// start begins the scheduler; stop ends it.
func (p *site) start(dir string) (stop func()) {
	p.t.Helper()
	if p.door == nil {
		p.door = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*p.inside.Load()).ServeHTTP(w, r) }))
		p.t.Cleanup(p.door.Close)
	}
	feedback := p.door.URL
	if p.quiet {
		feedback = ""
	}
	s, err := embed.Open(p.t.Context(), embed.Config{Dir: dir, Worker: worker.Config{Name: "here", Grace: -1}, HTTPJobs: &httpjob.Config{
		Guard:    httpjob.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
		Services: map[string]string{"far": p.far.URL, "jobswork": p.far.URL, "jobsclient": p.far.URL + "/client"}, Variables: map[string]string{"REGION": "eu"},
		Secrets:     httpspec.Secrets{"KEY": {Value: "s3cret", Hosts: []string{"127.0.0.1"}}},
		FeedbackURL: feedback, InnerFeedbackURL: p.inner,
		Breaker: p.breaker,
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	p.s = s
	p.inside.Store(new(s.Handler()))
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
	})
}

func (p *site) until(what string, fn func() bool) {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); !fn(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// make makes a triggered job of the app http.
func (p *site) make(key jobs.Key, spec string, more kernel.Settings) {
	p.t.Helper()
	more.HTTP = new(json.RawMessage(strings.ReplaceAll(spec, "FAR", p.far.URL)))
	p.until("a node leads", func() bool { return p.s.Ready(p.t.Context()) == nil })
	if _, err := p.s.Ops().Create(p.t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.Wanted{Key: key, Kind: kernel.Triggered, App: httpjob.App, Set: more}); err != nil {
		p.t.Fatal(err)
	}
}

// run runs a job and waits until that has finished.
func (p *site) run(key jobs.Key, args string) *kernel.Run {
	p.t.Helper()
	return p.end(p.begin(key, args))
}

func (p *site) begin(key jobs.Key, args string) jobs.ID {
	p.t.Helper()
	id := jobs.NewID(time.Now())
	k := kernel.Create{ID: id, Key: key, Origin: kernel.FromPerson}
	if args != "" {
		k.Args = []byte(args)
	}
	if _, err := p.s.Ops().Trigger(p.t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, k); err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *site) end(id jobs.ID) (run *kernel.Run) {
	p.t.Helper()
	p.until("the run has finished", func() bool {
		var err error
		run, err = p.s.Ops().Run(p.t.Context(), ops.Who{}, id)
		return err == nil && run.State.Final()
	})
	return run
}

// notices are the notifications of a run, once there are so many and all have finished: state and body.
func (p *site) notices(of jobs.ID, n int) []*kernel.Run {
	p.t.Helper()
	var list []*kernel.Run
	p.until(fmt.Sprintf("%d notifications", n), func() bool {
		page, err := p.s.Ops().Runs(p.t.Context(), ops.Who{}, metastore.RunQuery{Parent: of, Limit: 100})
		list = page.Runs
		over := 0
		for _, run := range list {
			if run.State.Final() {
				over++
			}
		}
		return err == nil && over == n && len(list) == n
	})
	return list
}

func (p *site) got() []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]seen(nil), p.asked...)
}

func TestS2_36RequestsInOrder(t *testing.T) {
	p := newSite(t, "", func(_ int, r seen) (int, string) {
		if r.path == "/first" {
			return 200, `{"a":{"b":"x y"},"n":12345678901234567890}`
		}
		return 200, `{"done":true}`
	})
	p.make("chain", `{"request":[{"url":"FAR/first","respEnvName":"ONE"},
		{"method":"POST","url":"service://far/second?q=${responses[0].a.b}&r=${REGION}","headers":{"Authorization":"Bearer ${secret:KEY}"},
		 "body":{"all":"${ONE}|json","n":"${$.n}|json","who":"${$.who}","job":"${jobId}","count":"${schedulingRequestCounts}|json"}}]}`, kernel.Settings{})
	run := p.run("chain", `{"who":"c\"7"}`)
	if run.State != jobs.Succeeded || string(run.Result) != `{"done":true}` {
		t.Fatalf("%s %s %s", run.State, run.Error, run.Result)
	}
	got := p.got()
	if len(got) != 2 || got[0].path != "/first" || got[1].path != "/second?q=x+y&r=eu" || got[1].header.Get("Authorization") != "Bearer s3cret" ||
		got[1].body != `{"all":{"a":{"b":"x y"},"n":12345678901234567890},"n":12345678901234567890,"who":"c\"7","job":"chain","count":2}` {
		t.Errorf("%+v", got)
	}
	if key := got[1].header.Get("Idempotency-Key"); key != run.ID.String()+"-2" {
		t.Errorf("key %s", key)
	}
}

// A rule's code is the status as text; another error goes by another rule, and no more attempts are made than all of
// them together allow.
func TestS2_38_39_40RetriesByStatus(t *testing.T) {
	p := newSite(t, "", func(n int, _ seen) (int, string) {
		return map[int]int{1: 500, 2: 404, 3: 500}[n] + map[bool]int{true: 200}[n > 3], `"busy"`
	})
	rules := []jobs.RetryRule{{Codes: []string{"500"}, Attempts: 2, Delay: 10 * time.Millisecond}, {Codes: []string{"404"}, Attempts: 1, Delay: 10 * time.Millisecond}}
	p.make("flaky", `{"request":[{"url":"FAR/flaky"}]}`, kernel.Settings{RetryRules: &rules, Retries: new(5)})
	if run := p.run("flaky", ""); run.State != jobs.Succeeded || run.Attempt != 4 || run.CodeOf(1) != "500" || run.CodeOf(2) != "404" || run.CodeOf(3) != "500" {
		t.Errorf("%s after %d attempts: %+v", run.State, run.Attempt, run.Faults)
	}
	p.make("capped", `{"request":[{"url":"FAR/flaky2"}]}`, kernel.Settings{RetryRules: &rules, Retries: new(1)})
	if run := p.run("capped", ""); run.State != jobs.Terminated || run.Attempt != 2 || run.Code() != "404" || !strings.Contains(run.Error, "busy") {
		t.Errorf("%s after %d attempts: %+v %s", run.State, run.Attempt, run.Faults, run.Error)
	}
}

// The outcome of an asynchronous job is polled until it is final, and each answer may be passed on.
func TestS2_43to49AsyncByCheck(t *testing.T) {
	tests.Long(t)
	p := newSite(t, "", func(n int, r seen) (int, string) {
		switch {
		case strings.HasPrefix(r.path, "/begin"):
			return 200, `{"ticket":7}`
		case strings.HasPrefix(r.path, "/check") && n == 1:
			return 200, `{"status":"","progress":"20/60","message":"well under way"}`
		case strings.HasPrefix(r.path, "/check") && n == 2:
			return 502, `no backend`
		case strings.HasPrefix(r.path, "/check") && n == 3:
			return 200, `{"status":"failed","error":"error1","message":"the disk is full"}`
		case strings.HasPrefix(r.path, "/check"):
			return 200, `{"status":"succeed","data":{"rows":3}}`
		}
		return 200, ``
	})
	p.make("long", `{"async":true,"checkRateSeconds":1,"request":[{"method":"POST","url":"FAR/begin?callback=${schedulingFeedbackUrl}","respEnvName":"T"}],
		"checkUrl":{"url":"FAR/check/${jobId}?executeNumber=${executeNumber}&ticket=${$.ticket}"},
		"notification":[{"method":"POST","url":"FAR/all","body":"${schedulingNotifyBody}|json"},
			{"method":"POST","url":"FAR/error1","stateEquals":"error1","body":{"notice":"${schedulingNotifyBody}|json","of":"${schedulingJobId}"}},
			{"method":"POST","url":"FAR/end","stateEquals":"finalSucceed","body":"${schedulingNotifyBody}|json"},
			{"method":"POST","url":"FAR/never","stateEquals":"finalFailed"}]}`,
		kernel.Settings{RetryRules: &[]jobs.RetryRule{{Codes: []string{"error1"}, Attempts: 1, Delay: 10 * time.Millisecond}}, Retries: new(5), Timeout: new(time.Minute)})
	run := p.run("long", "")
	if run.State != jobs.Succeeded || run.Attempt != 2 || run.CodeOf(1) != "error1" || string(run.Result) != `{"rows":3}` {
		t.Fatalf("%s %s after %d attempts: %+v %s", run.State, run.Error, run.Attempt, run.Faults, run.Result)
	}
	// in progress, failed, succeed, finalSucceed for all; one each for the others.
	p.notices(run.ID, 6)
	count := map[string]int{}
	for _, r := range p.got() {
		path, _, _ := strings.Cut(r.path, "?")
		count[path]++
		if path == "/error1" {
			var got struct {
				Notice struct {
					HTTPStatus string          `json:"httpStatus"`
					Response   httpspec.Report `json:"response"`
				} `json:"notice"`
				Of string `json:"of"`
			}
			if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.Of != "long" || got.Notice.HTTPStatus != "200" || got.Notice.Response.Error != "error1" ||
				got.Notice.Response.Status != "failed" || got.Notice.Response.Datetime == "" {
				t.Errorf("sent %s", r.body)
			}
		}
		if path == "/check/long" && r.path != "/check/long?executeNumber=1&ticket=7" {
			t.Errorf("asked %s", r.path)
		}
	}
	if want := map[string]int{"/begin": 2, "/check/long": 4, "/all": 4, "/error1": 1, "/end": 1}; fmt.Sprint(count) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", count, want)
	}
}

// finalFailed is sent once, when no attempt follows; and what was never allowed is never called.
func TestS2_44FinalFailedOnce(t *testing.T) {
	p := newSite(t, "", func(_ int, r seen) (int, string) {
		if r.path == "/end" {
			return 200, ""
		}
		return 503, "no"
	})
	p.make("bad", `{"request":[{"url":"FAR/bad"}],"notification":[{"method":"POST","url":"FAR/end","stateEquals":"finalFailed","body":"${schedulingNotifyBody}|json"}]}`,
		kernel.Settings{Retries: new(2), RetryDelay: new(time.Duration(0))})
	run := p.run("bad", "")
	if run.State != jobs.Terminated || run.Attempt != 3 {
		t.Fatalf("%s after %d", run.State, run.Attempt)
	}
	p.notices(run.ID, 1)
	p.make("blocked", `{"request":[{"url":"http://10.0.0.1/"}]}`, kernel.Settings{Retries: new(5)})
	if run := p.run("blocked", ""); run.State != jobs.Terminated || run.Attempt != 1 || run.Code() != httpjob.CodeBlocked {
		t.Errorf("%s after %d: %s %s", run.State, run.Attempt, run.Code(), run.Error)
	}
	ends := 0
	for _, r := range p.got() {
		if r.path == "/end" {
			ends++
			if !strings.Contains(r.body, `"status":"finalFailed"`) || !strings.Contains(r.body, `"error":"503"`) {
				t.Errorf("sent %s", r.body)
			}
		}
	}
	if ends != 1 {
		t.Errorf("sent %d times", ends)
	}
}
