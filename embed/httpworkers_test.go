package embed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// pollFixture is a scheduler that is asked for work over its API, in a bubble's time.
type pollFixture struct {
	t *testing.T
	*embed.Scheduler
}

func newOffice(t *testing.T, cfg embed.Config) *pollFixture {
	t.Helper()
	s, err := embed.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	o := &pollFixture{t, s}
	t.Cleanup(func() { o.shut() })
	return o
}

func (o *pollFixture) shut() {
	if o.Scheduler != nil {
		if err := o.Stop(); err != nil {
			o.t.Error(err)
		}
		o.Scheduler = nil
	}
}

// post asks, and answers with the status and what came back.
func (o *pollFixture) post(ctx context.Context, path string, body any, headers ...string) (int, map[string]any) {
	o.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		o.t.Fatal(err)
	}
	if text, ok := body.(string); ok {
		raw = []byte(text)
	}
	r := httptest.NewRequestWithContext(ctx, "POST", "/api/v1"+path, strings.NewReader(string(raw)))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, r)
	var found map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &found); err != nil {
			o.t.Errorf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Code, found
}

// poller is a worker over HTTP.
type poller struct {
	o    *pollFixture
	name string
	jobs []any
	got  string
	runs []map[string]any // that it has taken
}

type m = map[string]any

// hire registers a worker that has the job "greet", with these settings.
func (o *pollFixture) hire(start string, slots int, settings m) *poller {
	o.t.Helper()
	p := &poller{o: o, jobs: []any{m{"key": "greet", "kind": "triggered", "settings": settings}}}
	p.register(start, slots, 200)
	return p
}

func (p *poller) register(start string, slots, want int) m {
	p.o.t.Helper()
	var runs []any
	for _, r := range p.runs {
		runs = append(runs, m{"run": r["run"], "attempt": r["attempt"]})
	}
	body := m{"name": "py", "start": start, "app": "shop", "slots": slots, "jobs": p.jobs}
	if runs != nil {
		body["runs"] = runs
	}
	code, response := p.o.post(context.Background(), "/worker/register", body)
	if code != want {
		p.o.t.Fatalf("register: %d: %v", code, response)
	}
	p.name = "py-" + start
	return response
}

// send sends a request about an attempt, or about the worker.
func (p *poller) send(want int, verb string, of m, more m) m {
	p.o.t.Helper()
	body := m{"worker": p.name}
	if of != nil {
		body["run"], body["attempt"] = of["run"], of["attempt"]
	}
	for k, v := range more {
		body[k] = v
	}
	code, response := p.o.post(context.Background(), "/worker/"+verb, body)
	if code != want {
		p.o.t.Errorf("%s: %d, want %d: %v", verb, code, want, response)
	}
	return response
}

// poll takes runs.
func (p *poller) poll(want int, wait float64) []m {
	p.o.t.Helper()
	response := p.send(200, "poll", nil, m{"want": want, "got": p.got, "waitSeconds": wait})
	p.got, _ = response["batch"].(string)
	var list []m
	runs, _ := response["runs"].([]any)
	for _, r := range runs {
		list = append(list, r.(m))
	}
	p.runs = append(p.runs, list...)
	return list
}

func (p *poller) one() m {
	p.o.t.Helper()
	list := p.poll(1, 30)
	if len(list) != 1 {
		p.o.t.Fatalf("%d runs came", len(list))
	}
	return list[0]
}

func (o *pollFixture) trigger(args string, how ...jobs.EnqueueOption) jobs.ID {
	o.t.Helper()
	run, err := jobs.Trigger[json.RawMessage]("greet").Enqueue(o.t.Context(), o.Client(), json.RawMessage(args), how...)
	if err != nil {
		o.t.Fatal(err)
	}
	return run.ID
}

func (o *pollFixture) row(id any) *kernel.Run {
	o.t.Helper()
	synctest.Wait()
	run, ok := id.(jobs.ID)
	if !ok {
		run, _ = jobs.ParseID(id.(string))
	}
	found, err := o.Ops().Run(o.t.Context(), ops.Who{}, run)
	if err != nil {
		o.t.Fatal(err)
	}
	return found
}

