package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

func TestMoments(t *testing.T) {
	// A Saturday, in the week in which clocks in Berlin have gone back.
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 21, 15, 30, 0, 0, berlin)
	for _, c := range []struct{ text, want string }{
		{"2h", "2026-11-21T17:30:00+01:00"},
		{"1h30m", "2026-11-21T17:00:00+01:00"},
		{"3d", "2026-11-24T15:30:00+01:00"},
		{"2W", "2026-12-05T15:30:00+01:00"},
		{"18:00", "2026-11-21T18:00:00+01:00"},
		{"9:05", "2026-11-22T09:05:00+01:00"},
		{"15:30", "2026-11-22T15:30:00+01:00"},
		{"tomorrow", "2026-11-22T00:00:00+01:00"},
		{"Tomorrow 09:30", "2026-11-22T09:30:00+01:00"},
		{"today 23:59:59", "2026-11-21T23:59:59+01:00"},
		{"monday", "2026-11-23T00:00:00+01:00"},
		{"mon", "2026-11-23T00:00:00+01:00"},
		{"saturday", "2026-11-28T00:00:00+01:00"},
		{"  Friday   07:00 ", "2026-11-27T07:00:00+01:00"},
		{"2026-12-01", "2026-12-01T00:00:00+01:00"},
		{"2027-07-01 09:00", "2027-07-01T09:00:00+02:00"},
		{"2026-11-30T09:00:00+01:00", "2026-11-30T09:00:00+01:00"},
		{"2026-11-30T09:00:00Z", "2026-11-30T09:00:00Z"},
		{"2027-03-28 02:30", "2027-03-28T03:00:00+02:00"}, // clocks skip it
		{"2027-03-28T02:30:00", "2027-03-28T03:00:00+02:00"},
		{"2026-11-30T09:00:00", "2026-11-30T09:00:00+01:00"},
		{"2026-11-30T09:00", "2026-11-30T09:00:00+01:00"},
	} {
		got, err := readMoment("--until", c.text, now)
		if err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("%q: got %v, %v, want %s", c.text, got.Format(time.RFC3339), err, c.want)
		}
	}
	for _, text := range []string{"", "soon", "0s", "-2h", "0d", "d", "25:00", "18:60", "today", "monday noon", "mo", "someday 09:00", "2026-13-01", "2026-02-30",
		"2026-11-30T", "tomorrowT09:00", "1e3h", "99999d", "tomorrow 9", "18:00 monday"} {
		if got, err := readMoment("--until", text, now); err == nil || ExitCode(err) != Usage {
			t.Errorf("%q is taken for %v: %v", text, got, err)
		}
	}
	for _, text := range []string{"2026-11-21", "2026-11-21 15:30", "2020-01-01T00:00:00Z", "today 08:00"} {
		if _, err := readMoment("--until", text, now); err == nil || !strings.Contains(err.Error(), "ago") {
			t.Errorf("%q has passed: %v", text, err)
		}
	}
}

// Clocks that skip a time, or show it twice, in zones on both sides of UTC, and with a gap at midnight.
func TestMomentsAtClockChanges(t *testing.T) {
	for _, c := range []struct{ zone, text, want, second string }{
		{"America/New_York", "2027-03-14 02:30", "2027-03-14T03:00:00-04:00", ""},
		{"America/New_York", "2027-03-14 01:59", "2027-03-14T01:59:00-05:00", ""},
		{"America/New_York", "2027-03-14 03:00", "2027-03-14T03:00:00-04:00", ""},
		{"America/New_York", "2027-11-07 01:30", "2027-11-07T01:30:00-04:00", "2027-11-07T01:30:00-05:00"},
		{"America/New_York", "2027-11-07 02:00", "2027-11-07T02:00:00-05:00", ""},
		{"Africa/Cairo", "2027-04-30 00:30", "2027-04-30T01:00:00+03:00", ""},
		{"Australia/Lord_Howe", "2027-10-03 02:15", "2027-10-03T02:30:00+11:00", ""},
		{"Europe/Berlin", "2027-10-31 02:00", "2027-10-31T02:00:00+02:00", "2027-10-31T02:00:00+01:00"},
		{"Asia/Tokyo", "2027-03-14 02:30", "2027-03-14T02:30:00+09:00", ""},
	} {
		got, err := readMoment("--at", c.text, time.Date(2026, 11, 21, 15, 30, 0, 0, zone(t, c.zone)))
		if err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("%s in %s: %s, %v, want %s", c.text, c.zone, got.Format(time.RFC3339), err, c.want)
		}
		if second, twice := other(got); twice != (c.second != "") || twice && second.Format(time.RFC3339) != c.second {
			t.Errorf("%s in %s: occurs twice: %t, again at %s, want %q", c.text, c.zone, twice, second.Format(time.RFC3339), c.second)
		}
	}
}

