package schedule

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestDocs holds the program to the tables of docs/schedules.md.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	table, rows := "", 0
	for line := range strings.Lines(string(page)) {
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
		case table == "refused":
			rows++
			checkRefusal(t, cells)
		}
	}
	if rows < 60 {
		t.Errorf("only %d examples are found", rows)
	}
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
	s, err := Parse(spec)
	if err != nil {
		t.Errorf("%q: %v", expr, err)
		return
	}
	location := locationOf(zone)
	var got []string
	for _, due := range walk(s, after, 3) {
		got = append(got, due.In(location).Format(time.RFC3339))
	}
	if len(got) < 3 {
		got = append(got, "finished")
	}
	if got := strings.Join(got, "<br>"); got != want {
		t.Errorf("%q in %s after %v:\n got %s\nwant %s", expr, zone, after, got, want)
	}
	if s.Words() != words {
		t.Errorf("%q:\n got %s\nwant %s", expr, s.Words(), words)
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