func (o *pollFixture) want(id any, state jobs.State, cause kernel.Cause, attempt uint32) *kernel.Run {
	o.t.Helper()
	run := o.row(id)
	if run.State != state || run.Cause != cause || run.Attempt != attempt {
		o.t.Errorf("the run is %v (%s) after %d attempts, want %v (%s) after %d; error %q", run.State, run.Cause, run.Attempt, state, cause, attempt, run.Error)
	}
	return run
}

func stops(response m) (list []string) {
	all, _ := response["stop"].([]any)
	for _, s := range all {
		h := s.(m)
		list = append(list, fmt.Sprint(h["why"], " ", h["attempt"]))
	}
	return list
}

// An HTTP worker can do what every worker can: it gets arguments, writes to the log, reports progress, stores a
// checkpoint and a result, fails with a code, snoozes, and is notified of a cancel and a timeout.
func TestPullWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{})
		p := o.hire("a1", 4, m{"retries": 3, "retryRules": []any{m{"codes": []string{"busy"}, "delay": "10s"}}, "timeout": "60s"})

		id := o.trigger(`{"name":"Ann","none":null}`)
		run := p.one()
		if args := run["args"].(m); run["run"] != id.String() || args["name"] != "Ann" || run["job"] != "greet" || run["secondsLeft"].(float64) < 59 {
			t.Errorf("the run is %v", run)
		}
		o.want(id, jobs.Processing, "", 1)
		p.send(204, "progress", run, m{"done": 1, "total": 3, "text": "one of three"})
		lines := m{"first": 1, "lines": []any{m{"text": "hello"}, m{"level": "WARN", "text": "careful"}}}
		p.send(204, "logs", run, lines)
		p.send(204, "logs", run, lines) // the answer was lost
		p.send(204, "logs", run, m{"first": 2, "lines": []any{m{"text": "careful, again"}, m{"text": "bye"}}})
		p.send(204, "checkpoint", run, m{"data": m{"at": 3, "of": nil}})
		time.Sleep(4 * time.Second)
		p.send(200, "heartbeat", nil, nil)
		now, _ := o.Ops().Live().Attempt(jobs.DefaultTenant, id)
		if now.Progress == nil || now.Progress.Text != "one of three" {
			t.Errorf("its progress is %+v", now.Progress)
		}
		var read []string
		log, err := o.Ops().Log(t.Context(), ops.Who{}, id, metastore.LogPosition{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range log {
			read = append(read, l.Level+" "+l.Text)
		}
		if got := strings.Join(read, "; "); got != "INFO hello; WARN careful; INFO bye" {
			t.Errorf("its log is %q", got)
		}
		if end := p.send(200, "finish", run, m{"error": "no seat", "code": "busy"}); end["state"] != "Failed" || end["retryAt"] == nil {
			t.Errorf("its end is answered by %v", end)
		}
		if r := o.want(id, jobs.Failed, kernel.ByError, 1); r.Code() != "busy" || r.Error != "no seat" {
			t.Errorf("it failed with %q, %q", r.Code(), r.Error)
		}
		before := time.Now()
		run = p.one()
		if waited := time.Since(before); waited < 4*time.Second || run["attempt"] != 2.0 || fmt.Sprint(run["checkpoint"]) != "map[at:3 of:<nil>]" {
			t.Errorf("after %v it is %v", waited, run)
		}
		if end := p.send(200, "finish", run, m{"snoozeSeconds": 5}); end["state"] != "Failed" {
			t.Errorf("a snooze is answered by %v", end)
		}
		run = p.one()
		p.send(200, "finish", run, m{"result": m{"hello": nil}})
		if r := o.want(id, jobs.Succeeded, "", 3); string(r.Result) != `{"hello":null}` {
			t.Errorf("its result is %s", r.Result)
		}

		id = o.trigger(`{}`)
		run = p.one()
		p.send(200, "finish", run, m{"error": "never", "noRetry": true})
		o.want(id, jobs.Terminated, kernel.ByError, 1)

		// A cancel ends an open poll, and is repeated until the attempt has ended.
		id = o.trigger(`{}`)
		run = p.one()
		go func() {
			time.Sleep(2 * time.Second)
			if _, err := o.Ops().Cancel(context.Background(), ops.Who{Actor: "person:ann", Reason: "enough", Role: ops.Admin}, id); err != nil {
				t.Error(err)
			}
		}()
		before = time.Now()
		response := p.send(200, "poll", nil, m{"got": p.got})
		if got := stops(response); time.Since(before) > 3*time.Second || !slices.Equal(got, []string{"cancelled 1"}) || !strings.Contains(fmt.Sprint(response["stop"]), "enough") {
			t.Errorf("after %v: %v", time.Since(before), response)
		}
		if got := stops(p.send(200, "heartbeat", nil, nil)); len(got) != 1 {
			t.Errorf("a heartbeat returns %v", got)
		}
		if r := o.want(id, jobs.Cancelled, kernel.Cause(o.row(id).Cause), 1); !r.Lingering {
			t.Error("its slot was taken away before it had returned")
		}
		if end := p.send(200, "finish", run, m{"error": "I stop"}); end["state"] != "Cancelled" {
			t.Errorf("the end of a cancelled run is answered by %v", end)
		}
		if r := o.row(id); r.Lingering {
			t.Error("it has returned, and its slot is still taken")
		}
		if got := stops(p.send(200, "heartbeat", nil, nil)); len(got) != 0 {
			t.Errorf("a heartbeat returns %v", got)
		}

		// An attempt that exceeds its timeout is stopped, and may still finish late.
		id = o.trigger(`{}`)
		run = p.one()
		for range 13 {
			time.Sleep(5 * time.Second)
			response = p.send(200, "heartbeat", nil, nil)
		}
		if got := stops(response); !slices.Equal(got, []string{"timeout 1"}) {
			t.Errorf("a heartbeat returns %v", got)
		}
		if r := o.want(id, jobs.Failed, kernel.ByTimeout, 1); !r.Lingering {
			t.Error("it has not returned, and its slot was taken away")
		}
		p.send(200, "finish", run, m{"result": 1})
		if r := o.row(id); r.Lingering || len(r.Result) > 0 {
			t.Errorf("late, it left the run %+v", r)
		}
	})
}

