package schedule

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
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
		case table == "settings": // internal/timetable checks them
			rows++
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

func checkRefusal(t *testing.T, cells []string) {
	t.Helper()
	_, err := Parse(Spec{Expr: cells[0], Zone: cells[1], Anchor: at(t, "2026-11-21T00:00:00Z")})
	var e *Error
	if !errors.As(err, &e) || e.Field != cells[2] || fmt.Sprint(e.Offset) != cells[3] || e.Reason != cells[4] {
		t.Errorf("%q: got %v, want %s at %s: %s", cells[0], err, cells[2], cells[3], cells[4])
	}
}
