package alarms_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/webhook"
)

var update = flag.Bool("update", false, "write the golden files")

// now dates all signatures of these tests.
var now = time.Unix(1599360473, 0).UTC()

func message() alarms.Message {
	return alarms.Message{ID: "0199-3", Key: "default/billing.charge/run.terminated", Title: "billing.charge failed", Text: "the bank said no <!channel> [x](http://evil.example) <at user_id=\"all\">",
		Facts: []alarms.Fact{{Name: "Attempt", Value: "3"}, {Name: "Cause", Value: "error"}}, URL: "https://jobs.example.com/runs/0199", Severity: alarms.Error,
		At: time.Date(2026, 11, 21, 10, 4, 5, 0, time.UTC), Source: "default/billing.charge", Tenant: jobs.DefaultTenant}
}

func target(kind alarms.Kind) alarms.Target {
	t := alarms.Target{Kind: kind, URL: "https://hooks.example.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"}
	switch kind {
	case alarms.Email:
		return alarms.Target{Kind: kind, To: []string{"ops@example.com"}}
	case alarms.PagerDuty:
		t.URL, t.Secret = "", "samplekeyhere"
	case alarms.Webhook:
		t.Secret = "at least sixteen bytes"
	case alarms.DingTalk:
		t.URL, t.Secret = "https://oapi.dingtalk.com/robot/send?access_token=XXXXXX", "this is secret"
	case alarms.Feishu:
		t.Secret = "demo"
	}
	return t
}

// overHTTP are the kinds that Encode knows.
func overHTTP(t *testing.T, f func(t *testing.T, kind alarms.Kind)) {
	for _, kind := range alarms.Kinds {
		if kind != alarms.Email {
			t.Run(string(kind), func(t *testing.T) { f(t, kind) })
		}
	}
}

// Requests are compared byte for byte with testdata.
func TestEncode(t *testing.T) {
	overHTTP(t, func(t *testing.T, kind alarms.Kind) {
		var got strings.Builder
		resolved := message()
		resolved.Resolved = true
		for _, m := range []alarms.Message{message(), resolved, {ID: "1", Key: "k", Title: "short", Severity: alarms.Info, At: now, Source: "cluster"}} {
			r, err := alarms.Encode(target(kind), m, now)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("POST " + r.URL + "\n")
			for _, name := range []string{"Content-Type", "Carillon-Event-Id", webhook.SignatureHeader} {
				if v := r.Header.Get(name); v != "" {
					got.WriteString(name + ": " + v + "\n")
				}
			}
			got.WriteString(string(r.Body) + "\n\n")
		}
		file := filepath.Join("testdata", string(kind)+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || got.String() != string(want) {
			t.Errorf("%v; got\n%s\nwant\n%s", err, got.String(), want)
		}
	})
}

// Parts that services publish. Signatures were computed apart, with Python, by the published algorithms; the golden files
// of TestEncode are this package's own output.
func TestPublishedExamples(t *testing.T) {
	body := func(kind alarms.Kind, m alarms.Message) string {
		r, err := alarms.Encode(target(kind), m, now)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Body)
	}
	resolved := message()
	resolved.Key, resolved.Resolved = "dedupkeyhere", true
	for name, c := range map[string]struct{ got, want string }{
		// https://developer.pagerduty.com/docs/send-alert-event, "Example Request Payloads", Resolve
		"pagerduty resolve": {body(alarms.PagerDuty, resolved), `{"dedup_key":"dedupkeyhere","event_action":"resolve","routing_key":"samplekeyhere"}`},
		// https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot, signature
		"feishu sign": {body(alarms.Feishu, message()), `"sign":"l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8=","timestamp":"1599360473"`},
		// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
		"teams": {body(alarms.Teams, message()), `{"attachments":[{"content":{"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","actions":`},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %s\nlacks %s", name, c.got, c.want)
		}
	}
	// https://open.dingtalk.com/document/orgapp/customize-robot-security-settings
	r, err := alarms.Encode(target(alarms.DingTalk), message(), time.UnixMilli(1577262236757))
	if want := "https://oapi.dingtalk.com/robot/send?access_token=XXXXXX&sign=hmPWwU%2B7lVdm3ZZz0r9tSfx0L4Q26jWOZr9%2BGs6EZQM%3D&timestamp=1577262236757"; err != nil || r.URL != want {
		t.Errorf("DingTalk: %s (%v), want %s", r.URL, err, want)
	}
	// The generic webhook is signed as package webhook verifies.
	r, err = alarms.Encode(target(alarms.Webhook), message(), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Verify([]byte(target(alarms.Webhook).Secret), r.Header.Get(webhook.SignatureHeader), r.Body, now); err != nil {
		t.Error(err)
	}
}