// An HTTP worker that crashes with an open poll loses its run to another worker when its lease expires; its later
// requests for the run are refused.
func TestPullWorkerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{})
		first := o.hire("a1", 4, m{})
		id := o.trigger(`{}`)
		run := first.one()
		ctx, dies := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			o.post(ctx, "/worker/poll", m{"worker": first.name, "got": first.got, "want": 3})
		}()
		synctest.Wait()
		dies()
		<-gone
		died := time.Now()
		second := o.hire("b2", 4, m{})
		var again []m
		for len(again) == 0 && time.Since(died) < 5*time.Minute {
			again = second.poll(4, 1)
		}
		if took := time.Since(died); len(again) != 1 || again[0]["run"] != id.String() || again[0]["attempt"] != 2.0 || took < 14*time.Second || took > 24*time.Second {
			t.Fatalf("after %v the other worker has %v", took, again)
		}
		if response := first.send(409, "finish", run, m{"result": 1}); response["code"] != "lease_lost" {
			t.Errorf("the late end is answered by %v", response)
		}
		for _, verb := range []string{"progress", "checkpoint", "logs"} {
			response := first.send(409, verb, run, m{"progress": m{"done": 1}, "checkpoint": m{"data": 1}, "logs": m{"lines": []any{m{"text": "late"}}}}[verb].(m))
			if response["code"] != "lease_lost" {
				t.Errorf("%s, late, is answered by %v", verb, response)
			}
		}
		if response := first.register("a1", 4, 200); !slices.Equal(stops(response), []string{"lease_lost 1"}) {
			t.Errorf("when it returns with the run it gets %v", response)
		}
		o.want(id, jobs.Processing, "", 2)
		second.send(200, "finish", again[0], m{"result": 2})
		if r := o.want(id, jobs.Succeeded, "", 2); string(r.Result) != "2" {
			t.Errorf("its result is %s", r.Result)
		}
	})
}

