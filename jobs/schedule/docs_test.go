package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// TestDocs checks the tables of docs/schedules.md and of testdata/examples.md.
func TestDocs(t *testing.T) {
	for path, least := range map[string]int{"../../docs/schedules.md": 7, "testdata/examples.md": 70} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if rows := checkTables(t, string(page)); rows < least {
			t.Errorf("%s has %d examples, want %d", path, rows, least)
		}
	}
}

func checkTables(t *testing.T, page string) (rows int) {
	t.Helper()
	table := ""
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			table = ""
		case table == "":
			table = cells[0]
		case strings.HasPrefix(cells[0], "---"):
		case table == "expression":
			rows++
			checkExample(t, cells)
		case table == "example":
			rows++
			checkDue(t, Spec{Expr: cells[0], Zone: cells[1], Anchor: at(t, cells[2])}, cells[3])
		case table == "settings":
			rows++
			checkSettings(t, cells)
		case table == "refused":
			rows++
			checkRefusal(t, cells)
		}
	}
	return rows
}

func checkExample(t *testing.T, cells []string) {
	t.Helper()
	expr, zone, policy, after, want, words := cells[0], cells[1], cells[2], at(t, cells[3]), cells[4], cells[5]
	spec := Spec{Expr: expr, Zone: zone, Anchor: after, Key: "default/report"}
	name, value, _ := strings.Cut(policy, ": ")
	var err error
	switch name {
	case "gap":
		err = spec.Gap.UnmarshalText([]byte(value))
	case "overlap":
		err = spec.Overlap.UnmarshalText([]byte(value))
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := checkDue(t, spec, want); s != nil && s.Words() != words {
		t.Errorf("%q:\n got %s\nwant %s", expr, s.Words(), words)
	}
}

// checkDue compares the first three due times after a schedule's anchor. It returns nil if the schedule is refused.
func checkDue(t *testing.T, spec Spec, want string) *Schedule {
	t.Helper()
	s, err := Parse(spec)
	if err != nil {
		t.Errorf("%q: %v", spec.Expr, err)
		return nil
	}
	location := locationOf(spec.Zone)
	var got []string
	for _, due := range walk(s, spec.Anchor, 3) {
		got = append(got, due.In(location).Format(time.RFC3339))
	}
	if len(got) < 3 {
		got = append(got, "finished")
	}
	if got := strings.Join(got, "<br>"); got != want {
		t.Errorf("%q in %s after %v:\n got %s\nwant %s", spec.Expr, spec.Zone, spec.Anchor, got, want)
	}
	return s
}

// checkSettings compares a row "settings | due | its run may start" with what a job of these settings does.
func checkSettings(t *testing.T, cells []string) {
	t.Helper()
	written := at(t, "2026-11-21T00:00:00Z")
	d := &kernel.Definition{Tenant: "default", Key: "report", Kind: kernel.Recurring, Anchor: written}
	for _, setting := range strings.Split(cells[0], "; ") {
		name, value, _ := strings.Cut(setting, ": ")
		span, _ := time.ParseDuration(value)
		when, _ := time.Parse(time.RFC3339, value)
		switch name {
		case "schedule":
			d.Policy.Schedule = value
		case "first":
			d.Policy.First = when
		case "start":
			d.Policy.Start = when
		case "end":
			d.Policy.End = when
		case "ttl":
			d.Policy.TTL = span
		case "early":
			d.Policy.Early = span
		case "jitter":
			d.Policy.Jitter = span
		default:
			t.Fatalf("the page has a setting %q", name)
		}
	}
	s, err := Of(d)
	if err != nil {
		t.Errorf("%s: %v", cells[0], err)
		return
	}
	want := strings.Split(cells[1], "<br>")
	var got []string
	least, most := time.Duration(1<<62), -time.Duration(1<<62)
	for _, due := range walk(s, written, 1000) {
		if len(got) < len(want) {
			got = append(got, due.Format(time.TimeOnly))
		}
		off := d.Starts(due).Sub(due)
		least, most = min(least, off), max(most, off)
	}
	if len(got) < len(want) {
		got = append(got, "finished")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: due at %v, want %v", cells[0], got, want)
	}
	var around []string
	if d.Policy.Early > 0 {
		around = append(around, "from "+d.Policy.Early.String()+" before")
	}
	if latest := d.Policy.Jitter - d.Policy.Early; d.Policy.Jitter > 0 {
		around = append(around, "up to "+latest.String()+" after")
		if most >= latest || most < latest-latest/10 {
			t.Errorf("%s: of a thousand runs the last starts %v after its due time", cells[0], most)
		}
	} else if most != -d.Policy.Early {
		t.Errorf("%s: a run starts %v after its due time", cells[0], most)
	}
	if least < -d.Policy.Early || least > -d.Policy.Early+d.Policy.Jitter/10 {
		t.Errorf("%s: a run starts %v after its due time", cells[0], least)
	}
	if says := cmp.Or(strings.Join(around, ", "), "then"); says != cells[2] {
		t.Errorf("%s: the page says %q, want %q", cells[0], cells[2], says)
	}
}

func checkRefusal(t *testing.T, cells []string) {
	t.Helper()
	_, err := Parse(Spec{Expr: cells[0], Zone: cells[1], Anchor: at(t, "2026-11-21T00:00:00Z")})
	var e *Error
	if !errors.As(err, &e) || e.Field != cells[2] || fmt.Sprint(e.Offset) != cells[3] || e.Reason != cells[4] {
		t.Errorf("%q: got %v, want %s at %s: %s", cells[0], err, cells[2], cells[3], cells[4])
	}
}
