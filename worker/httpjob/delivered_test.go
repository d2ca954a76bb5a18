package httpjob_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// A notification in the seed's words arrives, with the body that the seed describes, field by field.
func TestS2_46NotificationBodies(t *testing.T) {
	p := newSite(t, "", func(_ int, r seen) (int, string) {
		switch {
		case r.path == "/work":
			return 200, `{"rows":[1,2]}`
		case r.path == "/broken":
			return 500, `{"why":"disk full"}`
		}
		return 200, "" // a recipient
	})
	note := func(method, path, state, body string) string {
		return fmt.Sprintf(`{"method":%q,"stateEquals":%q,"url":"service://far%s","body":%s,"headers":{"Accept":"application/json","Content-Type":"application/json"}}`, method, state, path, body)
	}
	const seeds = `"${schedulingNotifyBody}|json"`
	p.make("good", `{"request":[{"url":"FAR/work","respEnvName":"OUT"}],"notification":[`+strings.Join([]string{note("GET", "/get", "200", seeds),
		note("POST", "/post/${schedulingJobId}?n=${schedulingExecuteNumber}", "finalSucceed", seeds), note("POST", "/inside", "200", `{"rows":"${OUT}|json","who":"${$.who}","of":"${jobId}"}`)}, ",")+`]}`, kernel.Settings{})
	p.make("bad", `{"request":[{"url":"FAR/broken","respEnvName":"OUT"},{"url":"FAR/work","respEnvName":"LATER"}],"notification":[`+strings.Join([]string{note("POST", "/failed", "500", seeds), note("PUT", "/end", "finalFailed", seeds),
		note("POST", "/missing", "500", `{"rows":"${OUT}|json","later":"${LATER}|json","first":"${responses[1].id}"}`)}, ",")+`]}`, kernel.Settings{Retries: new(0)})
	good, bad := p.run("good", `{"who":"ann"}`), p.run("bad", "")
	if good.State != jobs.Succeeded || bad.State != jobs.Terminated {
		t.Fatalf("%s, %s", good.State, bad.State)
	}
	for _, run := range slices.Concat(p.notices(good.ID, 3), p.notices(bad.ID, 3)) {
		if run.State != jobs.Succeeded {
			t.Errorf("a notification is %s: %s", run.State, run.Error)
		}
	}
	when := regexp.MustCompile(`"datetime":"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"`)
	for path, want := range map[string]string{
		"GET /get":        `{"httpStatus":"200","response":{"status":"succeed","message":"","error":"","progress":"","datetime":"T","data":{"rows":[1,2]}}}`,
		"POST /post/good": `{"httpStatus":"200","response":{"status":"finalSucceed","message":"","error":"","progress":"","datetime":"T","data":{"rows":[1,2]}}}`,
		"POST /inside":    `{"rows":{"rows":[1,2]},"who":"ann","of":"good"}`,
		"POST /failed":    `{"httpStatus":"500","response":{"status":"failed","message":"","error":"500","progress":"","datetime":"T","data":{"why":"disk full"}}}`,
		"PUT /end":        `{"httpStatus":"500","response":{"status":"finalFailed","message":"request 1 was answered with 500: {\"why\":\"disk full\"}","error":"500","progress":"","datetime":"T","data":{}}}`,
		"POST /missing":   `{"rows":{"why":"disk full"},"later":null,"first":""}`,
	} {
		var bodies []string
		for _, r := range p.got() {
			if at, _, _ := strings.Cut(r.path, "?"); r.method+" "+at == path {
				bodies = append(bodies, when.ReplaceAllString(r.body, `"datetime":"T"`))
			}
		}
		if len(bodies) != 1 || !sameJSON(bodies[0], want) {
			t.Errorf("%s was sent %q, want once %s", path, bodies, want)
		}
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// A notification that could never be delivered is refused with its job.
func TestUndeliverableNotificationsAreRefused(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, "" })
	p.until("a node leads", func() bool { return p.s.Ready(t.Context()) == nil })
	for note, want := range map[string]string{
		`{"url":"FAR/n","body":"${schedulingNotifyBody|json}"}`:       `http: notification[0].body: ${schedulingNotifyBody|json}: write "${schedulingNotifyBody}|json"`,
		`{"url":"FAR/n","body":"${schedulingNotificationBody}|json"}`: "http: notification[0].body: ${schedulingNotificationBody}: names that begin with scheduling belong to the system",
		`{"url":"FAR/n?q=${NOWHERE}"}`:                                "http: notification[0].url: unknown name ${NOWHERE}",
		`{"url":"service://nowhere/n"}`:                               `http: notification[0].url: unknown service "nowhere"`,
		`{"url":"FAR/n","headers":{"X":"${secret:NONE}"}}`:            "http: notification[0].url: the worker has no secret NONE",
		`{"url":"FAR/n?q=${responses[1].a}"}`:                         "http: notification[0].url: ${responses[1].a}: there are at most 1 responses",
	} {
		spec := json.RawMessage(strings.ReplaceAll(`{"request":[{"url":"FAR/x"}],"notification":[`+note+`]}`, "FAR", p.far.URL))
		_, err := p.s.Ops().Create(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.Wanted{Key: "never", Kind: kernel.Triggered, App: httpjob.App, Set: kernel.Settings{HTTP: &spec}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", note, err, want)
		}
	}
}

// A notification whose values are too large for a run is sent without them.
func TestLargeNotifications(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{"a":"` + strings.Repeat("x", 60<<10) + `"}` })
	calls := strings.TrimSuffix(strings.Repeat(`{"url":"FAR/x"},`, 6), ",")
	p.make("large", `{"request":[`+calls+`],"notification":[{"method":"POST","url":"FAR/plain","stateEquals":"finalSucceed","body":"${schedulingNotifyBody}|json"},
		{"method":"POST","url":"FAR/paths","stateEquals":"finalSucceed","body":{"all":"${$.responses}|json","notice":"${schedulingNotifyBody}|json"}}]}`, kernel.Settings{})
	run := p.run("large", "")
	p.notices(run.ID, 2)
	for path, most := range map[string][2]int{"/plain": {60 << 10, 70 << 10}, "/paths": {10, 1 << 10}} {
		i := slices.IndexFunc(p.got(), func(r seen) bool { return r.path == path })
		if i < 0 {
			t.Errorf("%s was not notified", path)
		} else if r := p.got()[i]; !strings.Contains(r.body, httpspec.StatusFinalSucceed) || len(r.body) < most[0] || len(r.body) > most[1] {
			t.Errorf("%s: %d bytes: %.200s", path, len(r.body), r.body)
		}
	}
}
