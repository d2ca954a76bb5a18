package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
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

func (s *scene) definition(key jobs.Key) *kernel.Definition {
	s.t.Helper()
	d, err := s.store.Definition(s.t.Context(), jobs.DefaultTenant, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// has fails for each text that is not in the answer, and for each that begins with ! and is.
func (s *scene) has(what string, answer *http.Response, body string, status int, texts ...string) {
	s.t.Helper()
	if answer.StatusCode != status {
		s.t.Errorf("%s: %d, want %d: %.1500s", what, answer.StatusCode, status, body)
	}
	for _, text := range texts {
		bad, unwanted := strings.CutPrefix(text, "!")
		if strings.Contains(body, bad) == unwanted {
			s.t.Errorf("%s: the page has %q: %v", what, bad, unwanted)
		}
	}
}

func TestJobList(t *testing.T) {
	s := newScene(t)
	keys := func(path string) (keys []string) {
		t.Helper()
		_, body := s.get(path)
		for _, m := range regexp.MustCompile(`<tr data-key="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			keys = append(keys, m[1])
		}
		return keys
	}
	for path, want := range map[string][]string{
		"/jobs":                  {"app.nightly", "app.paused", "app.typed", "app.work"},
		"/jobs?kind=recurring":   {"app.nightly", "app.paused"},
		"/jobs?state=paused":     {"app.paused"},
		"/jobs?q=NIGHT":          {"app.nightly"},
		"/jobs?app=other":        nil,
		"/jobs?after=app.paused": {"app.typed", "app.work"},
	} {
		if got := keys(path); !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/jobs?kind=x", "/jobs?state=x"} {
		if answer, _ := s.get(path); answer.StatusCode != 422 {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	for i := range 60 {
		s.apply(kernel.Register{App: "many", Worker: "w1", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("m.%02d", i)), Kind: kernel.Triggered}})
	}
	first := keys("/jobs?app=many")
	if len(first) != 50 || first[49] != "m.49" {
		t.Fatalf("a page has %d jobs, the last is %s", len(first), first[len(first)-1])
	}
	answer, body := s.get("/jobs?app=many")
	s.has("the first page", answer, body, 200, `/jobs?after=m.49&amp;app=many`, "!First page")
	if rest := keys("/jobs?after=m.49&app=many"); len(rest) != 10 {
		t.Errorf("the next page has %d", len(rest))
	}
}

// A job whose live list is full of runs that wait for their time still shows how the last ones ended.
func TestSparkBehindDelayedRuns(t *testing.T) {
	s := newScene(t)
	for range 30 {
		s.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.work", Delay: time.Hour})
	}
	answer, body := s.get("/jobs/app.work")
	s.has("the job", answer, body, 200, `<rect class="terminated"`, `<rect class="succeeded"`)
}

func TestJobPage(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs/app.nightly")
	s.has("recurring", answer, body, 200, "at 02:30", "Europe/Berlin", "02:30:00 CE", "Every due time so far", "/jobs/app.nightly/trigger", "0 30 2 * * *", "!Resume", "/api/v1/jobs/app.nightly/trigger", "!&#34;args&#34;")
	if n := strings.Count(body, `data-label="In the job’s zone"`); n != 10 {
		t.Errorf("%d due times ahead, want 10", n)
	}
	answer, body = s.get("/jobs/app.paused")
	s.has("paused", answer, body, 200, "Paused by test", "until it is resumed", "/jobs/app.paused/resume")
	answer, body = s.get("/jobs/app.typed")
	s.has("triggered", answer, body, 200, "held by debug mode", "jobs.Trigger[Args]", "curl -X POST &#39;http://example.com/api/v1/jobs/app.typed/trigger&#39;", "Dial(&#34;nats://127.0.0.1:4222&#34;)", "/jobs/app.typed/run", "!Next fires", `{&#34;deep&#34;:{},&#34;n&#34;:0,&#34;who&#34;:&#34;…&#34;}`)
	answer, body = s.get("/jobs/nope")
	s.has("no such job", answer, body, 404, "there is no job")
}

func TestPauseForm(t *testing.T) {
	s := newScene(t)
	answer, body := s.post("/jobs/app.nightly/pause", url.Values{"until": {"at"}, "at": {"2020-01-01T10:00"}, "zone": {"Europe/Berlin"}, "reason": {"the typed words"}})
	s.has("a time that has passed", answer, body, 422, "in the past", `value="the typed words"`, `value="2020-01-01T10:00"`, `value="at" checked`)
	answer, body = s.post("/jobs/app.nightly/pause", url.Values{"until": {"hour"}, "zone": {"Mars/Base"}})
	s.has("a zone that is none", answer, body, 422, "Mars/Base")
	answer, body = s.post("/jobs/app.nightly/pause", url.Values{"until": {"never"}})
	s.has("a word that is none", answer, body, 422, "never")
	if s.definition("app.nightly").Paused != nil {
		t.Fatal("paused by a form that was refused")
	}
	answer, _ = s.post("/jobs/app.nightly/pause", url.Values{"until": {"monday"}, "zone": {"Europe/Berlin"}, "reason": {"moving house"}, "back": {"/jobs?q=x"}})
	if to := answer.Header.Get("Location"); to != "/jobs?q=x&did=paused" {
		t.Errorf("it leads to %s", to)
	}
	held := s.definition("app.nightly").Paused
	if held == nil || held.Reason != "moving house" || time.Until(held.Until) > 8*24*time.Hour {
		t.Fatalf("%+v", held)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		tests.Missing(t, err.Error())
	}
	if at := held.Until.In(berlin); at.Weekday() != time.Monday || at.Hour() != 9 || at.Minute() != 0 {
		t.Errorf("paused until %s", at)
	}
	answer, body = s.get("/jobs/app.nightly")
	s.has("its page", answer, body, 200, "moving house", "It resumes")
	for _, evil := range []string{"https://evil.example/", "//evil.example", `/\evil.example`} {
		answer, _ := s.post("/jobs/app.nightly/resume", url.Values{"back": {evil}})
		if to := answer.Header.Get("Location"); to != "/?did=resumed" {
			t.Errorf("back %q leads to %q", evil, to)
		}
	}
}

func (s *scene) runAt(answer *http.Response, body string) *kernel.Run {
	s.t.Helper()
	if answer.StatusCode != 303 {
		s.t.Fatalf("%d: %s", answer.StatusCode, body)
	}
	id, err := jobs.ParseID(strings.TrimSuffix(strings.TrimPrefix(answer.Header.Get("Location"), "/runs/"), "?did=started"))
	if err != nil {
		s.t.Fatal(err)
	}
	run, err := s.store.Run(s.t.Context(), jobs.DefaultTenant, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

func TestArgumentsForm(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs/app.typed/run")
	s.has("the form", answer, body, 200, `name="a.who"`, `name="a.n"`, `value="0.5"`, `type="checkbox" name="a.loud"`, "<option>soft</option>", `<textarea id="arg-5" name="a.deep"`, "Use JSON")
	if strings.Index(body, "a.who") > strings.Index(body, "a.deep") {
		t.Error("fields are not in the order of the schema")
	}
	form := url.Values{"mode": {"form"}, "a.who": {`<b>"ann"`}, "a.n": {"12"}, "a.share": {"2.5e3"}, "a.loud": {"on"}, "a.how": {"soft"}, "a.deep": {`{"x":[1]}`}, "delay": {"1h30m"}}
	run := s.runAt(s.post("/jobs/app.typed/trigger", form))
	if want := `{"who":"\u003cb\u003e\"ann\"","n":12,"share":2.5e3,"loud":true,"how":"soft","deep":{"x":[1]}}`; string(run.Args) != want {
		t.Errorf("arguments are %s\nwant %s", run.Args, want)
	}
	if run.State != jobs.Scheduled || run.Origin != kernel.FromPerson {
		t.Errorf("%s, from %s", run.State, run.Origin)
	}
	if run := s.runAt(s.post("/jobs/app.typed/trigger", url.Values{"mode": {"form"}, "a.who": {"x"}, "a.n": {"1"}, "a.deep": {"{}"}})); string(run.Args) != `{"who":"x","n":1,"share":0.5,"deep":{}}` && string(run.Args) != `{"who":"x","n":1,"deep":{}}` {
		t.Errorf("what is left out: %s", run.Args)
	}
	for field, wrong := range map[string]string{"a.who": "", "a.n": "1.5", "a.share": "much", "a.how": "never", "a.deep": "{", "delay": "soon"} {
		bad := url.Values{}
		for k, v := range form {
			bad[k] = v
		}
		bad.Set(field, wrong)
		answer, body := s.post("/jobs/app.typed/trigger", bad)
		s.has(field, answer, body, 422, `class="fault"`, "ann")
	}
	// The form of a run that failed holds its arguments, and the new run follows it.
	from := s.runs[jobs.Terminated]
	answer, body = s.get("/jobs/app.work/run?from=" + from.String())
	s.has("again", answer, body, 200, "again", `name="from" value="`+from.String())
	run = s.runAt(s.post("/jobs/app.work/trigger", url.Values{"mode": {"json"}, "args": {`{"x":2}`}, "from": {from.String()}}))
	if run.Parent != from || string(run.Args) != `{"x":2}` {
		t.Errorf("%s follows %s", run.Args, run.Parent)
	}
	answer, body = s.post("/jobs/app.work/trigger", url.Values{"mode": {"json"}, "args": {`[1]`}})
	s.has("JSON that is no object", answer, body, 422, "must be a JSON object", ">[1]</textarea>")
}

func TestEditForm(t *testing.T) {
	s := newScene(t)
	_, body := s.get("/jobs/app.nightly/edit")
	form := filled(body)
	if form.Get("schedule") != "0 30 2 * * *" || form.Get("zone") != "Europe/Berlin" || form.Get("timeout") != "1h" || form.Get("gap") != "after" {
		t.Fatalf("the form has %v", form)
	}
	with := func(pairs ...string) url.Values {
		f := url.Values{}
		for k, v := range form {
			f[k] = slices.Clone(v)
		}
		for i := 0; i < len(pairs); i += 2 {
			f.Set(pairs[i], pairs[i+1])
		}
		return f
	}
	// Sent unchanged, it changes nothing: unedited fields continue to follow the code.
	answer, body := s.post("/jobs/app.nightly/edit", with("do", "preview"))
	s.has("unchanged", answer, body, 200, "No changes.")
	revision := s.definition("app.nightly").Revision

	answer, body = s.post("/jobs/app.nightly/edit", with("do", "preview", "schedule", "0 0 3 29 MAR *", "timeout", "90s"))
	s.has("preview", answer, body, 200, "<del class=\"dim\">1h</del>", "<ins>1m30s</ins>", "29 Mar")
	if got := s.definition("app.nightly"); got.Revision != revision {
		t.Error("a preview has changed the job")
	}
	for field, c := range map[string][2]string{
		"schedule": {"61 * * * *", "minute at 0"}, "zone": {"Mars/Base", "Mars/Base"}, "retries": {"some", "want a whole number"}, "timeout": {"-1s", "want 0"},
		"start": {"soon", "invalid time"}, "args": {"[", "not valid JSON"}, "priority": {"500", "want -100 to 100"},
	} {
		answer, body := s.post("/jobs/app.nightly/edit", with("do", "save", field, c[0], "description", "half a page of words"))
		s.has(field, answer, body, 422, "half a page of words", c[1])
		if fault := regexp.MustCompile(`data-fault="` + field + `"[^>]*>([^<]+)<`).FindStringSubmatch(body); fault == nil {
			t.Errorf("%s: what is wrong does not stand beside it", field)
		}
	}
	answer, body = s.post("/jobs/app.nightly/edit", with("do", "save", "timeout", "90s", "tags", "a, b,", "disabled", "on", "end", "2030-01-02T03:04", "reason", "too slow"))
	s.has("save", answer, body, 303)
	p := s.definition("app.nightly").Policy
	if p.Timeout != 90*time.Second || !slices.Equal(p.Tags, []string{"a", "b"}) || !p.Disabled || p.End.Format(time.RFC3339) != "2030-01-02T02:04:00Z" {
		t.Errorf("saved: %+v", p)
	}
	if given := s.definition("app.nightly").Edits.Given(); !slices.Equal(given, []string{"tags", "end", "timeout", "disabled"}) {
		t.Errorf("a person now owns %q", given)
	}

	// The old form again, with a change of its own and one of the same field: nothing is saved, nothing is lost.
	answer, body = s.post("/jobs/app.nightly/edit", with("do", "save", "timeout", "5m", "retries", "7"))
	s.has("a stale form", answer, body, 409, "Another user edited", `name="timeout" value="5m"`, "current value: 1m30s", `name="retries" value="7"`, `name="tags" value="a, b"`)
	if got := s.definition("app.nightly").Policy; got.Timeout != 90*time.Second || got.Retries != 0 {
		t.Errorf("a stale form has changed the job: %+v", got)
	}
	// Sent again from there, it wins, and what the other did elsewhere stays.
	again := filled(body)
	again.Set("do", "save")
	answer, body = s.post("/jobs/app.nightly/edit", again)
	s.has("saved over it", answer, body, 303)
	if got := s.definition("app.nightly").Policy; got.Timeout != 5*time.Minute || got.Retries != 7 || !slices.Equal(got.Tags, []string{"a", "b"}) || !got.Disabled {
		t.Errorf("saved over it: %+v", got)
	}

	answer, body = s.get("/jobs/app.nightly")
	s.has("its page", answer, body, 200, "Follow the code…", "Timeout of an attempt becomes: <strong>1h</strong>")
	answer, body = s.post("/jobs/app.nightly/follow", url.Values{"field": {"timeout"}})
	s.has("follow", answer, body, 303)
	_, body = s.get("/jobs/app.nightly/edit")
	back := filled(body)
	back.Set("clear", "retries")
	back.Set("do", "save")
	answer, body = s.post("/jobs/app.nightly/edit", back)
	s.has("clear", answer, body, 303)
	if got := s.definition("app.nightly").Policy; got.Timeout != time.Hour || got.Retries != 0 {
		t.Errorf("it follows the code again: %+v", got)
	}
}

// A browser that leaves seconds out that are zero has written in no field: these times go on following the code.
func TestEditFormOfABrowserWithoutSeconds(t *testing.T) {
	s := newScene(t)
	start, end := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC), time.Date(2028, 3, 1, 9, 0, 30, 0, time.UTC)
	s.declare(jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "app.spring", Every: time.Hour, Start: start, End: end, First: start}))
	_, body := s.get("/jobs/app.spring/edit")
	form := filled(body)
	if form.Get("was.start") != "2027-03-01T09:00:00" || form.Get("was.end") != "2028-03-01T09:00:30" {
		t.Fatalf("the form has %v", form)
	}
	for _, name := range []string{"start", "first"} {
		form.Set(name, "2027-03-01T09:00")
	}
	form.Set("timeout", "90s")
	form.Set("do", "save")
	answer, body := s.post("/jobs/app.spring/edit", form)
	s.has("save", answer, body, 303)
	if d := s.definition("app.spring"); !slices.Equal(d.Edits.Given(), []string{"timeout"}) || !d.Policy.Start.Equal(start) {
		t.Errorf("a person now owns %q, and it starts at %s", d.Edits.Given(), d.Policy.Start)
	}
}

// filled is what a browser would send of the form for edits.
func filled(body string) url.Values {
	body = body[strings.Index(body, `data-preview=`):]
	body = body[:strings.Index(body, "</form>")]
	form := url.Values{}
	unescape := strings.NewReplacer("&#34;", `"`, "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#43;", "+", "&amp;", "&").Replace
	for _, m := range regexp.MustCompile(`<input ([^>]*)>`).FindAllStringSubmatch(body, -1) {
		name, value := attribute(m[1], "name"), attribute(m[1], "value")
		if strings.Contains(m[1], "checkbox") {
			if !strings.Contains(m[1], " checked") {
				continue
			}
			value = "on"
		}
		form.Add(name, unescape(value))
	}
	for _, m := range regexp.MustCompile(`(?s)<textarea ([^>]*)>(.*?)</textarea>`).FindAllStringSubmatch(body, -1) {
		form.Set(attribute(m[1], "name"), unescape(m[2]))
	}
	for _, m := range regexp.MustCompile(`(?s)<select ([^>]*)>(.*?)</select>`).FindAllStringSubmatch(body, -1) {
		chosen := regexp.MustCompile(`<option value="([^"]*)" selected`).FindStringSubmatch(m[2])
		form.Set(attribute(m[1], "name"), chosen[1])
	}
	return form
}

func attribute(tag, name string) string {
	if m := regexp.MustCompile(`(?:^|\s)` + name + `="([^"]*)"`).FindStringSubmatch(tag); m != nil {
		return m[1]
	}
	return ""
}

func TestDeleteForm(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs/app.work/delete")
	s.has("the form", answer, body, 200, "live run", `value="finish"`, `value="cancel"`)
	answer, body = s.post("/jobs/app.work/delete", nil)
	s.has("without a word about its runs", answer, body, 409, "choose to cancel them or to let them finish")
	answer, body = s.post("/jobs/app.work/delete", url.Values{"runs": {"cancel"}, "revision": {"17"}})
	s.has("of another revision", answer, body, 409, "read it and try again")
	answer, _ = s.post("/jobs/app.work/delete", url.Values{"runs": {"cancel"}})
	if to := answer.Header.Get("Location"); to != "/jobs?did=deleted" {
		t.Fatalf("it leads to %q", to)
	}
	if _, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.work"); jobs.CodeOf(err) != jobs.NotFound {
		t.Errorf("it is still there: %v", err)
	}
	page, err := s.store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, State: jobs.Scheduled})
	if err != nil || len(page.Runs) != 0 {
		t.Errorf("%d delayed runs are left (%v)", len(page.Runs), err)
	}
}

// What held before is shown with who changed it, and one click brings it back.
func TestVersionsPage(t *testing.T) {
	s := newScene(t)
	o := ops.New(ops.Config{Store: s.store})
	for _, n := range []int{3, 5} {
		who := ops.Who{Actor: "person:ann", Reason: fmt.Sprintf("<b>%d</b> are better", n), Role: ops.Admin}
		if _, err := o.Edit(t.Context(), who, kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Retries: new(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.nightly")
	if err != nil {
		t.Fatal(err)
	}
	answer, body := s.get("/jobs/app.nightly")
	s.has("the way there", answer, body, 200, "/jobs/app.nightly/versions")
	answer, body = s.get("/jobs/app.nightly/versions")
	s.has("versions", answer, body, 200, ">current<", "ann", "&lt;b&gt;5&lt;/b&gt; are better", "<del>3</del>", fmt.Sprintf("Roll back to revision %d", d.Revision-1))
	answer, body = s.post("/jobs/app.nightly/rollback", url.Values{"to": {fmt.Sprint(d.Revision - 1)}, "revision": {"1"}})
	s.has("for another revision", answer, body, 409, "read it and try again")
	to := fmt.Sprint(d.Revision - 1)
	answer, body = s.get("/jobs/app.nightly/rollback?to=" + to)
	s.has("what it would change", answer, body, 200, "<del>5</del>", `After the rollback">3<`, "Next ten fires", `name="revision" value="`+fmt.Sprint(d.Revision))
	answer, _ = s.post("/jobs/app.nightly/rollback", url.Values{"to": {to}, "revision": {fmt.Sprint(d.Revision)}})
	if at := answer.Header.Get("Location"); at != "/jobs/app.nightly?did=saved&undo="+fmt.Sprint(d.Revision) {
		t.Fatalf("it leads to %q", at)
	}
	undo := "/jobs/app.nightly/rollback?to=" + fmt.Sprint(d.Revision)
	answer, body = s.get(answer.Header.Get("Location"))
	s.has("the way back", answer, body, 200, `href="`+undo+`">Undo…`)
	if d, err = s.store.Definition(t.Context(), jobs.DefaultTenant, "app.nightly"); err != nil || d.Policy.Retries != 3 {
		t.Errorf("retries are %d (%v)", d.Policy.Retries, err)
	}
}

// A job without code follows none: nothing on its pages would erase what only its edits say.
func TestPagesOfAJobWithoutCode(t *testing.T) {
	s := newScene(t)
	o, who := ops.New(ops.Config{Store: s.store}), ops.Who{Actor: "person:ann", Role: ops.Admin}
	command := json.RawMessage(`{"argv":["/usr/bin/pg_dump"]}`)
	w := ops.Wanted{Key: "db.backup", Kind: kernel.Recurring, App: "app",
		Set: kernel.Settings{Schedule: new("@every 1h"), Exec: &command, Timeout: new(time.Minute)}}
	s.apply(kernel.Register{App: "app", Worker: kernel.NoWorker, Start: true, Bundle: "files-of-ops", // the first revision sets nothing
		Job: kernel.Declaration{Key: "db.backup", Kind: kernel.Recurring}})
	if _, err := o.Declare(t.Context(), who, []ops.Wanted{w}, ops.How{Bundle: "files-of-ops"}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Edit(t.Context(), who, kernel.Edit{Key: "db.backup", Set: kernel.Settings{Retries: new(7)}}); err != nil {
		t.Fatal(err)
	}
	before := s.definition("db.backup")
	for _, path := range []string{"/jobs/db.backup", "/jobs/db.backup/edit"} {
		answer, body := s.get(path)
		s.has(path, answer, body, 200, "no code")
		for _, bad := range []string{"ollow the code", ">edited<", `name="clear" value="schedule"`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
	_, body := s.get("/jobs/db.backup")
	if n := strings.Count(body, "files: files-of-ops"); n != 3 {
		t.Errorf("%d settings are from files, want 3", n)
	}
	for _, field := range []string{"exec", "schedule"} {
		answer, body := s.post("/jobs/db.backup/follow", url.Values{"field": {field}})
		s.has("follow "+field, answer, body, 409, "has no code")
	}
	answer, body := s.get("/jobs/db.backup/versions")
	s.has("versions", answer, body, 200, "No rollback: job db.backup has no code", "Roll back to revision 2…")
	answer, body = s.get("/jobs/db.backup/rollback?to=1")
	s.has("the rollback to nothing", answer, body, 409, "has no code")
	if strings.Contains(body, `class="primary"`) {
		t.Error("the page of a rollback that is refused has a button for it")
	}
	answer, _ = s.post("/jobs/db.backup/rollback", url.Values{"to": {"1"}, "revision": {fmt.Sprint(before.Revision)}})
	if now := s.definition("db.backup"); answer.StatusCode != 409 || !now.Edits.Equal(&before.Edits) {
		t.Errorf("the rollback to nothing: %d, the edits are %q", answer.StatusCode, now.Edits.Given())
	}
}

// What a role may not do is neither offered nor done.
func TestRolesOnJobs(t *testing.T) {
	s, _, tokens := guarded(t)
	edits := []string{"/new", "/new/command", "/jobs/app.nightly/edit", "/jobs/app.nightly/requests", "/jobs/app.nightly/follow", "/jobs/app.nightly/delete", "/jobs/app.nightly/rollback"}
	acts := []string{"/jobs/app.nightly/trigger", "/jobs/app.nightly/pause", "/jobs/app.nightly/resume"}
	for role, forbidden := range map[string][]string{"viewer": slices.Concat(acts, edits), "operator": edits} {
		cookie := s.signIn(tokens[role])
		for _, page := range []string{"/", "/jobs", "/jobs/app.nightly", "/jobs/app.paused", "/jobs/app.work"} {
			answer, body := s.get(page, "Cookie", cookie)
			s.has(role+" "+page, answer, body, 200)
			for _, path := range forbidden {
				if path = strings.TrimPrefix(path, "/jobs/app.nightly"); regexp.MustCompile(`(action|href)="/jobs/[^"]*` + path).MatchString(body) {
					t.Errorf("%s is offered %s on %s", role, path, page)
				}
			}
		}
		for _, path := range forbidden {
			answer, body := s.post(path, url.Values{"do": {"save"}, "reason": {"x"}}, "Cookie", cookie)
			s.has(role+" "+path, answer, body, 403, "yours is "+role)
		}
	}
	for _, path := range []string{"/jobs/app.nightly/run", "/jobs/app.nightly/pause"} {
		answer, body := s.get(path, "Cookie", s.signIn(tokens["viewer"]))
		s.has(path, answer, body, 403)
	}
	d := s.definition("app.nightly")
	if d.Paused != nil || d.Revision != 1 {
		t.Errorf("it has changed: %+v", d)
	}
	answer, body := s.post("/jobs/app.nightly/pause", nil, "Cookie", s.signIn(tokens["operator"]))
	s.has("an operator pauses", answer, body, 303)
	answer, body = s.get("/jobs/app.nightly/edit", "Cookie", s.signIn(tokens["admin"]))
	s.has("an admin edits", answer, body, 200)
}

func TestSearchBox(t *testing.T) {
	s := newScene(t)
	run := s.runs[jobs.Failed].String()
	for q, want := range map[string]string{run: "/runs/" + run, " app.work ": "/jobs/app.work", "night": "/jobs?q=night", hostile: "/jobs?q=" + url.QueryEscape(hostile), "": "/jobs?q="} {
		answer, _ := s.get("/search?q=" + url.QueryEscape(q))
		if to := answer.Header.Get("Location"); answer.StatusCode != 303 || to != want {
			t.Errorf("%q leads to %q, want %q", q, to, want)
		}
	}
}

// Without a cookie a page has no theme of its own; with one it is born in it, so that nothing flashes.
func TestTheme(t *testing.T) {
	s := newScene(t)
	answer, _ := s.post("/theme", url.Values{"theme": {"dark"}, "back": {"/jobs?q=x"}})
	if to := answer.Header.Get("Location"); to != "/jobs?q=x" || len(answer.Cookies()) != 1 || answer.Cookies()[0].Value != "dark" {
		t.Fatalf("%s %v", to, answer.Cookies())
	}
	for cookie, want := range map[string]string{"": `<html lang="en">`, "carillon_theme=dark": `<html lang="en" data-theme="dark">`, "carillon_theme=x": `<html lang="en">`} {
		if _, body := s.get("/", "Cookie", cookie); !strings.Contains(body, want) {
			t.Errorf("with %q the page does not have %s", cookie, want)
		}
	}
	if answer, _ := s.post("/theme", url.Values{"theme": {"system"}, "back": {"//evil.example"}}); answer.Header.Get("Location") != "/" || answer.Cookies()[0].MaxAge >= 0 {
		t.Errorf("back to the system's: %s %v", answer.Header.Get("Location"), answer.Cookies())
	}
}

// Due times that lie behind are counted before anything is made of them.
func TestBackfillForm(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs/app.nightly/backfill")
	s.has("empty", answer, body, 200, `name="from"`, `value="1"`, ">Preview<", "!in parallel")
	words := url.Values{"from": {"2026-01-01T00:00"}, "to": {"2026-01-04T00:00"}, "zone": {"Europe/Berlin"}, "parallel": {"2"}}
	answer, body = s.get("/jobs/app.nightly/backfill?" + words.Encode())
	s.has("counted", answer, body, 200, "3 runs</strong> for 3 due times from", "at most 2 in parallel", "2026-01-01", "Create 3 runs")
	wrong := url.Values{"from": {"2026-01-04T00:00"}, "to": {"2026-01-01T00:00"}, "zone": {"Europe/Berlin"}}
	for name, send := range map[string]func() (*http.Response, string){
		"asked":  func() (*http.Response, string) { return s.get("/jobs/app.nightly/backfill?" + wrong.Encode()) },
		"posted": func() (*http.Response, string) { return s.post("/jobs/app.nightly/backfill", wrong) },
	} {
		answer, body = send()
		s.has("the wrong way round, "+name, answer, body, 422, "is not before", `value="2026-01-04T00:00"`, "!in parallel")
	}
	answer, body = s.get("/jobs/app.work/backfill?" + words.Encode())
	s.has("a triggered job", answer, body, 422, "is triggered: it has no due times")
	if runs := s.runsOf("app.nightly"); len(runs) != 0 {
		t.Fatalf("%d runs were made of questions", len(runs))
	}
	answer, body = s.post("/jobs/app.nightly/backfill", words)
	if answer.StatusCode != http.StatusSeeOther || !strings.HasPrefix(answer.Header.Get("Location"), "/runs?job=app.nightly&origin=backfill") {
		t.Errorf("made: %d, to %s: %.200s", answer.StatusCode, answer.Header.Get("Location"), body)
	}
	runs := s.runsOf("app.nightly")
	if len(runs) != 3 || runs[0].Origin != kernel.FromBackfill {
		t.Errorf("%d runs were made", len(runs))
	}
	answer, body = s.get("/jobs/app.nightly/backfill?" + words.Encode())
	s.has("again", answer, body, 200, "No runs to create", "3 with a run", "!Create 3")
}

func (s *scene) runsOf(key jobs.Key) []*kernel.Run {
	s.t.Helper()
	page, err := s.store.Runs(s.t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: key, Limit: metastore.MaxPage})
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Runs
}
