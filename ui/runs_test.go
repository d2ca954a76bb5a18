package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

func TestRunsAreFiltered(t *testing.T) {
	s := newScene(t)
	later := time.Now().UTC().Add(2 * time.Hour).Format("2006-01-02T15:04") // has passed in Kiritimati, at UTC+14
	for query, want := range map[string]int{
		"": 8, "?state=Failed": 1, "?job=app.work": 8, "?job=app.nightly": 0, "?worker=w1": 5, "?worker=w2": 0, "?origin=cron": 0, "?code=card%3Cb%3E": 2, "?code=404": 0,
		"?from=2000-01-01T00:00": 8, "?from=" + later + "&zone=Pacific/Kiritimati": 8, "?from=" + later + "&zone=Pacific/Pago_Pago": 0, "?from=" + later + "&zone=": 0, "?to=2000-01-01T00:00": 0, "?parent=" + s.runs[jobs.Failed].String(): 0,
		"?from=" + url.QueryEscape(time.Now().Add(-time.Hour).Format(time.RFC3339)): 8,
	} {
		answer, body := s.get("/runs" + query)
		if got := strings.Count(body, `name="id"`); answer.StatusCode != 200 || got != want {
			t.Errorf("/runs%s: %d, %d runs, want %d", query, answer.StatusCode, got, want)
		}
	}
	for query, says := range map[string]string{
		"?from=2026-11-21": `>UTC<`, "?from=2026-11-21&zone=Asia/Tokyo": `>Asia/Tokyo<`, "?state=terminated": "Terminated",
	} {
		if answer, body := s.get("/runs" + query); answer.StatusCode != 200 || !strings.Contains(body, says) {
			t.Errorf("/runs%s does not say %s: %d", query, says, answer.StatusCode)
		}
	}
}

// A filter that cannot be read selects nothing: no rows, no action on all that match, no count, and its error is at its
// field.
func TestWrongFilterSelectsNothing(t *testing.T) {
	s := newScene(t)
	for query, want := range map[string][2]string{ // the field, the error
		"?state=Broken": {"", "state &#34;Broken&#34; is unknown"}, "?from=yesterday": {"from", "invalid time"}, "?to=tomorrow": {"to", "invalid time"},
		"?parent=17": {"parent", "not a UUID"}, "?batch=17": {"batch", "not a UUID"}, "?origin=heaven": {"origin", "want one of"},
		"?job=a+b": {"job", "a b"}, "?job=%5B*": {"job", "want a pattern"}, "?from=2026-11-21&zone=Mars": {"from", "time zone"},
		"?arg=customer": {"arg", "want args.customer = c7"}, "?arg=absent=1": {"arg", "declares args.absent as searchable"},
		"?app=%FF": {"", "is not UTF-8"}, "?state=Failed&parent=17": {"parent", "not a UUID"},
	} {
		answer, body := s.get("/runs" + query)
		rows, many := strings.Count(body, `name="id"`), strings.Contains(body, "/bulk/runs/")
		if answer.StatusCode != 422 || rows > 0 || many || !strings.Contains(body, want[1]) || strings.Contains(body, `class="count"`) {
			t.Errorf("/runs%s: %d, %d rows, actions on all that match: %t", query, answer.StatusCode, rows, many)
		}
		at := "fault-" + want[0]
		if want[0] != "" && (!strings.Contains(body, `id="`+at+`">`) || !strings.Contains(body, `aria-describedby="`+at+`"`)) {
			t.Errorf("/runs%s: the error is not at the field %s", query, want[0])
		}
		for _, action := range []string{"cancel", "retry"} {
			if answer, _ := s.get("/bulk/runs/" + action + query); answer.StatusCode != 422 {
				t.Errorf("%s of all that match %s: %d", action, query, answer.StatusCode)
			}
		}
	}
}

