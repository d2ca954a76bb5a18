package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

const (
	chatURL    = "https://hooks.example.com/services/T0/verysecretpath"
	chatSecret = "a signing secret of a robot"
)

// alarmed is a guarded scene whose process sends alarms: it records test messages and answers with got.
func alarmed(t *testing.T, got alarms.Answer) (s *scene, cookies map[string]string, sent *[]alarms.Message) {
	t.Helper()
	s, d, tokens := guarded(t)
	sent = &[]alarms.Message{}
	o := ops.New(ops.Config{Store: s.store, Logs: s.logs, Live: s.live, Authenticates: true, SendAlarm: func(_ context.Context, to alarms.Target, m alarms.Message) alarms.Answer {
		if to.URL != chatURL {
			t.Errorf("sent to %q", to.URL)
		}
		*sent = append(*sent, m)
		return got
	}})
	d.ops = o
	s.Handler = ui.New(ui.Config{Ops: o, Access: d})
	cookies = map[string]string{}
	for _, role := range []string{"viewer", "operator", "admin"} {
		cookies[role] = s.signIn(tokens[role])
	}
	return s, cookies, sent
}

// raised is a scene with two targets, a rule and an open alarm about app.work.
func raised(s *scene) {
	s.t.Helper()
	s.apply(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "chat", Kind: "feishu", URL: chatURL, Secret: chatSecret}})
	s.apply(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "mail", Kind: "email", To: []string{"ops@example.com"}}})
	s.apply(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "failed", Kind: kernel.AlarmFailed, InRow: 1, Targets: []string{"chat"}, Quiet: kernel.Quiet{From: "22:00", To: "07:00"}, Zone: "Europe/Berlin"}})
	s.fail("app.work")
}

// fail lets a run of a job fail for good and returns it.
func (s *scene) fail(key jobs.Key) jobs.ID {
	s.t.Helper()
	id := jobs.NewID(time.Now())
	s.apply(kernel.Configure{TriggeredDebug: new(false)}) // it would hold the run
	s.apply(kernel.Create{ID: id, Key: key, Retries: new(0)})
	s.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
	s.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeError, Error: hostile})
	s.apply(kernel.Configure{TriggeredDebug: new(true)})
	return id
}

func (s *scene) openAlarms() []*kernel.Alarm {
	s.t.Helper()
	list, err := s.store.Alarms(s.t.Context(), metastore.AlarmQuery{Tenant: jobs.DefaultTenant, Which: metastore.OpenAlarm})
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *scene) lacks(what, body string, parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if strings.Contains(body, part) {
			s.t.Errorf("%s: the page has %q", what, part)
		}
	}
}

