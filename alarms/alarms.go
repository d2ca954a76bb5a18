// Package alarms sends messages to people: by webhook, e-mail, Slack, Microsoft Teams, PagerDuty, DingTalk, WeCom and
// Feishu.
//
// It is not promised to programs outside this module.
//
// Where to start: [Sender]; [Encode] and [Judge] are pure and have what each service documents.
//
// Sharp edges: a message may arrive twice, so each has a stable ID. URLs and secrets are in no error and no answer.
// No service but SMTP was tried live: requests follow the documentation of each.
package alarms

import (
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/webhook"
)

// Kind is a service that messages are sent to.
type Kind string

// The kinds of targets.
const (
	Webhook   Kind = "webhook"
	Email     Kind = "email"
	Slack     Kind = "slack"
	Teams     Kind = "teams"
	PagerDuty Kind = "pagerduty"
	DingTalk  Kind = "dingtalk"
	WeCom     Kind = "wecom"
	Feishu    Kind = "feishu"
)

// Kinds are all kinds, in the order of menus.
var Kinds = []Kind{Webhook, Email, Slack, Teams, PagerDuty, DingTalk, WeCom, Feishu}

// MostAddresses is how many addresses a target of kind Email may have.
const MostAddresses = 50

// Target receives messages. All of it but Kind and To is secret.
type Target struct {
	Kind Kind
	// URL is http or https; most services put a key into it. Email has none; "" = PagerDuty's own address.
	URL string
	// To are the addresses of Email, 1 to MostAddresses.
	To []string
	// Secret signs (Webhook, DingTalk, Feishu; "" = not signed) or is the routing key (PagerDuty, required).
	Secret string
}

// TargetOf returns the target of a row.
func TargetOf(t *kernel.AlarmTarget) Target {
	return Target{Kind: Kind(t.Kind), URL: t.URL, To: t.To, Secret: t.Secret}
}

// pagerDutyURL is https://developer.pagerduty.com/docs/send-alert-event.
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// Check returns why a target is invalid, or nil. The error names no secret.
func (t Target) Check() error {
	if !slices.Contains(Kinds, t.Kind) {
		return kernel.Invalid("invalid kind of target %q: want one of %v", t.Kind, Kinds)
	}
	if t.Kind == Email {
		return t.checkAddresses()
	}
	if len(t.To) > 0 {
		return kernel.Invalid("a target of kind %s has no addresses: remove them, or use email", t.Kind)
	}
	if to, err := url.Parse(t.URL); t.URL == "" && t.Kind != PagerDuty || t.URL != "" && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "") {
		return kernel.Invalid("invalid URL of a target of kind %s: want http or https with a host", t.Kind) // it may hold a secret
	}
	switch {
	case t.Kind == PagerDuty && t.Secret == "":
		return kernel.Invalid("a target of kind pagerduty needs a secret: the integration key of the service")
	case t.Kind == Webhook && t.Secret != "" && len(t.Secret) < webhook.MinSecret:
		return kernel.Invalid("the secret of the webhook has %d bytes: want at least %d", len(t.Secret), webhook.MinSecret)
	case t.Secret != "" && (t.Kind == Slack || t.Kind == Teams || t.Kind == WeCom):
		return kernel.Invalid("a target of kind %s has no secret: its URL is the secret", t.Kind)
	}
	return nil
}

func (t Target) checkAddresses() error {
	if t.URL != "" || t.Secret != "" {
		return kernel.Invalid("a target of kind email has addresses only: remove its URL and secret")
	}
	if n := len(t.To); n == 0 || n > MostAddresses {
		return kernel.Invalid("a target of kind email has %d addresses: want 1 to %d", n, MostAddresses)
	}
	for _, to := range t.To {
		if a, err := mail.ParseAddress(to); err != nil || a.Address != to || strings.ContainsAny(to, "\r\n") {
			return kernel.Invalid("invalid address %q: want one such as ops@example.com", to)
		}
	}
	return nil
}

// Severity is how urgent a message is.
type Severity string

// The severities, from PagerDuty's list.
const (
	Critical Severity = "critical"
	Error    Severity = "error"
	Warning  Severity = "warning"
	Info     Severity = "info"
)

// Message is sent to a target. Its texts are plain: each service's markup in them is made harmless.
type Message struct {
	ID       string    `json:"id"`  // the same in retries
	Key      string    `json:"key"` // the same for all messages of one problem, and for its end; PagerDuty groups by it
	Title    string    `json:"title"`
	Text     string    `json:"text,omitempty"`
	Facts    []Fact    `json:"facts,omitempty"`
	URL      string    `json:"url,omitempty"` // of a page about it
	Severity Severity  `json:"severity"`
	At       time.Time `json:"at"`
	Source   string    `json:"source"` // the tenant and job, or the cluster
	Resolved bool      `json:"resolved,omitempty"`
	// Tenant is whose message it is: it decides which networks it may go to, and is not sent.
	Tenant jobs.Tenant `json:"-"`
}

// Fact is a line of a message.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// headline is the title, with its state if the problem has ended.
func (m Message) headline() string {
	if m.Resolved {
		return "Resolved: " + m.Title
	}
	return m.Title
}

// lines are the facts and the text, as plain text.
func (m Message) lines() string {
	var b strings.Builder
	for _, f := range m.Facts {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	b.WriteString(m.Text)
	return strings.TrimSuffix(b.String(), "\n")
}

// cut shortens a text to a number of bytes, between two characters, and marks the cut.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const mark = "…"
	n := max(0, most-len(mark))
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n] + mark
}

// oneLine replaces control characters by spaces.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