// HTTP workers may use only their own runs and jobs, and each error names its reason.
func TestPullWorkerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true})
		root := ops.Who{Actor: "person:root", Role: ops.Admin}
		bearer := func(n ops.NewToken) []string {
			_, text, err := o.Ops().Grant(t.Context(), root, n)
			if err != nil {
				t.Fatal(err)
			}
			return []string{"Authorization", "Bearer " + text}
		}
		bearer(ops.NewToken{Name: "root", Role: "admin"})
		shop, bank := bearer(ops.NewToken{Name: "shop", Role: "worker", App: "shop"}), bearer(ops.NewToken{Name: "bank", Role: "worker", App: "bank"})
		viewer, client := bearer(ops.NewToken{Name: "viewer", Role: "viewer"}), bearer(ops.NewToken{Name: "client", Role: "client"})
		wrong := []string{"Authorization", shop[1] + "x"}
		ask := func(as []string, verb string, body m, want int, code string) m {
			t.Helper()
			status, response := o.post(t.Context(), "/worker/"+verb, body, as...)
			if got, _ := response["code"].(string); status != want || got != code {
				t.Errorf("%s %v: %d %v, want %d %q", verb, body, status, response, want, code)
			}
			return response
		}
		introduce := func(app string) m {
			return m{"name": "py", "start": "a1", "app": app, "slots": 1, "jobs": []any{m{"key": "greet", "kind": "triggered"}}}
		}
		for _, as := range [][]string{nil, wrong} {
			ask(as, "register", introduce("shop"), 401, "unauthorized")
		}
		for _, as := range [][]string{viewer, client, bank} {
			ask(as, "register", introduce("shop"), 403, "forbidden")
		}
		ask(shop, "poll", m{"worker": "py-a1", "waitSeconds": 0}, 404, "unknown_worker")
		ask(shop, "register", introduce("shop"), 200, "")
		other := introduce("shop")
		other["slots"] = 2
		ask(shop, "register", other, 409, "conflict") // the same start with other jobs

		id := o.trigger(`{}`)
		work := ask(shop, "poll", m{"worker": "py-a1", "waitSeconds": 5}, 200, "")
		run := work["runs"].([]any)[0].(m)
		of := m{"worker": "py-a1", "run": run["run"], "attempt": 1}
		for _, as := range [][]string{nil, wrong} {
			ask(as, "finish", of, 401, "unauthorized")
		}
		for _, as := range [][]string{bank, viewer, client} {
			for _, verb := range []string{"finish", "poll", "heartbeat", "leave"} {
				body := m{"worker": "py-a1"}
				if verb == "finish" {
					body = of
				}
				ask(as, verb, body, 403, "forbidden")
			}
		}
		// A worker of another app cannot claim that it has this run.
		ask(bank, "register", introduce("bank"), 409, "conflict") // this start of the program is another app's
		mine := introduce("bank")
		mine["start"], mine["jobs"], mine["runs"] = "b2", []any{m{"key": "audit", "kind": "triggered"}}, []any{m{"run": run["run"], "attempt": 1}}
		if response := ask(bank, "register", mine, 200, ""); !slices.Equal(stops(response), []string{"lease_lost 1"}) {
			t.Errorf("a run of another app: %v", response)
		}
		ask(bank, "finish", m{"worker": "py-b2", "run": run["run"], "attempt": 1}, 403, "forbidden")
		// Nor does one of another tenant, whose app and job have the same names.
		foreign := o.bearer("other", ops.NewToken{Name: "shop", Role: "worker", App: "shop"})
		ask(foreign, "finish", of, 404, "unknown_worker")
		same := introduce("shop")
		same["runs"] = []any{m{"run": run["run"], "attempt": 1}}
		if response := ask(foreign, "register", same, 200, ""); !slices.Equal(stops(response), []string{"lease_lost 1"}) {
			t.Errorf("a run of another tenant: %v", response)
		}
		for _, verb := range []string{"finish", "progress", "checkpoint", "logs"} {
			body := m{"worker": "py-a1", "run": run["run"], "attempt": 1}
			switch verb {
			case "progress":
				body["done"] = 1
			case "checkpoint":
				body["data"] = 1
			case "logs":
				body["lines"] = []any{m{"text": "x"}}
			}
			ask(foreign, verb, body, 409, "lease_lost")
		}
		o.want(id, jobs.Processing, "", 1)

		// One that drains is given nothing more, and ends what it has.
		ask(shop, "heartbeat", m{"worker": "py-a1", "drain": true}, 200, "")
		ask(shop, "finish", of, 200, "")
		o.want(id, jobs.Succeeded, "", 1)
		next := o.trigger(`{}`)
		if response := ask(shop, "poll", m{"worker": "py-a1", "waitSeconds": 5}, 200, ""); len(response["runs"].([]any)) != 0 {
			t.Errorf("while it drains it gets %v", response)
		}
		o.want(next, jobs.Enqueued, "", 0)
		ask(shop, "leave", m{"worker": "py-a1"}, 204, "")
		ask(shop, "poll", m{"worker": "py-a1", "waitSeconds": 0}, 404, "unknown_worker")
	})
}

