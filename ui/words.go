package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The texts and formats of pages.

func (u *UI) functions() template.FuncMap {
	return template.FuncMap{
		"base":   func() string { return u.base },
		"static": func(name string) string { return u.base + u.static + "/" + name },
		"ago":    u.ago,
		"since":  func(t time.Time) string { return rough(max(0, u.ops.Now().Sub(t))) },
		"stamp":  stamp,
		"timed":  timed,
		"iso":    func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
		"long":   long,
		"pretty": pretty,
		"first":  firstLine,
		"lower":  func(v any) string { return strings.ToLower(fmt.Sprint(v)) },
		"count":  count,
		"gate":   gate,
		"icon":   icon,
		"badge":  badgeOf,
		"plural": plural,
		"bytes":  bytesOf,
		"short":  shortDuration,
		"nav":    nav,
		"actor":  actorOf,
	}
}

// timeless are the functions that differ in a fragment: the browser renders relative times, so that an unchanged part
// has the same bytes.
var timeless = template.FuncMap{"ago": nothing, "since": nothing}

func nothing(time.Time) string { return "" }

// navLink is a link of the main navigation.
type navLink struct {
	Path, Name, Icon string
	Here             bool
}

func nav(section, path, name, icon string) navLink { return navLink{path, name, icon, section == path} }

// plural formats a number with its noun: "1 run", "3 runs".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + one + "s"
}

// nameless is the actor where the server requires no authentication.
const nameless = "person:page"

// actorOf returns the name of an actor.
func actorOf(actor string) string {
	if actor == nameless {
		return "an anonymous user"
	}
	return strings.TrimPrefix(actor, "person:")
}

// badge is a state on a page.
type badge struct{ State, Class, Icon string }

func badgeOf(s jobs.State) badge {
	return badge{s.String(), strings.ToLower(s.String()), strings.ToLower(s.String())}
}

// ago formats the distance of a time. live.js updates it every second, in the same words.
func (u *UI) ago(t time.Time) string {
	d := t.Sub(u.ops.Now())
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d > 0:
		return "in " + rough(d)
	}
	return rough(-d) + " ago"
}

// rough formats a duration in its largest unit, or in two where one is too coarse.
func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// long formats how long something took.
func long(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d > 0 && d < 100*time.Microsecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return rough(d)
}

// stamp formats a time for readers without JavaScript; live.js converts it to the reader's zone.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// pretty indents JSON for reading.
func pretty(b []byte) string {
	text, err := fastjson.Indented(b)
	if err != nil {
		return string(b)
	}
	return escapes.ReplaceAllStringFunc(string(text), func(escape string) string {
		return cmp.Or(readable[strings.ToLower(escape)], escape)
	})
}

// encoding/json escapes the characters of readable for the use of JSON in scripts of pages: pages show them.
var (
	escapes  = regexp.MustCompile(`\\(u[0-9A-Fa-f]{4}|.)`)
	readable = map[string]string{`\u0026`: "&", `\u003c`: "<", `\u003e`: ">"}
)

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if runes := []rune(s); len(runes) > 140 {
		return string(runes[:140]) + "…"
	}
	return s
}

// count formats a number with separators of thousands.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// gate describes what a run waits for, by the name of the full gate.
func gate(name string) string { return "a slot of " + kernel.GateText(name) }

// causes are the texts of why a run is in its state; other causes need none.
var causes = map[kernel.Cause]string{
	kernel.ByTimeout: "timeout", kernel.ByLoss: "worker lost", kernel.ByPoison: "lost too often", kernel.ByHandback: "handed back",
	kernel.BySnooze: "snoozed", kernel.ByOverlap: "no free slot", kernel.ByDeadline: "not started in time", kernel.ByDisabled: "job disabled", kernel.ByNoWorker: "no worker",
	kernel.ByReplaced: "replaced by a newer run", kernel.ByDebug: "held by debug mode", kernel.ByPerson: "on request",
	kernel.ByDepth: "too many generations of parents", kernel.ByBacklog: "too many runs of the tenant waited",
}

// welcomeWorker is a minimal worker.
const welcomeWorker = `package main

import (
	"context"
	"log"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

func hello(ctx context.Context) error {
	jobs.Log(ctx).Info("hello")
	return nil
}

func main() {
	job := jobs.NewRecurring(jobs.RecurringFunc(hello),
		jobs.Options{Key: "hello", Cron: "*/10 * * * * *"})
	w, err := carillon.NewWorker("nats://127.0.0.1:4222",
		worker.Config{App: "hello"}, job)
	if err == nil {
		err = w.Run(context.Background())
	}
	log.Fatal(err)
}`

// stamped finds the times in the texts of ops.
var stamped = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// timed is a text of ops in which times are shown in the reader's zone.
func timed(text string) template.HTML {
	var b strings.Builder
	for {
		at := stamped.FindStringIndex(text)
		if at == nil {
			break
		}
		b.WriteString(template.HTMLEscapeString(text[:at[0]]))
		t, _ := time.Parse(time.RFC3339, text[at[0]:at[1]]) // the zero time, if it is none
		fmt.Fprintf(&b, `<time datetime="%s" data-abs>%s</time>`, text[at[0]:at[1]], stamp(t))
		text = text[at[1]:]
	}
	return template.HTML(b.String() + template.HTMLEscapeString(text)) //nolint:gosec // escaped above
}