// Runs are found by a declared argument. The filter stays in the field, and an action on all that match gets it.
func TestRunsByArgument(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "app.charge", Kind: kernel.Triggered,
		Schema: []byte(`{"type":"object","properties":{"customer":{"type":"string","x-carillon-search":true}}}`)}})
	for _, customer := range []string{"c7", "c8", "c7"} {
		s.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.charge", Args: []byte(`{"customer":"` + customer + `"}`)})
	}
	_, body := s.get("/runs?arg=args.customer+%3D+c7")
	if n := strings.Count(body, `name="id"`); n != 2 || !strings.Contains(body, ">Clear</a>") || !strings.Contains(body, `value="args.customer = c7"`) || !strings.Contains(body, "arg=args.customer") {
		t.Errorf("%d runs", n)
	}
	if _, body := s.get("/bulk/runs/cancel?arg=customer%3Dc8"); !strings.Contains(body, "1 run") || strings.Contains(body, "2 runs") {
		t.Error("the action on all that match does not count one run")
	}
}

// The pages of a list lead to each other: there and back again, each run once.
func TestRunsArePaged(t *testing.T) {
	s := newScene(t)
	for range 120 {
		s.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.work"})
	}
	seen := map[string]bool{}
	var places []string
	path := "/runs?job=app.work"
	for path != "" {
		_, body := s.get(path)
		places = append(places, body)
		for _, part := range strings.Split(body, `name="id" value="`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			if seen[id] {
				t.Fatalf("run %s is on two pages", id)
			}
			seen[id] = true
		}
		path = linkOf(body, `rel="next"`)
		if len(places) > 5 {
			t.Fatal("the list does not end")
		}
	}
	if len(seen) != 128 || len(places) != 3 {
		t.Fatalf("%d runs on %d pages", len(seen), len(places))
	}
	rows := func(body string) string { return strings.Join(strings.Split(body, `name="id" value="`)[1:], "") }
	for i := 2; i > 0; i-- {
		newer := linkOf(places[i], `rel="prev"`)
		if newer == "" {
			t.Fatalf("page %d leads nowhere newer", i)
		}
		_, places[i] = s.get(newer)
		if got, want := rows(places[i])[:36], rows(places[i-1])[:36]; got != want {
			t.Errorf("newer than page %d begins with %s, want %s", i, got, want)
		}
		places[i-1] = places[i]
	}
	if linkOf(places[0], `rel="prev"`) != "" {
		t.Error("there is something newer than the newest")
	}
	if answer, body := s.get("/runs?cursor=nonsense"); answer.StatusCode != 200 || strings.Count(body, `name="id"`) != 50 {
		t.Errorf("a cursor that is none: %d", answer.StatusCode)
	}
}

// linkOf is where the link with this attribute leads.
func linkOf(body, attribute string) string {
	_, rest, ok := strings.Cut(body, attribute+` href="`)
	if !ok {
		return ""
	}
	to, _, _ := strings.Cut(rest, `"`)
	return strings.ReplaceAll(to, "&amp;", "&")
}