// Long texts are shortened to what each service accepts, and stay valid text.
func TestLimits(t *testing.T) {
	overHTTP(t, func(t *testing.T, kind alarms.Kind) {
		for _, text := range []string{strings.Repeat("é\x01\"", 60_000), strings.Repeat("<!here> ", 40_000), strings.Repeat("\xff", 100_000)} {
			m := message()
			m.Title, m.Text, m.Facts[0].Value, m.Key = text, text, text, text
			r, err := alarms.Encode(target(kind), m, now)
			if err != nil {
				if kind == alarms.Webhook && strings.Contains(err.Error(), "bytes without its texts") {
					continue // its key alone is too long
				}
				t.Fatal(err)
			}
			if most := map[alarms.Kind]int{alarms.Teams: 28_000, alarms.DingTalk: 20_000, alarms.Feishu: 20_000, alarms.PagerDuty: 512_000}[kind]; most != 0 && len(r.Body) > most {
				t.Errorf("%d bytes, want at most %d", len(r.Body), most)
			}
			if !json.Valid(r.Body) || !utf8.Valid(r.Body) {
				t.Errorf("invalid JSON %.100s", r.Body)
			}
			var parts struct {
				Blocks []struct {
					Text struct{ Text string }
				}
				Markdown struct{ Content string }
				DedupKey string `json:"dedup_key"`
				Payload  struct{ Summary string }
			}
			if err := json.Unmarshal(r.Body, &parts); err != nil {
				t.Fatal(err)
			}
			for i, b := range parts.Blocks {
				if n := utf8.RuneCountInString(b.Text.Text); n > 3000 || i == 0 && n > 150 {
					t.Errorf("block %d has %d characters", i, n)
				}
			}
			if len(parts.Markdown.Content) > 4096 || utf8.RuneCountInString(parts.DedupKey) > 255 || utf8.RuneCountInString(parts.Payload.Summary) > 1024 {
				t.Errorf("too long: %d, %d, %d", len(parts.Markdown.Content), len(parts.DedupKey), len(parts.Payload.Summary))
			}
		}
	})
}

func TestJudge(t *testing.T) {
	type c struct {
		kind      alarms.Kind
		status    int
		after     string
		body      string
		delivered bool
		final     bool
		wait      time.Duration
	}
	for _, c := range []c{
		{alarms.Webhook, 204, "", "", true, false, 0},
		{alarms.Webhook, 500, "", "down", false, false, 0},
		{alarms.Webhook, 408, "", "", false, false, 0},
		{alarms.Webhook, 404, "", "no such page", false, true, 0},
		{alarms.Webhook, 302, "", "", false, true, 0},
		{alarms.Webhook, 503, "Sat, 05 Sep 2020 00:00:00 GMT", "", false, false, 0},
		{alarms.Webhook, 503, "Sun, 06 Sep 2020 02:48:53 GMT", "", false, false, time.Minute},
		{alarms.Webhook, 503, "99999999999999999999", "", false, false, 0},
		{alarms.Webhook, 503, "99999999", "", false, false, time.Hour},
		{alarms.Slack, 200, "", "ok", true, false, 0},
		{alarms.Slack, 429, "30", "rate_limited", false, false, 30 * time.Second},
		{alarms.Slack, 403, "", "action_prohibited", false, true, 0},
		{alarms.Slack, 404, "", "no_service", false, true, 0},
		{alarms.Slack, 500, "", "rollup_error", false, false, 0},
		{alarms.Teams, 202, "", "", true, false, 0},
		{alarms.Teams, 200, "", "1", true, false, 0},
		{alarms.Teams, 200, "", "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ContextId", false, false, 0},
		{alarms.Teams, 200, "", "Microsoft Teams endpoint returned HTTP error 403", false, true, 0},
		{alarms.PagerDuty, 202, "", `{"status":"success","message":"Event processed","dedup_key":"samplekeyhere"}`, true, false, 0},
		{alarms.PagerDuty, 400, "", `{"status":"invalid event"}`, false, true, 0},
		{alarms.PagerDuty, 429, "", "", false, false, 0},
		{alarms.DingTalk, 200, "", `{"errcode":0,"errmsg":"ok"}`, true, false, 0},
		{alarms.DingTalk, 200, "", `{"errcode":310000,"errmsg":"sign not match"}`, false, true, 0},
		{alarms.DingTalk, 200, "", `{"errcode":130101,"errmsg":"send too fast"}`, false, false, 10 * time.Minute},
		{alarms.DingTalk, 200, "", `{"errcode":130102,"errmsg":"send too fast"}`, false, false, 10 * time.Minute},
		{alarms.DingTalk, 200, "", `<html>`, false, false, 0},
		{alarms.WeCom, 200, "", `{"errcode":0,"errmsg":"ok"}`, true, false, 0},
		{alarms.WeCom, 200, "", `{"errcode":45009,"errmsg":"api freq out of limit"}`, false, false, time.Minute},
		{alarms.WeCom, 200, "", `{"errcode":93000,"errmsg":"invalid webhook url"}`, false, true, 0},
		{alarms.Feishu, 200, "", `{"code":0,"msg":"success","data":{}}`, true, false, 0},
		{alarms.Feishu, 200, "", `{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}`, false, true, 0},
		{alarms.Feishu, 200, "", `{"code":9499,"msg":"Bad Request","data":{}}`, false, true, 0},
		{alarms.Feishu, 200, "", `{"code":9499,"msg":"too many request","data":{}}`, false, false, time.Minute},
		{alarms.Feishu, 200, "", `{"code":11232,"msg":"frequency limited"}`, false, false, time.Minute},
		{alarms.Feishu, 200, "", `{}`, false, false, 0},
	} {
		a := alarms.Judge(target(c.kind), c.status, http.Header{"Retry-After": {c.after}}, []byte(c.body), now)
		if a.Delivered != c.delivered || a.Final != c.final || a.After != c.wait || a.Status != c.status {
			t.Errorf("%s %d %s: %+v", c.kind, c.status, c.body, a)
		}
	}
}