// All roles read alarms with their messages; operators end them; only admins change rules and targets.
func TestAlarmsPage(t *testing.T) {
	s, cookies, _ := alarmed(t, alarms.Answer{})
	answer, body := s.get("/alarms", "Cookie", cookies["viewer"])
	s.has("nothing yet", answer, body, 200, "No rules yet", "No targets yet", `href="/alarms" aria-current="page"`)
	raised(s)
	a := s.openAlarms()[0]
	s.apply(kernel.SentAlarm{Rule: "failed", Job: a.Job, App: a.App, N: a.N, Reported: 1, Next: time.Now().Add(time.Minute), Sent: kernel.AlarmSent{Target: "chat", At: time.Now(), What: kernel.AlarmRaised, Status: 503, Text: hostile}})
	for role, may := range map[string]string{"viewer": "", "operator": "end", "admin": "end change"} {
		for _, path := range []string{"/alarms", "/alarms/targets/chat", "/alarms/rules/failed"} {
			answer, body = s.get(path, "Cookie", cookies[role])
			s.has(role+path, answer, body, 200)
			s.lacks(role+path, body, "verysecretpath", chatSecret, "<script>alert", "ZgotmplZ")
			for part, need := range map[string]string{`action="/alarms/end"`: "end", `action="/alarms/targets/chat/test"`: "change", `action="/alarms/targets/chat"`: "change", `action="/alarms/rules/failed"`: "change", `action="/alarms/rules/failed/delete"`: "change", `href="/alarms/rules/new"`: "change"} {
				if strings.Contains(body, part) && !strings.Contains(may, need) {
					t.Errorf("%s, %s: has %s", role, path, part)
				}
			}
		}
		_, body = s.get("/alarms", "Cookie", cookies[role])
		s.has(role, answer, body, 200, "Job app.work failed", "#1", "1 failure, next try", "status 503", "&lt;script&gt;", "1 message", "https://hooks.example.com/***", "ops@example.com", "quiet 22:00 to 07:00 Europe/Berlin", `href="/jobs/app.work"`)
		if strings.Contains(may, "end") != strings.Contains(body, `action="/alarms/end"`) {
			t.Errorf("%s: whether the alarm can be ended is wrong", role)
		}
		for path, need := range map[string]string{"/alarms/targets/new": "change", "/alarms/rules/new": "change"} {
			answer, body = s.get(path, "Cookie", cookies[role])
			s.has(role+path, answer, body, map[bool]int{true: 200, false: 403}[strings.Contains(may, need)])
		}
	}
	for _, path := range []string{"/alarms/targets", "/alarms/targets/chat", "/alarms/targets/chat/test", "/alarms/targets/chat/delete", "/alarms/rules", "/alarms/rules/failed", "/alarms/rules/failed/delete"} {
		answer, body = s.post(path, url.Values{}, "Cookie", cookies["operator"])
		s.has("an operator posts "+path, answer, body, 403)
	}
	answer, body = s.post("/alarms/end", url.Values{"number": {"1"}}, "Cookie", cookies["viewer"])
	s.has("a viewer ends it", answer, body, 403)
	answer, body = s.post("/alarms/end", url.Values{"number": {"x"}}, "Cookie", cookies["operator"])
	s.has("no number", answer, body, 422, "invalid number")
	answer, body = s.post("/alarms/end", url.Values{"number": {"99"}}, "Cookie", cookies["operator"])
	s.has("an alarm that does not exist", answer, body, 404, "there is no alarm 99")
	answer, body = s.post("/alarms/end", url.Values{"number": {"1"}, "reason": {"known"}}, "Cookie", cookies["operator"])
	s.has("an operator ends it", answer, body, 303)
	if to := answer.Header.Get("Location"); to != "/alarms?did=alarm" || len(s.openAlarms()) != 0 {
		t.Errorf("leads to %s, %d open", to, len(s.openAlarms()))
	}
	answer, body = s.get("/alarms?did=alarm", "Cookie", cookies["viewer"])
	s.has("ended", answer, body, 200, "Alarm ended.", "No open alarms.", "operator-token: known")
}

// An operator with a scope ends alarms about its own jobs, and sees the button for no other.
func TestAlarmsOfAScope(t *testing.T) {
	s, d, _ := guarded(t)
	raised(s)
	s.declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "app.own", Tags: []string{"mine"}}))
	s.fail("app.own")
	_, text, err := d.ops.Grant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewToken{Name: "own", Role: kernel.RoleOperator, Scope: kernel.Scope{Tags: []string{"mine"}}})
	if err != nil {
		t.Fatal(err)
	}
	cookie := s.signIn(text)
	_, body := s.get("/alarms", "Cookie", cookie)
	if !strings.Contains(body, "End alarm 2") || strings.Contains(body, "End alarm 1") || !strings.Contains(body, "#1") {
		t.Errorf("its buttons are wrong: %s", body)
	}
	answer, body := s.post("/alarms/end", url.Values{"number": {"1"}}, "Cookie", cookie)
	s.has("of another job", answer, body, 403)
	answer, body = s.post("/alarms/end", url.Values{"number": {"2"}}, "Cookie", cookie)
	s.has("of its own job", answer, body, 303)
}

// Ended alarms are listed in pages, each once.
func TestEndedAlarms(t *testing.T) {
	s := newScene(t)
	raised(s)
	for n := 1; n <= 60; n++ {
		if n > 1 {
			s.fail("app.work")
		}
		a := s.openAlarms()[0]
		s.apply(kernel.EndAlarm{Rule: a.Rule, Job: a.Job, App: a.App, N: a.N, Why: "test"})
	}
	s.fail("app.work")
	seen, path, pages := map[string]bool{}, "/alarms", 0
	for ; path != "" && pages < 9; pages++ {
		answer, body := s.get(path)
		s.has("page", answer, body, 200)
		if n := strings.Count(body, `id="alarm-61"`); n != 1 {
			t.Errorf("%s has the open alarm %d times", path, n)
		}
		for n := 1; n <= 60; n++ {
			if id := fmt.Sprintf(`id="alarm-%d"`, n); strings.Contains(body, id) {
				if seen[id] {
					t.Errorf("%s is on two pages", id)
				}
				seen[id] = true
			}
		}
		_, rest, _ := strings.Cut(body, `rel="next" href="`)
		path, _, _ = strings.Cut(rest, `"`)
		if rest == "" {
			path = ""
		}
	}
	if len(seen) != 60 || pages != 3 {
		t.Errorf("%d alarms on %d pages", len(seen), pages)
	}
}