func TestRunsAreCounted(t *testing.T) {
	s := newScene(t)
	_, body := s.get("/runs")
	for _, want := range []string{`Processing <span class="count">1</span>`, `Succeeded <span class="count">1</span>`, `Terminated <span class="count">1</span>`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if _, body := s.get("/runs?worker=w1"); strings.Contains(body, `Processing <span class="count">`) || !strings.Contains(body, `All <span class="count">5</span>`) {
		t.Error("under a filter, other tabs are counted without it")
	}
}

func TestBulk(t *testing.T) {
	s := newScene(t)
	ids := []string{s.runs[jobs.Processing].String(), s.runs[jobs.Scheduled].String(), s.runs[jobs.Succeeded].String()}
	answer, body := s.post("/runs/bulk", url.Values{"id": ids, "do": {"cancel"}, "reason": {"clearing up"}, "here": {"/runs?job=app.work"}})
	if answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	to := answer.Header.Get("Location")
	if !strings.HasPrefix(to, "/runs?") || !strings.Contains(to, "job=app.work") {
		t.Errorf("leads to %s", to)
	}
	if _, body := s.get(to); !strings.Contains(body, "2 runs were cancelled. 1 was not: run "+ids[2]+" is Succeeded") {
		t.Errorf("what was done is not said: %.3000s", body)
	}
	for _, state := range []jobs.State{jobs.Processing, jobs.Scheduled} {
		run, err := s.store.Run(t.Context(), jobs.DefaultTenant, s.runs[state])
		if err != nil || run.State != jobs.Cancelled || run.Moves[len(run.Moves)-1].Text != "clearing up" {
			t.Errorf("the one that was %s: %+v (%v)", state, run, err)
		}
	}
	answer, _ = s.post("/runs/bulk", url.Values{"id": {ids[2], s.runs[jobs.Terminated].String()}, "do": {"again"}, "here": {"//evil.example/"}})
	if to := answer.Header.Get("Location"); !strings.HasPrefix(to, "/?") {
		t.Errorf("leads to %s", to)
	}
	page, err := s.store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Origin: kernel.FromRetry})
	if err != nil || len(page.Runs) != 2 {
		t.Errorf("%d runs were started again (%v)", len(page.Runs), err)
	}
	for _, form := range []url.Values{{"do": {"cancel"}}, {"id": ids, "do": {"burn"}}, {"id": {"17"}, "do": {"cancel"}}} {
		if answer, _ := s.post("/runs/bulk", form); answer.StatusCode != 422 {
			t.Errorf("%v: %d", form, answer.StatusCode)
		}
	}
}

// What was typed into a form that is refused is there again, beside the reason.
func TestRefusedFormsKeepWhatWasTyped(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Disabled: new(true)}})
	failed := "/runs/" + s.runs[jobs.Terminated].String()
	if answer, body := s.post(failed+"/again", nil); answer.StatusCode != 409 || !strings.Contains(body, "is disabled") || !strings.Contains(body, "Attempts") {
		t.Errorf("run again: %d", answer.StatusCode)
	}
	s.apply(kernel.Edit{Key: "app.work", Clear: []string{"disabled"}})
	if answer, body := s.post("/runs/"+s.runs[jobs.Succeeded].String()+"/cancel", nil); answer.StatusCode != 409 || !strings.Contains(body, "it has already finished") || !strings.Contains(body, "Arguments") {
		t.Errorf("cancel: %d", answer.StatusCode)
	}
	for typed, says := range map[string]string{"soon": "invalid duration", "10ms": "misfire after"} {
		if answer, body := s.post("/settings", url.Values{"misfire": {typed}}); answer.StatusCode != 422 || !strings.Contains(body, `value="`+typed+`"`) || !strings.Contains(body, says) {
			t.Errorf("settings %s: %d", typed, answer.StatusCode)
		}
	}
	s.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.work"}) // is held
	if answer, body := s.post("/debug", url.Values{"kind": {"triggered"}, "on": {"false"}}); answer.StatusCode != 409 || !strings.Contains(body, "choose to release or to discard") || !strings.Contains(body, "discard 1") {
		t.Errorf("debug off: %d", answer.StatusCode)
	}
}

