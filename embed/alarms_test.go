package embed_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/webhook"
)

// put makes a request to the API of a scheduler.
func put(t *testing.T, s *embed.Scheduler, method, path, body string, want int) string {
	t.Helper()
	request := httptest.NewRequest(method, "/api/v1"+path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, request)
	if answer.Code != want {
		t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// A run that fails for good reaches a webhook, signed, with a link; the record has the answer, and nothing has the URL.
func TestAlarmReachesAWebhook(t *testing.T) {
	t.Parallel()
	const secret = "sixteen bytes it has"
	got := make(chan alarms.Message, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m alarms.Message
		if err = errors.Join(err, webhook.Verify([]byte(secret), r.Header.Get(webhook.SignatureHeader), body, time.Now()), json.Unmarshal(body, &m)); err != nil {
			t.Error(err)
		}
		got <- m
		_, _ = w.Write([]byte("thanks"))
	}))
	defer receiver.Close()
	bad := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return jobs.NoRetry(errors.New("no")) }), jobs.Options{Key: "demo.bad"})
	s, err := embed.Start(t.Context(), embed.Config{Alarms: alarms.Config{Allow: func(netip.AddrPort) error { return nil }}, Page: "http://here"}, bad)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	put(t, s, "PUT", "/alarm-targets/mine", `{"kind":"webhook","url":"`+receiver.URL+`/hidden","secret":"`+secret+`","rules":true}`, 204)
	runs, err := s.Client().Enqueue(t.Context(), jobs.Request{Key: "demo.bad"})
	if err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Title != "Job demo.bad failed" || m.Text != "no" || m.URL != "http://here/runs/"+runs[0].ID.String() || m.Source != "default/demo.bad" {
		t.Errorf("the message is %+v", m)
	}
	var a struct {
		Sent []struct {
			Status int
			Answer string
		}
	}
	for len(a.Sent) == 0 {
		if err := json.Unmarshal([]byte(put(t, s, "GET", "/alarms/1", "", 200)), &a); err != nil {
			t.Fatal(err)
		}
	}
	if a.Sent[0].Status != 200 || a.Sent[0].Answer != "" { // the response of a private address is not shown
		t.Errorf("the record has %+v", a)
	}
	for _, path := range []string{"/alarm-targets", "/alarm-rules", "/alarms", "/alarms/1", "/audit"} {
		if text := put(t, s, "GET", path, "", 200); strings.Contains(text, "hidden") || strings.Contains(text, secret) {
			t.Errorf("%s has a secret: %s", path, text)
		}
	}
}

// Without a setting, targets on private networks are not called: not by a test, and not by an alarm.
func TestAlarmTargetsAreGuarded(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	defer receiver.Close()
	s, err := embed.Start(t.Context(), embed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	put(t, s, "PUT", "/alarm-targets/inner", `{"kind":"webhook","url":"`+receiver.URL+`"}`, 204)
	if text := put(t, s, "POST", "/alarm-targets/inner/test", "", 200); !strings.Contains(text, "may not be called") || strings.Contains(text, `"ok":true`) {
		t.Errorf("a test is answered %s", text)
	}
}

// A network that is allowed for the targets of the default tenant is not allowed for those of another.
func TestTenantsDoNotInheritNetworks(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	s, err := embed.Start(t.Context(), embed.Config{Tokens: true, Alarms: alarms.Config{Allow: func(netip.AddrPort) error { return nil }}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	root := ops.Who{Actor: "person:root", Role: ops.Admin}
	if _, _, err := s.Ops().CreateTenant(t.Context(), root, ops.NewTenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[jobs.Tenant]bool{jobs.DefaultTenant: true, "acme": false} {
		who := ops.Who{Tenant: tenant, Actor: "person:ann", Role: ops.Admin}
		if err := s.Ops().SetAlarmTarget(t.Context(), who, kernel.AlarmTarget{Name: "inner", Kind: "slack", URL: receiver.URL + "/x"}, false); err != nil {
			t.Fatal(err)
		}
		if a, err := s.Ops().TestAlarmTarget(t.Context(), who, "inner"); err != nil || a.Delivered != want {
			t.Errorf("a target of %s: %+v (%v)", tenant, a, err)
		}
	}
}