// A target is created, tested, changed and deleted. Its URL and secret are on no page, not even on the form that was
// refused.
func TestAlarmTargetPages(t *testing.T) {
	s, cookies, sent := alarmed(t, alarms.Answer{Status: 404, Text: "no such channel " + hostile})
	admin := cookies["admin"]
	answer, body := s.get("/alarms/targets/new", "Cookie", admin)
	s.has("services", answer, body, 200)
	for _, kind := range alarms.Kinds {
		s.has("services", answer, body, 200, "/alarms/targets/new?kind="+string(kind)+`"`)
		formAnswer, form := s.get("/alarms/targets/new?kind="+string(kind), "Cookie", admin)
		s.has(string(kind), formAnswer, form, 200, `name="kind" value="`+string(kind)+`"`, "Create the usual rules")
	}
	answer, body = s.post("/alarms/targets", url.Values{"name": {"chat"}, "kind": {"feishu"}, "url": {"verysecretpath"}, "secret": {chatSecret}}, "Cookie", admin)
	s.has("an invalid URL", answer, body, 422, "invalid URL", `value="chat"`)
	s.lacks("an invalid URL", body, "verysecretpath", chatSecret)
	answer, body = s.post("/alarms/targets", url.Values{"name": {"chat"}, "kind": {"smoke"}}, "Cookie", admin)
	s.has("an unknown kind", answer, body, 422, "invalid kind of target")
	answer, body = s.post("/alarms/targets", url.Values{"name": {"chat"}, "kind": {"feishu"}, "url": {chatURL}, "secret": {chatSecret}, "rules": {"usual"}}, "Cookie", admin)
	s.has("created", answer, body, 303)
	answer, body = s.get("/alarms", "Cookie", admin)
	s.has("with the usual rules", answer, body, 200, "no-worker", "runs of a job failed for good", "Feishu")
	answer, body = s.post("/alarms/targets", url.Values{"name": {"chat"}, "kind": {"slack"}, "url": {"https://example.com/other"}}, "Cookie", admin)
	s.has("a second one of the name", answer, body, 409, "already exists")
	answer, body = s.post("/alarms/targets/chat/test", nil, "Cookie", admin)
	s.has("tested", answer, body, 200, "Target chat did not accept the test message (status 404)", "no such channel", "&lt;script&gt;")
	if len(*sent) != 1 {
		t.Fatalf("%d test messages", len(*sent))
	}
	answer, body = s.post("/alarms/targets/other/test", nil, "Cookie", admin)
	s.has("no such target", answer, body, 404, "there is no target of alarms &#34;other&#34;")
	answer, body = s.post("/alarms/targets/chat", url.Values{"url": {""}, "secret": {"another secret of it"}}, "Cookie", admin)
	s.has("changed", answer, body, 303)
	list, err := s.store.AlarmSettings(t.Context(), jobs.DefaultTenant)
	if err != nil || list[0].Target("chat").URL != chatURL || list[0].Target("chat").Secret != "another secret of it" || list[0].Target("chat").Kind != "feishu" {
		t.Errorf("stored: %v %+v", err, list[0].Target("chat"))
	}
	answer, body = s.post("/alarms/targets/chat", url.Values{"url": {"verysecretpath"}}, "Cookie", admin)
	s.has("changed to an invalid URL", answer, body, 422, "Now: https://hooks.example.com/***.")
	s.lacks("changed to an invalid URL", body, "verysecretpath")
	answer, body = s.post("/alarms/targets/chat", url.Values{"url": {"https://elsewhere.example/hook"}}, "Cookie", admin)
	s.has("the secret to another host", answer, body, 422, "its secret is not sent to another host")
	answer, body = s.post("/alarms/targets/gone", url.Values{"url": {chatURL}}, "Cookie", admin)
	s.has("a target that does not exist", answer, body, 404)
	answer, body = s.post("/alarms/targets/chat/delete", nil, "Cookie", admin)
	s.has("in use", answer, body, 409, "used by alarm rule")
	answer, body = s.post("/alarms/targets", url.Values{"name": {"mail"}, "kind": {"email"}, "to": {"a@example.com\r\nb@example.com"}}, "Cookie", admin)
	s.has("with addresses", answer, body, 303)
	answer, body = s.get("/alarms/targets/mail", "Cookie", admin)
	s.has("addresses", answer, body, 200, "a@example.com\nb@example.com", "No rule names it.")
	answer, body = s.post("/alarms/targets/mail/delete", nil, "Cookie", admin)
	s.has("deleted", answer, body, 303)
	answer, body = s.get("/alarms/targets/mail", "Cookie", admin)
	s.has("gone", answer, body, 404)
}

