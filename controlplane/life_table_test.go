package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// settings are the rows of the table: what a job has, and the state it is in, when something changes.
var lifeRows = []string{"cron", "cron steps", "interval", "count", "days", "once", "after end",
	"zone", "gap", "twice", "start", "end", "first", "ttl", "calendars", "misfire", "early", "jitter", "startWithin", "overlap", "tags", "by code",
	"paused", "disabled", "debug", "suspended", "no leader", "no worker", "no code"}

// never are the cells that cannot be, and why. The setting or the change "" is any.
var never = map[cell]string{
	{"no leader", "clock ahead"}: "while no node decides, the time that a clock skips is a part of the outage",
	{"no leader", "clock back"}:  "as before",
	{"no code", "clock ahead"}:   "undecided due times would be judged by two clocks",
	{"no code", "clock back"}:    "as before",
	{"no leader", "code"}:        "the leader marks jobs whose code no worker has",
	{"no worker", "code"}:        "no worker is there to lose it",
}

// complete prints how often each setting went through each change. A cell that must not be empty and is fails the test.
func complete(t *testing.T, reached map[cell]int, all bool) {
	var names []string
	for _, c := range changes {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-12s", "")
	for i := range names {
		fmt.Fprintf(&b, "%5s", string(rune('a'+i%26))+strings.Repeat("'", i/26))
	}
	for _, row := range lifeRows {
		fmt.Fprintf(&b, "\n%-12s", row)
		for _, name := range names {
			n, why := reached[cell{row, name}], never[cell{row, name}]
			switch {
			case n > 0 && why != "":
				t.Errorf("%s went through %s, which cannot be: %s", row, name, why)
			case n == 0 && why == "" && all:
				t.Errorf("no job with %s went through %s", row, name)
			}
			fmt.Fprintf(&b, "%5d", n)
		}
	}
	for i, name := range names {
		fmt.Fprintf(&b, "\n%s %s", string(rune('a'+i%26))+strings.Repeat("'", i/26), name)
	}
	t.Log(b.String())
}