// An invalid request of an HTTP worker is refused with the place of the error, and changes nothing.
func TestPullWorkerIsRefusedNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{})
		p := o.hire("a1", 4, m{})
		id := o.trigger(`{}`)
		run := p.one()
		before := o.row(id)
		attempt := func(more m) m {
			body := m{"worker": p.name, "run": run["run"], "attempt": run["attempt"]}
			for k, v := range more {
				body[k] = v
			}
			return body
		}
		worker := func(change m) m {
			body := m{"name": "py", "start": "b2", "app": "shop", "slots": 1, "jobs": p.jobs}
			for k, v := range change {
				body[k] = v
			}
			return body
		}
		declared := func(n int) (list []any) {
			for i := range n {
				list = append(list, m{"key": fmt.Sprint("k", i), "kind": "triggered"})
			}
			return list
		}
		long := strings.Repeat("x", kernel.MaxResult)
		for _, c := range []struct {
			verb  string
			body  m
			code  int
			place string
		}{
			{"finish", attempt(m{"state": "Scheduled"}), 422, "body.state"},
			{"finish", attempt(m{"attempt": 0}), 422, "body.attempt"},
			{"finish", attempt(m{"attempt": -1}), 422, "body.attempt"},
			{"finish", attempt(m{"attempt": 2}), 409, ""},
			{"finish", attempt(m{"result": long}), 422, ""},
			{"finish", attempt(m{"error": strings.Repeat("x", 1<<16+1)}), 422, "body.error"},
			{"finish", attempt(m{"error": "x", "code": strings.Repeat("x", 65)}), 422, "body.code"},
			{"finish", attempt(m{"error": "x", "result": 1}), 422, ""},
			{"finish", attempt(m{"code": "x"}), 422, ""},
			{"finish", attempt(m{"snoozeSeconds": -1}), 422, "body.snoozeSeconds"},
			{"finish", attempt(m{"snoozeSeconds": 1e300}), 422, "body.snoozeSeconds"},
			{"finish", attempt(m{"run": "../x"}), 422, "body.run"},
			{"progress", attempt(m{"done": -1}), 422, "body.done"},
			{"progress", attempt(m{"done": 1, "total": -1}), 422, "body.total"},
			{"checkpoint", attempt(m{"data": long}), 422, ""},
			{"logs", attempt(m{"lines": []any{}}), 422, "body.lines"},
			{"logs", attempt(m{"lines": []any{m{"text": "x", "level": "PANIC"}}}), 422, "body.lines[0].level"},
			{"poll", m{"worker": p.name, "want": 10_000}, 422, "body.want"},
			{"poll", m{"worker": p.name, "waitSeconds": 1e9}, 422, "body.waitSeconds"},
			{"register", worker(m{"slots": 1_000_000}), 422, "body.slots"},
			{"register", worker(m{"jobs": declared(1001)}), 422, "body.jobs"},
			{"register", worker(m{"name": "../py"}), 422, ""},
			{"register", worker(m{"jobs": []any{m{"key": "greet", "kind": "triggered", "argsSchema": "text"}}}), 422, "body.jobs[0].argsSchema"},
		} {
			code, response := o.post(t.Context(), "/worker/"+c.verb, c.body)
			place := ""
			if list, _ := response["errors"].([]any); len(list) > 0 {
				place, _ = list[0].(m)["location"].(string)
			}
			if text := fmt.Sprint(response["detail"]); code != c.code || place != c.place || text == "" || strings.Contains(text, long) {
				t.Errorf("%s %.80s: %d at %q, want %d at %q: %.300v", c.verb, fmt.Sprint(c.body), code, place, c.code, c.place, response)
			}
		}
		if r := o.want(id, jobs.Processing, "", 1); !reflect.DeepEqual(r, before) {
			t.Errorf("the run was %+v, and is %+v", before, r)
		}
		p.send(200, "finish", run, m{"error": strings.Repeat("é", 1<<14)})
		if r := o.row(id); r.State != jobs.Terminated || len(r.Error) > kernel.MaxError {
			t.Errorf("%s with an error of %d bytes", r.State, len(r.Error))
		}
	})
}
