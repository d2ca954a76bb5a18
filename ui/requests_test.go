package ui_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

var (
	formInput  = regexp.MustCompile(`<(input|button|textarea|select|option)( [^>]*)?>([^<]*)`)
	formAttr   = regexp.MustCompile(` ([a-z-]+)(?:="([^"]*)")?`)
	formInside = regexp.MustCompile(`(?s)<form class="split".*?</form>`)
)

// sentBy returns what a browser would send of the form of a page.
func sentBy(body string) url.Values {
	form, selected := url.Values{}, ""
	for _, m := range formInput.FindAllStringSubmatch(formInside.FindString(body), -1) {
		attr := map[string]string{}
		for _, a := range formAttr.FindAllStringSubmatch(m[2], -1) {
			attr[a[1]] = html.UnescapeString(a[2])
		}
		_, checked := attr["checked"]
		switch {
		case m[1] == "button":
		case m[1] == "select":
			selected = attr["name"]
		case m[1] == "option":
			value, has := attr["value"]
			if !has {
				value = html.UnescapeString(m[3])
			}
			if _, is := attr["selected"]; is || !form.Has(selected) {
				form.Set(selected, value)
			}
		case m[1] == "textarea":
			form.Add(attr["name"], strings.ReplaceAll(html.UnescapeString(m[3]), "\n", "\r\n")) // as browsers do
		case attr["type"] == "checkbox" && !checked:
		case attr["type"] == "checkbox":
			form.Add(attr["name"], "on")
		default:
			form.Add(attr["name"], attr["value"])
		}
	}
	return form
}

// whole has all that the form knows.
const whole = `{"request":[
	{"method":"POST","url":"https://a.example/begin?day=${$.day}&x=<1>","headers":{"Authorization":"Bearer s3cr3t","Cookie":"k=s3cr3t","X-Api-Key":"${secret:KEY}","X-Plain":"a \"b\""},"body":{"n":12345678901234567890,"list":[1,{"a":"<b>"}]},"respEnvName":"FIRST"},
	{"method":"PUT","url":"service:/second","serviceName":"far","body":"plain ${FIRST}\nand a line"},
	{"method":"DELETE","url":"https://c.example/","body":"17"}],
	"async":true,"checkUrl":{"method":"GET","url":"https://a.example/check","headers":{"Token":"s3cr3t-too"}},"checkRateSeconds":7,"qos":1,"serviceName":"own",
	"notification":[{"method":"POST","url":"https://n.example/done","stateEquals":"finalFailed","body":"${schedulingNotifyBody}|json","headers":{"Secret":"s3cr3t"}},{"method":"GET","url":"https://n.example/each"}]}`

func (s *scene) requestsOf(key jobs.Key) (v any) {
	s.t.Helper()
	d, err := s.store.Definition(s.t.Context(), jobs.DefaultTenant, key)
	if err == nil {
		err = json.Unmarshal(d.Policy.HTTP, &v)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *scene) makesHTTP(key jobs.Key, spec string) {
	s.t.Helper()
	s.apply(kernel.Register{App: "http", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}})
	s.apply(kernel.Edit{Key: key, Set: kernel.Settings{HTTP: new(json.RawMessage(spec))}})
}

