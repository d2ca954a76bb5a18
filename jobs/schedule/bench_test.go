package schedule

import (
	"runtime"
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, expr, zone string }{
		{"minutely", "* * * * *", "UTC"},
		{"minutely-berlin", "*/5 * * * *", "Europe/Berlin"},
		{"daily-berlin", "30 2 * * *", "Europe/Berlin"},
		{"daily-apia", "30 2 * * *", "Pacific/Apia"},
		{"weekdays-newyork", "0 9-17 * * MON-FRI", "America/New_York"},
		{"seconds", "*/10 * * * * *", "America/New_York"},
		{"last-friday", "0 0 18 ? * FRIL", "Europe/Berlin"},
		{"leap-day", "0 0 29 2 *", "Europe/Berlin"},
		{"leap-day-fifth", "0 0 0 ? 2 1#5", "Europe/Berlin"},
		{"last-year", "0 0 0 31 12 ? 2199", "Europe/Berlin"},
		{"never", "0 0 30 2 *", "Africa/Casablanca"},
		{"every", "@every 90s", "UTC"},
		{"month", "P1M", "Europe/Berlin"},
	} {
		b.Run(c.name, func(b *testing.B) {
			start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
			s, err := Reopen(Spec{Expr: c.expr, Zone: c.zone, Anchor: start})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			after := start
			for b.Loop() {
				due, ok := s.Next(after)
				if !ok {
					due = start
				}
				after = due
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(Spec{Expr: "0 */5 9-17 ? * MON-FRI", Zone: "Europe/Berlin"}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeld tells what a schedule weighs.
func BenchmarkHeld(b *testing.B) {
	var before, after runtime.MemStats
	const many = 10_000
	for b.Loop() {
		list := make([]*Schedule, many)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range list {
			list[i], _ = Reopen(Spec{Expr: "0 */5 9-17 ? * MON-FRI", Zone: "Europe/Berlin"})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(list)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "B/schedule")
}
