package alarms_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/webhook"
)

func TestAbout(t *testing.T) {
	ended := now.Add(-time.Minute)
	base := func(event, title string, severity alarms.Severity, at time.Time) alarms.Message {
		return alarms.Message{ID: "1", Key: "default/shop.pack/" + event, Title: title, Severity: severity, At: at, Source: "default/shop.pack", URL: "https://page",
			Facts: []alarms.Fact{{Name: "Tenant", Value: "default"}, {Name: "Job", Value: "shop.pack"}}}
	}
	failed := base("run.terminated", "Job shop.pack failed", alarms.Error, ended)
	failed.Text = "out of boxes"
	failed.Facts = append(failed.Facts, alarms.Fact{Name: "Run", Value: "0199"}, alarms.Fact{Name: "Attempt", Value: "3"}, alarms.Fact{Name: "Cause", Value: "error"}, alarms.Fact{Name: "Further events", Value: "7"})
	missed := base("due.missed", "Job shop.pack missed 2 due times", alarms.Warning, now)
	missed.Facts = append(missed.Facts, alarms.Fact{Name: "From", Value: "2020-09-06T02:46:53Z"}, alarms.Fact{Name: "To", Value: "2020-09-06T02:47:53Z"})
	paused := base("job.paused", "Job shop.pack paused itself", alarms.Error, now)
	paused.Text = "3 failures in a row"
	for _, c := range []struct {
		event webhook.Event
		want  alarms.Message
	}{
		{webhook.Event{Event: "run.terminated", Run: "0199", Attempt: 3, Cause: "error", Error: "out of boxes", Ended: &ended, More: 7}, failed},
		{webhook.Event{Event: "due.missed", From: &ended, To: &now, Count: 2}, missed},
		{webhook.Event{Event: "job.paused", Reason: "3 failures in a row"}, paused},
	} {
		c.event.ID, c.event.Tenant, c.event.Job, c.event.URL = "1", "default", "shop.pack", "https://page"
		if got := alarms.About(c.event, now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.event.Event, got, c.want)
		}
	}
}

// Deliver reports to the poster whether and when a retry helps.
func TestDeliver(t *testing.T) {
	status, after := http.StatusOK, ""
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(status)
	}))
	defer receiver.Close()
	s, err := alarms.NewSender(alarms.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	deliver := s.Deliver(alarms.Target{Kind: alarms.Slack, URL: receiver.URL + "/hidden-key"})
	for _, c := range []struct {
		status int
		after  string
		wait   time.Duration
		err    string
	}{{200, "", 0, ""}, {429, "7", 7 * time.Second, "slack responds 429: "}, {404, "", -1, "slack responds 404: "}} {
		status, after = c.status, c.after
		wait, err := deliver(t.Context(), webhook.Event{ID: "1", Event: "job.paused", Job: "a"})
		if wait != c.wait || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%d: %v, %v", c.status, wait, err)
		}
	}
}