// A rule of each kind is created with the fields of its kind, changed and deleted.
func TestAlarmRulePages(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/alarms/rules/new?kind=failed")
	s.has("without a target", answer, body, 200, "A rule needs a target.")
	raised(s)
	answer, body = s.get("/alarms/rules/new")
	for kind, fields := range map[kernel.AlarmKind]url.Values{
		kernel.AlarmFailed: {"inrow": {"3"}, "jobs": {"app.*, other"}}, kernel.AlarmMissed: {}, kernel.AlarmPaused: {"tags": {"night"}}, kernel.AlarmExpected: {"at": {"06:00"}, "zone": {"Europe/Berlin"}},
		kernel.AlarmSlow: {"factor": {"2.5"}, "after": {"10m"}}, kernel.AlarmBacklog: {"after": {"5m"}, "apps": {"app"}}, kernel.AlarmNoWorker: {"after": {"1m"}},
	} {
		s.has("kinds", answer, body, 200, "/alarms/rules/new?kind="+string(kind)+`"`)
		_, form := s.get("/alarms/rules/new?kind=" + string(kind))
		for name := range fields {
			if !strings.Contains(form, `name="`+name+`"`) {
				t.Errorf("the form of %s has no field %s", kind, name)
			}
		}
		fields["name"], fields["kind"], fields["target"], fields["every"] = []string{"rule." + string(kind)}, []string{string(kind)}, []string{"chat", "mail"}, []string{"15m"}
		answer, body := s.post("/alarms/rules", fields)
		s.has(string(kind), answer, body, 303)
		answer, body = s.get("/alarms/rules/rule." + string(kind))
		for name, value := range fields {
			if name != "name" && name != "kind" && name != "target" {
				s.has(string(kind), answer, body, 200, `name="`+name+`"`, `value="`+value[0]+`"`)
			}
		}
		if strings.Count(body, `name="target"`) != 2 || strings.Count(body, " checked") != 2 {
			t.Errorf("%s: its targets are not shown: %s", kind, body)
		}
	}
	answer, body = s.get("/alarms")
	s.has("words", answer, body, 200, "3 runs of a job failed for good in a row", "by 06:00 Europe/Berlin", "2.5 times as long", "and at least 10m", "wait for over 5m", "ready for over 1m, and")
	for name, c := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"without a target":        {url.Values{"name": {"x"}, "kind": {"missed"}}, 422, "has 0 targets"},
		"with an unknown target":  {url.Values{"name": {"x"}, "kind": {"missed"}, "target": {"none"}}, 404, "there is no target"},
		"without a kind":          {url.Values{"name": {"x"}, "target": {"chat"}}, 422, "invalid kind of alarm rule"},
		"of an invalid duration":  {url.Values{"name": {"x"}, "kind": {"backlog"}, "after": {"soon"}, "target": {"chat"}}, 422, "invalid duration &#34;soon&#34;"},
		"of an invalid number":    {url.Values{"name": {"x"}, "kind": {"failed"}, "inrow": {"few"}, "target": {"chat"}}, 422, "invalid number of failures"},
		"of an invalid factor":    {url.Values{"name": {"x"}, "kind": {"slow"}, "factor": {"much"}, "target": {"chat"}}, 422, "invalid factor"},
		"of a name that is taken": {url.Values{"name": {"failed"}, "kind": {"failed"}, "target": {"chat"}}, 409, "already exists"},
		"in an unknown time zone": {url.Values{"name": {"x"}, "kind": {"expected"}, "at": {"06:00"}, "zone": {"Moon/Base"}, "target": {"chat"}}, 422, "unknown time zone"},
	} {
		answer, body = s.post("/alarms/rules", c.form)
		s.has(name, answer, body, c.status, c.says)
		if c.form.Has("kind") {
			s.has(name+": its form", answer, body, c.status, `id="r-name"`, `value="`+c.form.Get("name")+`"`)
		}
	}
	answer, body = s.post("/alarms/rules/failed", url.Values{"kind": {"missed"}, "inrow": {"2"}, "target": {"mail"}, "off": {"on"}, "urgent": {"on"}})
	s.has("changed", answer, body, 303)
	list, err := s.store.AlarmSettings(t.Context(), jobs.DefaultTenant)
	if r := list[0].Rule("failed"); err != nil || r.Kind != kernel.AlarmFailed || r.InRow != 2 || !r.Off || !r.Urgent || r.Targets[0] != "mail" || r.Quiet.From != "" || r.Open != 1 {
		t.Errorf("stored: %v %+v", err, r)
	}
	answer, body = s.post("/alarms/rules/gone", url.Values{"target": {"chat"}})
	s.has("a rule that does not exist", answer, body, 404)
	answer, body = s.post("/alarms/rules/failed/delete", nil)
	s.has("deleted", answer, body, 303)
	answer, body = s.get("/alarms")
	s.has("its alarm stays until the leader ends it", answer, body, 200, "failed (deleted)")
	answer, body = s.post("/alarms/rules/failed/delete", nil)
	s.has("deleted twice", answer, body, 404, "there is no alarm rule")
}

