package httpspec_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// long has every field that the second seed knows.
const long = `{
	"jobName": "school", "jobId": "20220125", "jobDescription": "goes on", "creator": "001", "creatorName": "service-client",
	"active": 1, "async": true, "qos": 0, "timeoutSeconds": 15, "checkRateSeconds": 4,
	"request": [
		{"headers": {"name": "c"}, "method": "POST", "url": "service://jobswork/main/resultHandleSchool?feedbackUrl=${schedulingFeedbackUrl}",
			"body": {"classSize": 2, "student": [{"number": 1, "name": "${jobId}"}, {"number": 8, "name": "${jobId}"}]}},
		{"headers": {"name": "c"}, "method": "POST", "url": "service://jobswork/main/workHandleStr?feedbackUrl=${schedulingFeedbackUrl}", "body": {"school": "${$.student}|json"}}],
	"notification": [{"headers": {"name": "c"}, "method": "POST", "body": "${schedulingNotifyBody}|json",
		"url": "service://jobsclient/main/notifierClient/${schedulingJobId}?executeNumber=${schedulingExecuteNumber}"}],
	"timer": {"period": "0 0/5 * * * ?", "dueTime": "2s", "ttl": "5d3s"},
	"checkUrl": {"headers": {"name": "c"}, "method": "GET", "url": "service://jobswork/main/provideCheckUrl/${schedulingJobId}?executeNumber=${schedulingExecuteNumber}"},
	"retry": [{"maxAttempts": 2, "backoffRate": 1.5, "errorEquals": "500", "intervalSeconds": 2}, {"maxAttempts": 2, "backoffRate": 2.0, "errorEquals": "timeout", "intervalSeconds": 5},
		{"errorEquals": "error1", "intervalSeconds": 3}]}`

