package timetable

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// TestSchedule shows that each setting of a job that makes up its schedule arrives there.
func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		set    kernel.Settings
		anchor string
		want   string
	}{
		{kernel.Settings{Schedule: new("30 2 * * *")}, "2026-03-29T00:00:00Z", "2026-03-29T02:30:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin")}, "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin"), Gap: new(jobs.GapBefore)}, "2026-03-29T00:00:00Z", "2026-03-29T00:59:59Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin"), Gap: new(jobs.GapSkip)}, "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin")}, "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin"), Twice: new(jobs.TwiceSecond)}, "2026-10-25T00:00:00Z", "2026-10-25T01:30:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Zone: new("Europe/Berlin"), Twice: new(jobs.TwiceBoth)}, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		{kernel.Settings{Schedule: new("30 2 * * *"), Start: new(at(t, "2027-01-01T00:00:00Z"))}, "2026-03-29T00:00:00Z", "2027-01-01T02:30:00Z"},
		{kernel.Settings{Schedule: new("@every 90s")}, "2026-03-29T00:00:00Z", "2026-03-29T00:01:30Z"},
		{kernel.Settings{Schedule: new("H H(0-5) * * *")}, "2026-11-21T00:00:00Z", "2026-11-21T03:11:00Z"},
	} {
		d := &kernel.Definition{Tenant: "default", Key: "report", Kind: kernel.Recurring, Code: c.set, Anchor: at(t, c.anchor)}
		d.Policy = d.Resolve(&kernel.Global{})
		s, err := Schedule(d)
		if err := errors.Join(err, Check(d)); err != nil {
			t.Errorf("%v: %v", c.set.Given(), err)
			continue
		}
		if due, _ := s.Next(d.Anchor); !due.Equal(at(t, c.want)) {
			t.Errorf("%s, %v: due at %v, want %s", *c.set.Schedule, c.set.Given(), due, c.want)
		}
	}
	ended := &kernel.Definition{Anchor: at(t, "2026-03-29T00:00:00Z"), Policy: kernel.Policy{Schedule: "@daily", End: at(t, "2026-03-29T12:00:00Z")}}
	if s, err := Schedule(ended); err != nil {
		t.Error(err)
	} else if due, ok := s.Next(ended.Anchor); ok {
		t.Errorf("after its end it is due at %v", due)
	}
	if s, err := Schedule(&kernel.Definition{}); s != nil || err != nil {
		t.Errorf("a job without a schedule has %v, %v", s, err)
	}
	// The meaning of an unknown value is unknown, so such a job is never due.
	for _, p := range []kernel.Policy{{Schedule: "@daily", Gap: "x"}, {Schedule: "@daily", Twice: "x"}} {
		if s, err := Schedule(&kernel.Definition{Policy: p}); s != nil || err == nil {
			t.Errorf("%+v is read", p)
		}
	}
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant.UTC()
}