func TestSettings(t *testing.T) {
	s := newScene(t)
	if answer, _ := s.post("/settings", url.Values{"misfire": {"90s"}}); answer.StatusCode != 303 {
		t.Fatal(answer.StatusCode)
	}
	for typed, says := range map[string]string{"mail": "invalid limit", "mail=1@args.customer": "may not be by argument"} {
		if answer, body := s.post("/settings", url.Values{"limits": {typed}, "budget": {"50/s"}}); answer.StatusCode != 422 || !strings.Contains(body, `value="`+typed+`"`) || !strings.Contains(body, says) {
			t.Errorf("limits %s: %d", typed, answer.StatusCode)
		}
	}
	if answer, _ := s.post("/settings", url.Values{"limits": {"billing=20:100/s, mail=5"}, "budget": {"50/s"}}); answer.StatusCode != 303 {
		t.Fatal(answer.StatusCode)
	}
	if answer, body := s.post("/purge", url.Values{"job": {"app.work"}, "age": {"soon"}}); answer.StatusCode != 422 || !strings.Contains(body, "invalid duration") || !strings.Contains(body, `value="soon"`) {
		t.Errorf("purge: %d", answer.StatusCode)
	}
	if answer, body := s.post("/purge", url.Values{"age": {"0s"}, "dry": {"true"}}); answer.StatusCode != 200 || !strings.Contains(body, " would be purged.") {
		t.Errorf("purge, dry: %d", answer.StatusCode)
	}
	if answer, _ := s.post("/purge", url.Values{"age": {"120h"}}); answer.StatusCode != 303 {
		t.Errorf("purge: %d", answer.StatusCode)
	}
	_, body := s.get("/settings")
	for _, want := range []string{`value="1m30s"`, `value="billing=20:100/s,mail=5"`, `value="50/s"`, "Default: 30s", "Switched on by", "maxConcurrency", "Release recurring jobs", "n1, term 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
}

// Editing one field of a form does not revert a concurrent edit of another field.
func TestSettingsOfTwoPeople(t *testing.T) {
	s := newScene(t)
	form := func() url.Values {
		_, body := s.get("/settings")
		f := url.Values{}
		for _, name := range []string{"limits", "budget"} {
			for _, name := range []string{name, "was." + name} {
				_, tag, _ := strings.Cut(body, `name="`+name+`"`)
				tag, _, _ = strings.Cut(tag, ">")
				f.Set(name, attribute(tag, "value"))
			}
		}
		return f
	}
	first, second := form(), form()
	first.Set("limits", "mail=5")
	second.Set("budget", "50/s")
	wrong := url.Values{"limits": {second.Get("limits")}, "was.limits": second["was.limits"], "budget": {"often"}, "was.budget": second["was.budget"]}
	if answer, body := s.post("/settings", first); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	answer, body := s.post("/settings", wrong)
	s.has("refused", answer, body, 422, `name="was.limits" value=""`, `name="was.budget" value="`+second.Get("was.budget")+`"`)
	if answer, body := s.post("/settings", second); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	if g, err := s.store.Global(t.Context(), jobs.DefaultTenant); err != nil || kernel.LimitsText(g.AppLimits) != "mail=5" || g.Budget().String() != "50/s" {
		t.Errorf("the limits are %s, and the budget %s (%v)", kernel.LimitsText(g.AppLimits), g.Budget(), err)
	}
	none := form()
	none.Set("limits", "")
	if answer, body := s.post("/settings", none); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	if g, err := s.store.Global(t.Context(), jobs.DefaultTenant); err != nil || len(g.AppLimits) != 0 || g.Budget().String() != "50/s" {
		t.Errorf("the limits are %s, and the budget %s (%v)", kernel.LimitsText(g.AppLimits), g.Budget(), err)
	}
}

func TestWorkers(t *testing.T) {
	s := newScene(t)
	_, body := s.get("/workers")
	for _, want := range []string{"w1", "leaving", "app.work", "stuck", "pid 0"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
}

// The log is text: it can be searched, and taken home as a file in which nothing acts.
func TestLog(t *testing.T) {
	s := newScene(t)
	id := s.runs[jobs.Processing]
	var lines []metastore.LogLine
	for i := range 1_500 {
		lines = append(lines, metastore.LogLine{Tenant: jobs.DefaultTenant, Run: id, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: uint64(i + 2)}, At: time.Now(), Level: "INFO",
			Text: fmt.Sprintf("line %d \x1b[31mred\x1b[0m \u202egnp", i)})
	}
	if err := s.logs.Append(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
	_, body := s.get("/runs/" + id.String())
	if !strings.Contains(body, `line 1499 \x1b[31mred\x1b[0m \u202egnp`) || strings.ContainsAny(body, "\x1b\u202e") || strings.Contains(body, "line 1000 ") {
		t.Error("the end of the log is not on the page as text")
	}
	_, body = s.get("/runs/" + id.String() + "?find=LINE+14")
	if !strings.Contains(body, "111 lines with") || !strings.Contains(body, "line 14 ") || !strings.Contains(body, "line 1499 ") || strings.Contains(body, "line 15 ") {
		t.Error("the log cannot be searched")
	}
	answer, body := s.get("/runs/" + id.String() + "/log")
	if got := answer.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" || answer.Header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(answer.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the file is sent as %v", answer.Header)
	}
	if strings.Count(body, "\n") != 1_501 || strings.ContainsAny(body, "\x1b\u202e") {
		t.Errorf("the file has %d lines", strings.Count(body, "\n"))
	}
	if answer, _ := s.get("/runs/" + jobs.NewID(time.Now()).String() + "/log"); answer.StatusCode != 404 {
		t.Errorf("the log of nothing: %d", answer.StatusCode)
	}
}

