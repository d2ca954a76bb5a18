package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/webhook"
	"github.com/carillon-scheduler/carillon/worker"
)

// A server notifies on-failure.url of a run that failed for good, with a signature.
func TestServerTellsOfFailures(t *testing.T) {
	const secret = "kept in a file of its own"
	events := make(chan webhook.Event, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var e webhook.Event
		if err = errors.Join(err, json.Unmarshal(body, &e), webhook.Verify([]byte(secret), r.Header.Get(webhook.SignatureHeader), body, time.Now())); err != nil {
			t.Error(err)
		}
		events <- e
	}))
	defer receiver.Close()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CARILLON_ON_FAILURE_URL", receiver.URL+"/hidden")
	t.Setenv("CARILLON_ON_FAILURE_SECRET_FILE", file)
	p, stop := failing(t)
	defer stop()
	select {
	case e := <-events:
		if e.Job != "shop.pack" || e.Error != "out of boxes" || !strings.HasPrefix(e.URL, p.page+"/runs/") {
			t.Errorf("notified of %+v", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("no notification")
	}
	p.get("/metrics", contains("carillon_webhook_sent_total 1"))
}

// failing starts a server and triggers a run that fails for good. Call stop at the end.
func failing(t *testing.T) (p *program, stop func()) {
	p = start(t, "server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	w, err := carillon.NewWorker(p.bus, worker.Config{App: "shop"},
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return errors.New("out of boxes") }), jobs.Options{Key: "shop.pack"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	p.get("/api/v1/jobs/shop.pack", ok)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`)
	return p, func() { cancel(); <-ended; p.end() }
}

// A server notifies a channel of Slack in Slack's format.
func TestServerNotifiesSlack(t *testing.T) {
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- string(body)
		_, _ = w.Write([]byte("ok"))
	}))
	defer receiver.Close()
	t.Setenv("CARILLON_ON_FAILURE_KIND", "slack")
	t.Setenv("CARILLON_ON_FAILURE_URL", receiver.URL+"/services/hidden")
	p, stop := failing(t)
	defer stop()
	select {
	case body := <-bodies:
		for _, want := range []string{`"text":"Job shop.pack failed"`, `Cause: error\nout of boxes`, "<" + p.page + "/runs/"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %s", body, want)
			}
		}
	case <-time.After(2 * time.Minute):
		t.Error("no notification")
	}
	p.get("/metrics", contains("carillon_webhook_sent_total 1"))
}

// Mistakes name their setting, and no secret.
func TestNotificationSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("hidden key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ settings, want, address string }{
		"none":               {"", "", ""},
		"slack":              {"on-failure: {kind: slack, url: 'https://hooks.slack.com/services/hidden'}", "", "hooks.slack.com"},
		"pagerduty":          {"on-failure: {kind: pagerduty, secret-file: " + file + "}", "", "pagerduty"},
		"email":              {"on-failure: {kind: email, to: 'a@example.com, b@example.com'}\nsmtp: {address: 'mail.example.com:587', from: c@example.com, user: u, password-file: " + file + "}", "", "email"},
		"unknown kind":       {"on-failure: {kind: fax}", `"fax"`, ""},
		"slack without URL":  {"on-failure: {kind: slack}", "on-failure: invalid URL", ""},
		"email without SMTP": {"on-failure: {kind: email, to: a@example.com}", "smtp.address", ""},
		"addresses of HTTP":  {"on-failure: {to: a@example.com}", "no addresses", ""},
		"invalid address":    {"on-failure: {kind: email, to: a}\nsmtp: {address: 'm:25', from: c@example.com}", `invalid address "a"`, ""},
		"user, no password":  {"on-failure: {kind: email, to: a@example.com}\nsmtp: {address: 'm:25', from: c@example.com, user: u}", "smtp.password-file", ""},
		"password in clear":  {"on-failure: {kind: email, to: a@example.com}\nsmtp: {address: 'm:25', tls: none, from: c@example.com, user: u, password-file: " + file + "}", "without TLS", ""},
	} {
		cfg, err := load(t, c.settings+"\n", nil)
		var address string
		if err == nil {
			p := &process{cfg: cfg}
			var on webhook.Config
			on, err = p.onFailure("")
			address = on.Address
		}
		if (err == nil) != (c.want == "") || address != c.address && err == nil || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v, %q", name, err, address)
		}
	}
}

// The whole URL is a secret, and is not printed.
func TestOnFailureIsNotPrinted(t *testing.T) {
	for _, url := range []string{"https://u:hidden@hooks.example.com/hidden?hidden", "hidden"} {
		c, err := load(t, "on-failure:\n  url: "+url+"\n  min-interval: 5m\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if text := c.print(true); strings.Contains(text, "hidden") || !strings.Contains(text, "min-interval: 5m") || c.OnFailure.Interval != 5*time.Minute {
			t.Errorf("it prints %s", text)
		}
	}
}

// A secret that can be guessed is refused by the name of its setting and of its file, and is not in the message.
func TestOnFailureSecretIsLongEnough(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	p := &process{cfg: &config{}}
	p.cfg.OnFailure.URL, p.cfg.OnFailure.SecretFile = "http://127.0.0.1:9/", file
	for secret, mode := range map[string]os.FileMode{"changeme": 0o600, "default_token": 0o600, "": 0o600, "sixteen bytes or more": 0o644} {
		if err := errors.Join(os.WriteFile(file, []byte(secret+"\n"), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		_, err := p.onFailure("")
		if err == nil || exitCode(err) != 2 || !strings.Contains(err.Error(), "on-failure.secret-file") || !strings.Contains(err.Error(), file) || secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", secret, err)
		}
	}
}