// A form that is sent as it is shown changes nothing, shows no secret, and keeps them.
func TestRequestsAreEditedWhole(t *testing.T) {
	s := newScene(t)
	s.makesHTTP("app.whole", whole)
	answer, body := s.get("/jobs/app.whole")
	s.has("the job", answer, body, 200, `href="/jobs/app.whole/requests"`, "!s3cr3t")
	answer, body = s.get("/jobs/app.whole/requests")
	s.has("the form", answer, body, 200, "Request 1", "Request 3", "Notification 2", "!s3cr3t", "${secret:KEY}", "plain ${FIRST}")
	before, form := s.requestsOf("app.whole"), sentBy(body)
	if answer, body := s.post("/jobs/app.whole/requests", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	if after := s.requestsOf("app.whole"); !reflect.DeepEqual(after, before) {
		t.Errorf("as it was shown, the form makes\n%v\nof\n%v", after, before)
	}

	_, body = s.get("/jobs/app.whole/requests")
	form = sentBy(body)
	form.Set("request.0.method", "PATCH")
	form.Set("request.0.url", "https://A.example/other")
	form.Set("notification.1.state", "timeout")
	form.Set("reason", "another path")
	if answer, body := s.post("/jobs/app.whole/requests", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.whole")
	if text := string(d.Policy.HTTP); err != nil || !strings.Contains(text, `"PATCH","url":"https://A.example/other","headers":{"Authorization":"Bearer s3cr3t","Cookie":"k=s3cr3t"`) || !strings.Contains(text, `"stateEquals":"timeout"`) {
		t.Errorf("%s, %v", text, err)
	}

	for _, page := range []string{"/jobs/app.whole", "/jobs/app.whole/versions", "/jobs/app.whole/edit", "/audit"} {
		answer, body = s.get(page)
		s.has(page, answer, body, 200, "app.whole", "!s3cr3t")
	}
	// The first form is of an earlier revision.
	answer, body = s.post("/jobs/app.whole/requests", form)
	s.has("a stale form", answer, body, 409, "Another user edited this job", "https://A.example/other", "!s3cr3t")
	_, body = s.get("/jobs/app.whole/requests")
	for field, wrong := range map[string][2]string{"request.0.url": {"https://evil.example/", "header Authorization: enter its value again: the host of the URL has changed"},
		"request.1.url": {"ftp://x/", "request[1].url"}, "check.url": {"", "header Token: enter its value again"}, "check.header": {"X-Other", "header X-Other: enter its value: none is stored"}, "notification.1.url": {"http://", "notification[1].url"}, "rate": {"99999", "checkRateSeconds"},
		"request.2.header": {"Authorization", "header Authorization: enter its value: none is stored"}} {
		form := sentBy(body)
		form.Set(field, wrong[0])
		if field == "request.2.header" {
			form.Set("request.2.value", "***")
		}
		answer, body := s.post("/jobs/app.whole/requests", form)
		s.has(field, answer, body, 422, wrong[1], "!s3cr3t")
	}
	answer, body = s.get("/jobs/app.work/requests")
	s.has("a job of code", answer, body, 409, "job app.work has no HTTP requests")
}

// Rows are added, moved and removed by buttons, and nothing is saved meanwhile. A header keeps its secret when its
// request moves.
func TestRowsOfRequests(t *testing.T) {
	s := newScene(t)
	s.makesHTTP("app.rows", `{"request":[{"method":"GET","url":"https://a.example/"},{"method":"GET","url":"https://b.example/","headers":{"Authorization":"s3cr3t"}}]}`)
	_, body := s.get("/jobs/app.rows/requests")
	press := func(do string) {
		t.Helper()
		form := sentBy(body)
		form.Set("do", do)
		answer, next := s.post("/jobs/app.rows/requests", form)
		if body = next; answer.StatusCode != 200 {
			t.Fatalf("%s: %d %s", do, answer.StatusCode, next)
		}
	}
	press("up:request.1")
	press("add:request")
	press("add:notification")
	press("header:notification.0")
	press("remove:request.1")
	form := sentBy(body)
	if len(form["notification.0.header"]) != 2 || form.Has("request.2.url") || form.Get("notification.0.body") != "${schedulingNotifyBody}|json" {
		t.Fatalf("%v", form)
	}
	form.Set("request.1.url", "https://c.example/")
	form.Set("notification.0.url", "https://n.example/")
	form["notification.0.header"], form["notification.0.value"] = []string{"X-A", "X-B"}, []string{"1", "2"}
	if fmt.Sprint(s.requestsOf("app.rows")) != "map[request:[map[method:GET url:https://a.example/] map[headers:map[Authorization:s3cr3t] method:GET url:https://b.example/]]]" {
		t.Errorf("buttons have saved %v", s.requestsOf("app.rows"))
	}
	if answer, body := s.post("/jobs/app.rows/requests", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.rows")
	want := `{"request":[{"method":"GET","url":"https://b.example/","headers":{"Authorization":"s3cr3t"}},{"method":"POST","url":"https://c.example/"}],` +
		`"notification":[{"method":"POST","url":"https://n.example/","headers":{"X-A":"1","X-B":"2"},"body":"${schedulingNotifyBody}|json"}]}`
	if err != nil || string(d.Policy.HTTP) != want {
		t.Errorf("%s, %v\nwant %s", d.Policy.HTTP, err, want)
	}
	_, body = s.get("/jobs/app.rows/requests")
	press("remove:request.0")
	press("remove:request.0") // the last one stays
	if form := sentBy(body); !form.Has("request.0.url") || form.Has("request.1.url") {
		t.Errorf("%v", form)
	}
}