// The overview leads to open alarms, and to the target that does not accept messages.
func TestAlarmsOnTheOverview(t *testing.T) {
	s := newScene(t)
	raised(s)
	a := s.openAlarms()[0]
	s.apply(kernel.SentAlarm{Rule: "failed", Job: a.Job, App: a.App, N: a.N, Reported: 1, Next: time.Now().Add(time.Minute), Sent: kernel.AlarmSent{Target: "chat", At: time.Now(), What: kernel.AlarmRaised, Text: hostile}})
	answer, body := s.get("/")
	s.has("the overview", answer, body, 200, `<a class="grow" href="/alarms">1 alarm is open: Job app.work failed.</a>`, `<a class="grow" href="/alarms/targets/chat">Target chat does not accept messages about 1 alarm: &#34;&gt;&lt;script&gt;`)
}

// A job's page lists its open alarms, and a run that failed for good leads to them.
func TestAlarmsOfAJob(t *testing.T) {
	s := newScene(t)
	raised(s)
	const link = `href="/alarms#alarm-1"`
	failed := s.fail("app.work")
	for path, want := range map[string]bool{"/jobs/app.work": true, "/jobs/app.nightly": false, "/runs/" + failed.String(): true, "/runs/" + s.runs[jobs.Terminated].String(): true, "/runs/" + s.runs[jobs.Succeeded].String(): false} {
		answer, body := s.get(path)
		s.has(path, answer, body, 200)
		if got := strings.Contains(body, link) && strings.Contains(body, "Job app.work failed 2 times"); got != want {
			t.Errorf("%s leads to the alarm: %v", path, got)
		}
	}
	s.apply(kernel.EndAlarm{Rule: "failed", Job: "app.work", App: "app", N: 1, Why: "test"})
	answer, body := s.get("/jobs/app.work")
	s.has("after its end", answer, body, 200)
	s.lacks("after its end", body, link)
	// A job's alarm is found behind others that are newer.
	s.apply(kernel.RaiseAlarm{Rule: "failed", Job: "app.work", App: "app"})
	for rule := range 3 {
		name := fmt.Sprintf("more-%d", rule)
		s.apply(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: name, Kind: kernel.AlarmMissed, Targets: []string{"chat"}}})
		for n := range 90 {
			s.apply(kernel.RaiseAlarm{Rule: name, Job: jobs.Key(fmt.Sprintf("other.%d", n)), App: "app"})
		}
	}
	answer, body = s.get("/jobs/app.work")
	s.has("behind others", answer, body, 200, `href="/alarms#alarm-2"`)
}
