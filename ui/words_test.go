package ui

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

func TestWords(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	u := New(Config{Ops: ops.New(ops.Config{Store: memstore.Open(memstore.Config{}), Now: func() time.Time { return now }})})
	for d, want := range map[time.Duration]string{
		0: "now", -900 * time.Millisecond: "now", 4 * time.Second: "in 4 s", -59 * time.Second: "59 s ago", 90 * time.Second: "in 1 min",
		-3*time.Hour - 5*time.Minute: "3 h 5 min ago", 49 * time.Hour: "in 2 d 1 h",
	} {
		if got := u.ago(now.Add(d)); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		120 * time.Microsecond: "0.1 ms", 42 * time.Millisecond: "42 ms", 1300 * time.Millisecond: "1.3 s", 42 * time.Second: "42 s", 61 * time.Second: "1 min 1 s",
	} {
		if got := long(d); got != want {
			t.Errorf("%v took %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		if got := count(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestChart(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)
	hour := func(h int) int64 { return now.Truncate(time.Hour).Add(time.Duration(h) * time.Hour).UnixNano() }
	c := draw([]jobs.Tally{
		{State: jobs.Succeeded, Hour: hour(0), N: 75},
		{State: jobs.Terminated, Hour: hour(0), N: 25},
		{State: jobs.Succeeded, Hour: hour(-23), N: 1},
		{State: jobs.Succeeded, Hour: hour(-24), N: 1_000}, // too long ago
		{State: jobs.Enqueued, Hour: hour(0), N: 1_000},    // no end
	}, now)
	last, first := c.Bars[23], c.Bars[0]
	if c.Good != 76 || c.Bad != 25 || c.Most != 100 || len(c.Bars) != chartHours {
		t.Errorf("%+v", c)
	}
	if last.GoodTall != 48 || last.BadTall != 16 || last.BadY != 0 || last.GoodY != 16 {
		t.Errorf("the last bar is %+v", last)
	}
	if first.GoodTall != 2 || first.GoodY != chartHeight-2 {
		t.Errorf("what is there is not seen: %+v", first)
	}
}