// A filter that no index serves says how far back it has looked, and goes on from there.
func TestRunsAreSearchedInParts(t *testing.T) {
	s := newScene(t)
	for range 45 {
		batch := make([]kernel.Envelope, 1_000)
		for i := range batch {
			batch[i] = kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.work"}}
		}
		s.store.Apply(t.Context(), batch)
	}
	path, pages := "/runs?origin=cron", 0
	for ; path != ""; pages++ {
		answer, body := s.get(path)
		if answer.StatusCode != 200 || pages > 500 {
			t.Fatalf("%s: %d after %d pages", path, answer.StatusCode, pages)
		}
		path = linkOf(body, `rel="next"`)
		if further := strings.Contains(body, "Searched back to") && strings.Contains(body, "No matches so far") && strings.Contains(body, "Continue"); further != (path != "") {
			t.Fatalf("page %d: goes on: %v, says so: %v", pages, path != "", further)
		}
	}
	if pages < 2 {
		t.Errorf("all of it was looked at on %d page", pages)
	}
}

// A broadcast is one line of the list, with the number of its parts that succeeded, and expands to all of them; a
// filter for single parts shows those.
func TestBroadcastIsOneLine(t *testing.T) {
	s := newScene(t)
	s.declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "app.sweep", Route: jobs.RouteBroadcast}))
	id := jobs.NewID(time.Now())
	s.apply(kernel.Create{ID: id, Key: "app.sweep", Origin: kernel.FromPerson})
	s.apply(kernel.Lead{Term: 1, Node: "n1"})
	s.apply(kernel.Expand{ID: id, Workers: []string{"w1", "w2", "w3"}})
	page, err := s.store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: "app.sweep", Limit: 10})
	if err != nil || len(page.Runs) != 3 {
		t.Fatalf("%d parts, %v", len(page.Runs), err)
	}
	for _, run := range page.Runs[:2] {
		s.apply(kernel.Start{ID: run.ID, Worker: run.Place.Pin, Attempt: 1})
		s.apply(kernel.Finish{ID: run.ID, Worker: run.Place.Pin, Attempt: 1, Outcome: kernel.OutcomeSuccess})
	}
	answer, body := s.get("/runs?job=app.sweep")
	s.has("the list", answer, body, 200, "2 of 3 runs succeeded")
	if n := strings.Count(body, "<tr data-key="); n != 1 {
		t.Errorf("the broadcast has %d lines", n)
	}
	for _, run := range page.Runs {
		if !strings.Contains(body, `href="/runs/`+run.ID.String()+`"`) {
			t.Errorf("part %d is not led to", run.Place.Index)
		}
	}
	answer, body = s.get("/runs?job=app.sweep&state=Succeeded")
	s.has("single parts", answer, body, 200)
	if n := strings.Count(body, "<tr data-key="); n != 2 || strings.Contains(body, "of 3 parts") {
		t.Errorf("two parts have succeeded, and the list has %d lines", n)
	}
}