var written = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func settingsOf(t *testing.T, doc string) (*httpspec.Document, kernel.Settings) {
	t.Helper()
	d, err := httpspec.ParseDocument([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Settings(written, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return d, s
}

func TestTheSeedsLongExample(t *testing.T) {
	_, s := settingsOf(t, long)
	if *s.Name != "school" || *s.Description != "goes on" || fmt.Sprint(*s.Tags) != "[creator=001 creatorName=service-client dueTime=2s ttl=5d3s]" ||
		*s.Schedule != "0 0/5 * * * ?" || !s.End.Equal(written.Add(5*24*time.Hour+3*time.Second)) || *s.Timeout != 15*time.Second || *s.Retries != 5 {
		t.Errorf("%+v", s)
	}
	want := "[{[500] 2 2s 1.5 0s} {[timeout] 2 5s 2 0s} {[error1] 2 3s 2 0s} {[*] 0 0s 0 0s}]"
	if got := fmt.Sprint(*s.RetryRules); got != want {
		t.Errorf("rules are %s, want %s", got, want)
	}
	p, err := httpspec.Parse(*s.HTTP)
	if err != nil || len(p.Steps) != 2 || p.Check == nil || p.CheckRateSeconds != 4 || len(p.Notify) != 1 || !p.Async {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestS2_39SynchronousTimeoutsAre500(t *testing.T) {
	_, s := settingsOf(t, `{"request":[{"url":"http://x/"}],"retry":[{"errorEquals":"500"}]}`)
	if got := fmt.Sprint(*s.RetryRules); got != "[{[500 timeout] 2 1s 2 0s} {[*] 0 0s 0 0s}]" {
		t.Errorf("rules are %s", got)
	}
	if *s.Timeout != time.Minute || *s.Retries != 5 || *s.Schedule != "R1/PT1S" {
		t.Errorf("fields that were not set: %+v", s)
	}
}

// What is written as a document, kept and read again says the same.
func TestDocumentsComeBack(t *testing.T) {
	_, s := settingsOf(t, long)
	d := &kernel.Definition{Key: "20220125", Kind: kernel.Recurring, Edits: s}
	d.Policy = d.Resolve(&kernel.Global{})
	doc, err := httpspec.DocumentOf(d, true)
	if err != nil || doc.Creator != "001" || doc.CreatorName != "service-client" || *doc.Active != 1 || *doc.TimeoutSeconds != 15 || len(doc.Request) != 2 || len(doc.Retry) != 3 ||
		doc.Timer.Period != "0 0/5 * * * ?" || doc.CheckURL.URL == "" || len(doc.Notification) != 1 {
		t.Errorf("%+v, %v", doc, err)
	}
}

// A timer is read as it was given, as long as it is what the job does.
func TestS2_02TimersComeBack(t *testing.T) {
	for given, want := range map[string]string{
		``: `null`,
		`{"dueTime":"2023-10-01 09:00:01","period":"0s"}`:            ``,
		`{"dueTime":"2099-10-1 09:00:01","period":"5m"}`:             ``,
		`{"dueTime":"1h","period":"5m"}`:                             ``,
		`{"dueTime":"PT1H","period":"R4/PT3S"}`:                      ``,
		`{"dueTime":"10s","period":"R4/PT3S"}`:                       ``,
		`{"dueTime":"2s","period":"0 0/5 * * * ?","ttl":"5d3s"}`:     ``,
		`{"dueTime":"0s","period":"0 */1 * * * ?","ttl":"P5DT3S"}`:   ``,
		`{"dueTime":"0s","period":"1 0 9 1 10 ? 2030","ttl":"120h"}`: ``,
		`{"dueTime":"","period":"5m"}`:                               ``,
		`{"dueTime":"1h","period":""}`:                               ``,
		`{"dueTime":"0s","period":"external"}`:                       ``,
		`{"dueTime":"10m","period":"0s","ttl":"2h"}`:                 ``,
	} {
		doc := `{"request":[{"url":"http://x/"}],"timer":` + cmp.Or(given, "null") + `}`
		_, s := settingsOf(t, doc)
		d := &kernel.Definition{Key: "a", Kind: kernel.Recurring, Edits: s, Anchor: written.Add(2 * time.Second)} // it took a while
		d.Policy = d.Resolve(&kernel.Global{})
		read := func() string {
			back, err := httpspec.DocumentOf(d, true)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(back.Timer)
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
		if got := read(); got != cmp.Or(want, given) {
			t.Errorf("%s came back as %s", given, got)
		}
		d.Policy.Schedule, d.Policy.First, d.Policy.End, d.Anchor = "7m", time.Time{}, written.Add(27*time.Hour+30*time.Minute), written
		if got := read(); got != `{"dueTime":"0s","period":"7m","ttl":"1d3h30m"}` {
			t.Errorf("%s was edited, and is %s", given, got)
		}
	}
	_, s := settingsOf(t, `{"request":[{"url":"http://x/"}],"timer":{"dueTime":"1h","period":"5m","ttl":"1d"},"parentJob":"p"}`)
	_, next := settingsOf(t, `{"request":[{"url":"http://x/"}],"timer":{"dueTime":"0s","period":"0 * * * * ?"}}`)
	after := next.Over(s)
	if !after.First.IsZero() || !after.End.IsZero() || *after.Parent != "" || fmt.Sprint(*after.Tags) != "[]" {
		t.Errorf("an update leaves first %v, end %v, parent %q and tags %v of the document before", after.First, after.End, *after.Parent, *after.Tags)
	}
}

func TestDocumentsRefused(t *testing.T) {
	for doc, want := range map[string]string{
		`{"request":[{"url":"http://x/"}],"colour":"red"}`: "colour",
		`{"request":[{"url":"http://x/"}],"active":"yes"}`: "active",
		`{"request":[{"uri":"http://x/"}]}`:                "uri",
		`{}`:                                               "needs a request",
		`{"request":[{"url":"http://x/"}],"timer":{"dueTime":"soon","period":"5m"}}`:                "timer.dueTime",
		`{"request":[{"url":"http://x/"}],"timer":{"dueTime":"0s","period":"often"}}`:               "timer.period",
		`{"request":[{"url":"http://x/"}],"timer":{"dueTime":"0s","period":"5m","ttl":"long"}}`:     "timer.ttl",
		`{"request":[{"url":"http://x/"}],"retry":[{}]}`:                                            "errorEquals",
		`{"request":[{"url":"http://x/"}],"retry":[{"errorEquals":"500","intervalSeconds":-1}]}`:    "intervalSeconds",
		`{"request":[{"url":"http://x/"}],"retry":[{"errorEquals":"500","intervalSeconds":1e300}]}`: "intervalSeconds",
	} {
		d, err := httpspec.ParseDocument([]byte(doc))
		if err == nil {
			_, err = d.Settings(written, "")
		}
		if !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ...%s...", doc, err, want)
		}
	}
}

// A due time without an offset is one on the clocks of the job's zone, which the document shows again.
func TestDueTimesAreInTheZoneOfTheJob(t *testing.T) {
	d, err := httpspec.ParseDocument([]byte(`{"request":[{"url":"http://x/"}],"timer":{"dueTime":"2026-12-01 09:00:01","period":"1h"}}`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Settings(written, "Europe/Berlin")
	if want := time.Date(2026, 12, 1, 8, 0, 1, 0, time.UTC); err != nil || s.First == nil || !s.First.Equal(want) {
		t.Fatalf("first due %v, want %v (%v)", s.First, want, err)
	}
	if s.Zone != nil {
		t.Errorf("the job got the zone %s of its own", *s.Zone)
	}
	job := &kernel.Definition{Key: "k", Kind: kernel.Recurring, Edits: s}
	job.Policy = job.Resolve(&kernel.Global{Defaults: kernel.Settings{Zone: new("Europe/Berlin")}})
	if doc, err := httpspec.DocumentOf(job, true); err != nil || doc.Timer.DueTime != "2026-12-01 09:00:01" {
		t.Errorf("the document has %+v (%v)", doc.Timer, err)
	}
}