// A receiver that repeats the request cannot bring secrets into what is stored and shown.
func TestAnswersHaveNoSecrets(t *testing.T) {
	overHTTP(t, func(t *testing.T, kind alarms.Kind) {
		to := target(kind)
		u, err := url.Parse(to.URL)
		if err != nil {
			t.Fatal(err)
		}
		a := alarms.Judge(to, 400, nil, []byte("bad: "+to.URL+" "+to.Secret+" "+u.RequestURI()+" "+u.Path+"\n\x1b[31m"+strings.Repeat("é", 300)), now)
		for _, secret := range []string{to.Secret, "XXXXXXXXXX", "T00000000"} {
			if secret != "" && strings.Contains(a.Text, secret) {
				t.Errorf("%q has %q", a.Text, secret)
			}
		}
		if len(a.Text) > alarms.MostAnswer || !utf8.ValidString(a.Text) || strings.ContainsAny(a.Text, "\n\x1b") {
			t.Errorf("%d bytes: %q", len(a.Text), a.Text)
		}
	})
}

func TestTargetCheck(t *testing.T) {
	for name, c := range map[string]struct {
		t    alarms.Target
		want string
	}{
		"kind":                    {alarms.Target{Kind: "fax"}, `"fax"`},
		"no URL":                  {alarms.Target{Kind: alarms.Slack}, "invalid URL"},
		"scheme":                  {alarms.Target{Kind: alarms.Slack, URL: "file:///hidden"}, "invalid URL"},
		"no key":                  {alarms.Target{Kind: alarms.PagerDuty}, "integration key"},
		"short secret":            {alarms.Target{Kind: alarms.Webhook, URL: "https://a.example/hidden", Secret: "hidden"}, "has 6 bytes"},
		"useless secret":          {alarms.Target{Kind: alarms.Slack, URL: "https://a.example/hidden", Secret: "hidden"}, "has no secret"},
		"addresses of a robot":    {alarms.Target{Kind: alarms.WeCom, URL: "https://a.example/hidden", To: []string{"a@example.com"}}, "no addresses"},
		"no addresses":            {alarms.Target{Kind: alarms.Email}, "0 addresses"},
		"address with header":     {alarms.Target{Kind: alarms.Email, To: []string{"a@example.com\r\nBcc: b@example.com"}}, "invalid address"},
		"address with a name":     {alarms.Target{Kind: alarms.Email, To: []string{"Ops <a@example.com>"}}, "invalid address"},
		"e-mail with a URL":       {alarms.Target{Kind: alarms.Email, To: []string{"a@example.com"}, URL: "https://hidden"}, "addresses only"},
		"more addresses than fit": {alarms.Target{Kind: alarms.Email, To: make([]string, 51)}, "51 addresses"},
	} {
		if err := c.t.Check(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range alarms.Kinds {
		if err := target(kind).Check(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A sender follows no redirect, calls no address that is refused, and names no URL in an answer.
func TestSend(t *testing.T) {
	var got []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect-secret":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/cut-secret":
			panic(http.ErrAbortHandler)
		case "/elsewhere":
			t.Error("a redirect was followed")
		default:
			var err error
			if got, err = io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			_, _ = w.Write([]byte("ok"))
		}
	}))
	defer s.Close()
	open, err := alarms.NewSender(alarms.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	closed, err := alarms.NewSender(alarms.Config{Allow: func(to netip.AddrPort) error {
		if to.Addr().IsLoopback() {
			return errors.New("the address may not be called")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	send := func(by *alarms.Sender, path string) alarms.Answer {
		return by.Send(t.Context(), alarms.Target{Kind: alarms.Slack, URL: s.URL + path}, message())
	}
	want, err := alarms.Encode(target(alarms.Slack), message(), now)
	if err != nil {
		t.Fatal(err)
	}
	if a := send(open, "/good-secret"); !a.Delivered || string(got) != string(want.Body) {
		t.Errorf("answer %+v, body %s", a, got)
	}
	if a := send(open, "/redirect-secret"); a.Delivered || !a.Final || a.Status != 307 {
		t.Errorf("redirect: %+v", a)
	}
	if a := send(open, "/cut-secret"); a.Delivered || a.Final || a.Text == "" || strings.Contains(a.Text, "secret") {
		t.Errorf("no response: %+v", a)
	}
	if a := send(closed, "/good-secret"); a.Delivered || !a.Final || !strings.Contains(a.Text, "may not be called") || strings.Contains(a.Text, "secret") {
		t.Errorf("refused address: %+v", a)
	}
}

// A tenant reaches the networks that are allowed for tenants, and none that only the default tenant may use, also over a
// connection that is open already. The text of a response is shown for public addresses only; its status always is.
func TestNetworksOfTenants(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("inner page"))
	}))
	defer s.Close()
	all, none := func(netip.AddrPort) error { return nil }, func(netip.AddrPort) error { return errors.New("the address may not be called") }
	for _, c := range []struct {
		name           string
		allow, tenants func(netip.AddrPort) error
		public         bool
		usual, others  string // text of the answer
		reached        [2]bool
	}{
		{"inner network of the default tenant", all, none, false, "", "may not be called", [2]bool{true, false}},
		{"inner network of tenants", none, all, false, "may not be called", "", [2]bool{false, true}},
		{"inner network of all", all, all, false, "", "", [2]bool{true, true}},
		{"public", all, all, true, "inner page", "inner page", [2]bool{true, true}},
	} {
		sender, err := alarms.NewSender(alarms.Config{Allow: c.allow, TenantsAllow: c.tenants, Shows: func(from netip.AddrPort) bool {
			if from.String() != s.Listener.Addr().String() {
				t.Errorf("%s: the response is from %s", c.name, from)
			}
			return c.public
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i, tenant := range []jobs.Tenant{jobs.DefaultTenant, "acme", "", jobs.DefaultTenant} { // without a tenant, it is not the default one's
			m := message()
			m.Tenant = tenant
			a := sender.Send(t.Context(), alarms.Target{Kind: alarms.Slack, URL: s.URL + "/x"}, m)
			text, reached := c.others, c.reached[1]
			if tenant == jobs.DefaultTenant {
				text, reached = c.usual, c.reached[0]
			}
			if (a.Status == http.StatusNotFound) != reached || text == "" && a.Text != "" || !strings.Contains(a.Text, text) {
				t.Errorf("%s, message %d of tenant %q: %+v", c.name, i, tenant, a)
			}
		}
		sender.Close()
	}
}

// The heartbeat URL is requested as it is; no error names it.
func TestHeartbeatURL(t *testing.T) {
	var got atomic.Value // the request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Method + " " + r.URL.String())
		switch r.URL.Path {
		case "/cut-secret":
			panic(http.ErrAbortHandler)
		case "/gone-secret":
			w.WriteHeader(http.StatusNotFound)
		case "/redirect-secret":
			http.Redirect(w, r, "/good-secret", http.StatusFound)
		}
	}))
	defer s.Close()
	for path, want := range map[string]string{"/good-secret?key=1": "", "/gone-secret": "status 404", "/redirect-secret": "status 302", "/cut-secret": "EOF"} {
		sender, err := alarms.NewSender(alarms.Config{Heartbeat: s.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		err = sender.Heartbeat(t.Context())
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if got.Load() != "GET "+path {
			t.Errorf("%s: requested %q", path, got.Load())
		}
		sender.Close()
	}
	closed, err := alarms.NewSender(alarms.Config{Heartbeat: s.URL + "/good-secret", Allow: func(netip.AddrPort) error { return errors.New("the address may not be called") }})
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	if err := closed.Heartbeat(t.Context()); err == nil || !strings.Contains(err.Error(), "may not be called") || strings.Contains(err.Error(), "secret") {
		t.Errorf("an address that is not allowed: %v", err)
	}
	if _, err := alarms.NewSender(alarms.Config{Heartbeat: "ftp://example.com/secret"}); err == nil || strings.Contains(err.Error(), "secret/") || strings.Contains(err.Error(), "example.com") {
		t.Errorf("another scheme: %v", err)
	}
}
