package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A form creates a job of a program or a script; errors are shown with the input, and the page of the job shows what it
// runs, as a shell would need it.
func TestNewCommandJob(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs")
	s.has("the link", answer, body, 200, `href="/new/command"`)
	answer, body = s.get("/new/command")
	s.has("the form", answer, body, 200, "New command job", `name="app" value="exec"`, "Save and run")

	good := url.Values{"key": {"db.backup"}, "app": {"exec"}, "argv": {"/opt/backup\r\n--name\r\nit's <b>\r\n\r\nA=1"}, "dir": {"/srv"}, "user": {"backup"},
		"schedule": {"0 30 2 * * *"}, "zone": {"Europe/Berlin"}, "timeout": {"90s"}, "retries": {"3"}}
	for field, wrong := range map[string][2]string{"argv": {"", "argv: is missing"}, "script": {"true", "is given together with argv"}, "dir": {"srv", "want an absolute path"},
		"key": {"no spaces", "job key"}, "schedule": {"0 0 25 * * *", "hour"}, "timeout": {"long", "long"}, "retries": {"many", "whole number"}} {
		form := url.Values{}
		for k, v := range good {
			form[k] = v
		}
		form.Set(field, wrong[0])
		answer, body = s.post("/new/command", form)
		s.has(field, answer, body, 422, wrong[1], `value="backup"`)
	}
	answer, _ = s.post("/new/command", good)
	if to := answer.Header.Get("Location"); to != "/jobs/db.backup?did=saved" {
		t.Fatalf("it leads to %q", to)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "db.backup")
	if err != nil || d.Kind != kernel.Recurring || d.App != "exec" || d.Policy.Retries != 3 || d.Policy.Zone != "Europe/Berlin" ||
		string(d.Policy.Exec) != `{"argv":["/opt/backup","--name","it's \u003cb\u003e","","A=1"],"dir":"/srv","user":"backup"}` {
		t.Fatalf("%+v, %v", d, err)
	}
	answer, body = s.post("/new/command", good)
	s.has("a second time", answer, body, 409, "job db.backup already exists")
	answer, body = s.get("/jobs/db.backup")
	s.has("its page", answer, body, 200, "<h2>Command</h2>", `/opt/backup --name &#39;it&#39;\&#39;&#39;s &lt;b&gt;&#39; &#39;&#39; &#39;A=1&#39;</pre>`, "&#34;it&#39;s &lt;b&gt;&#34;", "<dt>Command</dt><dd>/opt/backup --name")

	good.Set("key", "db.vacuum")
	good.Set("do", "try")
	good.Set("argv", "")
	good.Set("script", "vacuum | tee <log>")
	good.Del("schedule")
	answer, _ = s.post("/new/command", good)
	if to := answer.Header.Get("Location"); !strings.HasPrefix(to, "/runs/") {
		t.Fatalf("a try leads to %q", to)
	}
	answer, body = s.get("/jobs/db.vacuum")
	s.has("the page of a script", answer, body, 200, "<h2>Command</h2>", `>vacuum | tee &lt;log&gt;</pre>`)
	if strings.Contains(body, "New job with this handler") {
		t.Error("a command is offered as a handler")
	}
}

// The form of a job edits its command, and shows what is wrong with it.
func TestEditCommand(t *testing.T) {
	s := newScene(t)
	form := url.Values{"key": {"db.backup"}, "app": {"exec"}, "argv": {"backup"}, "timeout": {"90s"}, "retries": {"0"}}
	if answer, body := s.post("/new/command", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "db.backup")
	if err != nil {
		t.Fatal(err)
	}
	answer, body := s.get("/jobs/db.backup/edit")
	s.has("the form", answer, body, 200, `name="exec"`, "&#34;backup&#34;")
	form = url.Values{"revision": {fmt.Sprint(d.Revision)}, "do": {"save"}, "exec": {`{"argv":["backup"],"stdin":"both"}`}}
	answer, body = s.post("/jobs/db.backup/edit", form)
	s.has("a mistake", answer, body, 422, "stdin: invalid value", "&#34;both&#34;")
	form.Set("exec", `{"script":"echo a \\u0026 b \u0026 c"}`)
	if answer, _ = s.post("/jobs/db.backup/edit", form); answer.Header.Get("Location") != "/jobs/db.backup?did=saved&undo=1" {
		t.Fatalf("it leads to %q", answer.Header.Get("Location"))
	}
	answer, body = s.get("/jobs/db.backup")
	s.has("the page", answer, body, 200, `echo a \\u0026 b &amp; c&#34;`, `>echo a \u0026 b &amp; c</pre>`)
	form.Set("was.exec", form.Get("exec"))
	form.Set("exec", "")
	form.Set("revision", fmt.Sprint(d.Revision+1))
	if answer, body = s.post("/jobs/db.backup/edit", form); answer.StatusCode != 303 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	if d, err = s.store.Definition(t.Context(), jobs.DefaultTenant, "db.backup"); err != nil || d.Policy.Work() != "" {
		t.Errorf("the command is %s, %v", d.Policy.Exec, err)
	}
}
