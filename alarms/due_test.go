package alarms_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// A target hears of an alarm once, of more at intervals, and of its end; after failures later and later.
func TestDue(t *testing.T) {
	at := func(minutes int) time.Time { return time.Date(2026, 11, 27, 12, minutes, 0, 0, time.UTC) }
	open := kernel.Alarm{Count: 3, Since: at(0), Last: at(5)}
	ended, pending, well := open, open, open
	ended.Ended, pending.Pending, well.Succeeded = at(20), true, at(15)
	rule := &kernel.AlarmRule{Every: 10 * time.Minute}
	quiet := &kernel.AlarmRule{Quiet: kernel.Quiet{From: "11:00", To: "13:00"}}
	urgent := &kernel.AlarmRule{Quiet: quiet.Quiet, Urgent: true}
	for _, c := range []struct {
		name string
		a    kernel.Alarm
		r    *kernel.AlarmRule
		s    kernel.AlarmSend
		now  time.Time
		want kernel.AlarmNews
		at   time.Time
	}{
		{"new", open, rule, kernel.AlarmSend{}, at(6), kernel.AlarmRaised, time.Time{}},
		{"pending", pending, rule, kernel.AlarmSend{}, at(6), "", time.Time{}},
		{"notified of all", open, rule, kernel.AlarmSend{Reported: 3, At: at(6)}, at(60), "", time.Time{}},
		{"more, too soon", open, rule, kernel.AlarmSend{Reported: 1, At: at(6)}, at(15), "", at(16)},
		{"more", open, rule, kernel.AlarmSend{Reported: 1, At: at(6)}, at(16), kernel.AlarmAgain, time.Time{}},
		{"more, and well since", well, rule, kernel.AlarmSend{Reported: 1, At: at(6)}, at(16), "", time.Time{}},
		{"its rule is gone", open, nil, kernel.AlarmSend{Reported: 1, At: at(6)}, at(60), "", time.Time{}},
		{"after a failure, too soon", open, rule, kernel.AlarmSend{Tries: 1, Next: at(8)}, at(7), "", at(8)},
		{"after a failure", open, rule, kernel.AlarmSend{Tries: 1, Next: at(8)}, at(8), kernel.AlarmRaised, time.Time{}},
		{"ended", ended, rule, kernel.AlarmSend{Reported: 3, At: at(6)}, at(20), kernel.AlarmOver, time.Time{}},
		{"ended before it was notified", ended, rule, kernel.AlarmSend{}, at(20), kernel.AlarmOver, time.Time{}},
		{"ended, and its rule is gone", ended, nil, kernel.AlarmSend{Reported: 3}, at(20), kernel.AlarmOver, time.Time{}},
		{"closed", ended, rule, kernel.AlarmSend{Reported: 3, Closed: true}, at(20), "", time.Time{}},
		{"quiet", open, quiet, kernel.AlarmSend{}, at(6), "", at(60)},
		{"quiet, at its end", ended, quiet, kernel.AlarmSend{}, at(60), kernel.AlarmOver, time.Time{}},
		{"urgent", open, urgent, kernel.AlarmSend{}, at(6), kernel.AlarmRaised, time.Time{}},
	} {
		if news, next := alarms.Due(&c.a, c.r, &c.s, c.now); news != c.want || !next.Equal(c.at) {
			t.Errorf("%s: %q at %v, want %q at %v", c.name, news, next, c.want, c.at)
		}
	}
}

// Quiet hours are of the rule's zone, may pass midnight, and follow its changes of time.
func TestQuietUntil(t *testing.T) {
	for _, c := range []struct{ from, to, zone, now, want string }{
		{"22:00", "07:00", "", "2026-11-27T21:59:59Z", ""},
		{"22:00", "07:00", "", "2026-11-27T22:00:00Z", "2026-11-28T07:00:00Z"},
		{"22:00", "07:00", "", "2026-11-28T06:59:59Z", "2026-11-28T07:00:00Z"},
		{"22:00", "07:00", "", "2026-11-28T07:00:00Z", ""},
		{"22:00", "07:00", "Europe/Berlin", "2026-11-27T21:30:00Z", "2026-11-28T06:00:00Z"},
		{"22:00", "07:00", "Europe/Berlin", "2026-10-24T21:30:00Z", "2026-10-25T06:00:00Z"},    // an hour longer
		{"22:00", "07:00", "Europe/Berlin", "2026-03-28T21:30:00Z", "2026-03-29T05:00:00Z"},    // an hour shorter
		{"22:00", "07:00", "America/Santiago", "2026-09-07T03:30:00Z", "2026-09-07T10:00:00Z"}, // at 00:30, a time that the day before did not have
		{"12:00", "13:30", "", "2026-11-27T13:00:00Z", "2026-11-27T13:30:00Z"},
		{"12:00", "12:00", "", "2026-11-27T12:00:00Z", ""},
		{"", "", "", "2026-11-27T12:00:00Z", ""},
		{"22:00", "07:00", "Nowhere/Land", "2026-11-27T23:00:00Z", "2026-11-28T07:00:00Z"}, // this machine does not know it: UTC
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		until := alarms.QuietUntil(&kernel.AlarmRule{Quiet: kernel.Quiet{From: c.from, To: c.to}, Zone: c.zone}, now)
		got := ""
		if !until.IsZero() {
			got = until.UTC().Format(time.RFC3339)
		}
		if got != c.want {
			t.Errorf("%s to %s in %q at %s: quiet until %q, want %q", c.from, c.to, c.zone, c.now, got, c.want)
		}
	}
}

// A job is expected within the 24 hours up to the last time of day, in the rule's zone.
func TestExpected(t *testing.T) {
	for _, c := range []struct{ at, zone, now, from, by string }{
		{"06:00", "Europe/Berlin", "2026-11-27T04:59:59Z", "2026-11-25T05:00:00Z", "2026-11-26T05:00:00Z"},
		{"06:00", "Europe/Berlin", "2026-11-27T05:00:00Z", "2026-11-26T05:00:00Z", "2026-11-27T05:00:00Z"},
		{"06:00", "Europe/Berlin", "2026-10-25T05:00:00Z", "2026-10-24T04:00:00Z", "2026-10-25T05:00:00Z"},    // that day has 25 hours
		{"23:00", "America/Santiago", "2026-09-07T03:30:00Z", "2026-09-06T03:00:00Z", "2026-09-07T02:00:00Z"}, // at 00:30, a time that the day before did not have
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		from, by := alarms.Expected(&kernel.AlarmRule{At: c.at, Zone: c.zone}, now)
		if got := from.UTC().Format(time.RFC3339) + " " + by.UTC().Format(time.RFC3339); got != c.from+" "+c.by {
			t.Errorf("at %s: %s, want %s %s", c.now, got, c.from, c.by)
		}
	}
}

// Retries take a day in all, with pauses of an hour at most.
func TestRetry(t *testing.T) {
	total, n := time.Duration(0), 1
	for ; alarms.Retry(n) > 0; n++ {
		if p := alarms.Retry(n); p > time.Hour || p < 10*time.Second {
			t.Errorf("after failure %d it waits %v", n, p)
		}
		total += alarms.Retry(n)
	}
	if total < 23*time.Hour || total > 26*time.Hour {
		t.Errorf("it gives up after %d tries in %v", n, total)
	}
}
