package cli_test

import (
	"strings"
	"testing"
)

// A file may state calendars beside its jobs; they are there before a job names them, and written once.
func TestFilesStateCalendars(t *testing.T) {
	h := open(t)
	const file = `calendars:
  - name: weekend
    rules: ["SAT,SUN # closed"]
jobs:
  - key: shop.sweep
    kind: recurring
    app: shop
    schedule: "@hourly"
    calendars: [weekend]
`
	run := func(in string, args ...string) (string, string, int) {
		t.Helper()
		return call{env: h.env(), in: in}.run(args...)
	}
	if out, errs, code := run(file, "diff", "-f", "-"); code != 1 || !strings.Contains(out, "create calendar weekend") || !strings.Contains(out, "create shop.sweep") {
		t.Errorf("diff: %d %s %s", code, out, errs)
	}
	if _, _, code := run("", "calendars", "show", "weekend"); code != 3 {
		t.Errorf("a look has written the calendar: %d", code)
	}
	if out, errs, code := run(file, "apply", "-f", "-"); code != 0 || !strings.Contains(out, "calendar weekend is written") {
		t.Errorf("apply: %d %s %s", code, out, errs)
	}
	if out, errs, code := run(file, "apply", "-f", "-"); code != 0 || strings.Contains(out, "weekend") {
		t.Errorf("again: %d %s %s", code, out, errs)
	}
	if out, errs, code := run(file, "diff", "-f", "-"); code != 0 || strings.Contains(out, "weekend") {
		t.Errorf("diff of what holds: %d %s %s", code, out, errs)
	}
	// What a change of a calendar costs is shown before it is written, also for jobs that the file does not name.
	closed := strings.Replace(file[:strings.Index(file, "jobs:")], "SAT,SUN # closed", "00:00-24:00 # closed for good", 1)
	for _, args := range [][]string{{"diff", "-f", "-"}, {"apply", "--dry-run", "-f", "-"}} {
		out, errs, code := run(closed, args...)
		if code != map[string]int{"diff": 1}[args[0]] {
			t.Errorf("%v: %d %s", args, code, errs)
		}
		for _, want := range []string{"edit calendar weekend", "SAT,SUN # closed", "00:00-24:00 # closed for good", "no run of shop.sweep"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v prints %s, want %q", args, out, want)
			}
		}
	}
	if out, _, code := run(closed+"jobs: [{key: shop.sweep, retries: 1}]\n", "diff", "-f", "-"); code != 1 || !strings.Contains(out, "next is   never") {
		t.Errorf("with the calendar as it would be the job is due: %d %s", code, out)
	}
	if out, errs, code := run("calendars: [{name: night, rules: [NEVER]}]\njobs: [{key: shop.sweep, retries: 1}]", "apply", "-f", "-"); code != 2 || !strings.Contains(errs, "(stdin):1: calendar night") {
		t.Errorf("a calendar that is wrong: %d %s %s", code, out, errs)
	}
	if out, _, _ := run("", "jobs", "show", "shop.sweep", "-o", "json"); !strings.Contains(out, `"retries": 0`) {
		t.Errorf("a file of which a part is wrong was done in part: %s", out)
	}
	if out, errs, code := run("", "calendars", "show", "weekend"); code != 0 || !strings.Contains(out, "shop.sweep") || !strings.Contains(out, "SAT,SUN # closed") {
		t.Errorf("show: %d %s %s", code, out, errs)
	}
	if out, errs, code := run("calendars: [{name: night, rules: ['22:00-06:00']}]", "calendars", "set", "-f", "-"); code != 0 || out != "calendar night is written\n" {
		t.Errorf("set: %d %s %s", code, out, errs)
	}
	for in, want := range map[string]string{
		"calendars:\n  - name: a\n    rule: SAT": "(stdin):3: a calendar has no field \"rule\"",
		"calendars: [{rules: [SAT]}]":            "a calendar without a name",
		"calendars: [{name: a}, {name: a}]":      "is already in (stdin):1",
		"calendars: [{name: a, rules: [NEVER]}]": "rule 1",
		"jobs: []":                               "no calendars found",
	} {
		if _, errs, code := run(in, "calendars", "set", "-f", "-"); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", in, code, errs)
		}
	}
}

// Changes of calendars are in the JSON output, too.
func TestCalendarsForPrograms(t *testing.T) {
	h := open(t)
	const file = "calendars: [{name: night, rules: ['22:00-06:00']}]"
	for _, c := range []struct {
		in, want string
		args     []string
	}{
		{file, "{\n  \"written\": [\n    \"night\"\n  ]\n}\n", []string{"set", "-f", "-", "-o", "json"}},
		{file, "written: []\n", []string{"set", "-f", "-", "-o", "yaml"}}, // it is as it was
		{"", "{}\n", []string{"delete", "night", "-o", "json"}},
		{file, "written:\n  - night\n", []string{"set", "-f", "-", "-o", "yaml"}},
		{"", "{}\n", []string{"delete", "night", "-o", "yaml"}},
	} {
		if out, errs, code := (call{env: h.env(), in: c.in}).run(append([]string{"calendars"}, c.args...)...); code != 0 || out != c.want {
			t.Errorf("%v: %d %q %s", c.args, code, out, errs)
		}
	}
}