// A time of a setting is on the clocks of the job's zone: those of the machine, and their gaps, do not matter.
func TestTimesOfSettingsAreWritten(t *testing.T) {
	f, err := fieldOf("end")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 15, 30, 0, 0, zone(t, "America/New_York"))
	for text, want := range map[string]string{
		"2027-03-14 02:30": `"2027-03-14T02:30:00"`, "2027-03-14T02:30": `"2027-03-14T02:30:00"`, "2026-12-31": `"2026-12-31"`, "tomorrow": `"2026-11-22"`,
		"tomorrow 09:00": `"2026-11-22T09:00:00"`, "2026-12-31T09:00:00+09:00": `"2026-12-31T09:00:00+09:00"`, "18:00": `"2026-11-21T18:00:00"`,
	} {
		if got, err := f.read(text, now); err != nil || string(got) != want {
			t.Errorf("end=%s becomes %s, %v, want %s", text, got, err, want)
		}
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	s, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: name})
	if err != nil {
		t.Fatal(err)
	}
	return s.In(time.Now()).Location()
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "<1ms"}, {time.Millisecond, "1ms"}, {12 * time.Millisecond, "12ms"}, {1500 * time.Millisecond, "1.5s"}, {42 * time.Second, "42s"}, {-90 * time.Second, "1m30s"},
		{time.Hour, "1h"}, {25*time.Hour + 5*time.Minute, "1d1h"}, {30 * 24 * time.Hour, "30d"},
	} {
		if got := span(c.d); got != c.want {
			t.Errorf("%v is formatted as %s, want %s", c.d, got, c.want)
		}
	}
}

// Columns are aligned, with colours and without.
func TestTable(t *testing.T) {
	rows := func(p *page) [][]string {
		return [][]string{{"läuten", p.state("Succeeded"), "ok"}, {"a", p.state("Failed"), "a longer one at the end"}}
	}
	p := &page{}
	p.table([]string{"KEY", "STATE", "TEXT"}, rows(p))
	want := "KEY     STATE      TEXT\nläuten  Succeeded  ok\na       Failed     a longer one at the end\n"
	if p.String() != want {
		t.Errorf("got\n%swant\n%s", p, want)
	}
	p = &page{colour: true}
	p.table([]string{"KEY", "STATE", "TEXT"}, rows(p))
	plain := strings.NewReplacer("\x1b[1m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[0m", "").Replace(p.String())
	if plain != want || !strings.Contains(p.String(), "\x1b[32mSucceeded\x1b[0m") {
		t.Errorf("got\n%q", p)
	}
}

func TestYAML(t *testing.T) {
	got, err := toYAML([]byte(`{"b":"true","a":[1,2.50,{}],"t":"\ud83d\ude00 \u001b","n":null,"m":"two\nlines","e":[],"z":"2026-11-21T00:00:00Z","y":{"x":false,"big":123456789012345678901}}`))
	want := `b: "true"
a:
  - 1
  - 2.50
  - {}
t: "\U0001F600 \e"
n: null
m: |-
  two
  lines
e: []
z: "2026-11-21T00:00:00Z"
y:
  x: false
  big: 123456789012345678901
`
	if err != nil || got != want {
		t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, want)
	}
}
