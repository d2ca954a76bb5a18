package ui

import (
	"testing"
	"time"

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
		40 * time.Microsecond: "40 µs", 120 * time.Microsecond: "0.1 ms", 42 * time.Millisecond: "42 ms", 1300 * time.Millisecond: "1.3 s", 42 * time.Second: "42 s", 61 * time.Second: "1 min 1 s",
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
