package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
)

// clock is a time of the day that the tables of decisions are about.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateTime, "2026-11-21 "+text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// decision is a fire in the order of its due times: +05:00 runs, +05:00! runs late, paused 05:00-07:00/3 is a range.
func decision(f kernel.Fire) string {
	var parts []string
	missed := f.Missed
	ranges := func(before time.Time) {
		for ; len(missed) > 0 && (before.IsZero() || missed[0].From.Before(before)); missed = missed[1:] {
			m := missed[0]
			parts = append(parts, fmt.Sprintf("%s %s-%s/%d", m.Reason, m.From.Format("15:04"), m.To.Format("15:04"), m.Count))
		}
	}
	for i, due := range f.Due {
		ranges(due)
		parts = append(parts, "+"+due.Format("15:04")+map[bool]string{true: "!"}[i < f.Late])
	}
	ranges(time.Time{})
	return strings.Join(parts, " ")
}

// What becomes of the due times that one decision is about: an hourly job, decided until 00:30.
func TestDecide(t *testing.T) {
	const once, all, skip = jobs.MisfireOnce, jobs.MisfireAll, jobs.MisfireSkip
	closed := kernel.Calendar{Name: "closed", Rules: []string{"03:00-06:00"}}
	for _, c := range []struct {
		misfire  jobs.Misfire
		now      string
		early    time.Duration
		calendar bool
		paused   string // from-until
		want     string
	}{
		// Nothing late runs beside what is on time.
		{once, "05:30:00", 0, false, "", "missed 01:00-04:00/4 +05:00!"},
		{once, "06:00:10", 0, false, "", "missed 01:00-05:00/5 +06:00"},
		{once, "05:30:00", time.Hour, false, "", "missed 01:00-05:00/5 +06:00"},
		{all, "03:00:10", 0, false, "", "+01:00! +02:00! +03:00"},
		{all, "03:30:00", time.Hour, false, "", "+01:00! +02:00! +03:00! +04:00"},
		{skip, "03:00:10", 0, false, "", "missed 01:00-02:00/2 +03:00"},
		{skip, "03:30:00", 0, false, "", "missed 01:00-03:00/3"},
		// The newest late one runs wherever the outage ended.
		{once, "05:30:00", 0, true, "", "missed 01:00-01:00/1 +02:00! calendar 03:00-05:00/3"},
		{once, "06:30:00", 0, true, "", "missed 01:00-02:00/2 calendar 03:00-05:00/3 +06:00!"},
		{once, "06:00:10", 0, true, "", "missed 01:00-02:00/2 calendar 03:00-05:00/3 +06:00"},
		{once, "05:30:00", time.Hour, true, "", "missed 01:00-02:00/2 calendar 03:00-05:00/3 +06:00"},
		{all, "05:30:00", 0, true, "", "+01:00! +02:00! calendar 03:00-05:00/3"},
		{all, "07:00:10", 0, true, "", "+01:00! +02:00! calendar 03:00-05:00/3 +06:00! +07:00"},
		{once, "04:30:00", 0, false, "02:30:00-23:00:00", "missed 01:00-01:00/1 +02:00! paused 03:00-04:00/2"},
		{once, "04:30:00", 0, false, "01:30:00-03:30:00", "missed 01:00-01:00/1 paused 02:00-03:00/2 +04:00!"},
		{all, "04:30:00", 0, false, "01:30:00-03:30:00", "+01:00! paused 02:00-03:00/2 +04:00!"},
		{once, "01:30:00", 0, false, "00:40:00-23:00:00", "paused 01:00-01:00/1"},
	} {
		now := clock(t, c.now)
		d := &kernel.Definition{Key: "report", Kind: kernel.Recurring, Anchor: clock(t, "00:30:00"), Cursor: clock(t, "00:30:00"),
			Policy: kernel.Policy{Schedule: "0 * * * *", Misfire: c.misfire, Early: c.early}}
		if c.calendar {
			d.Policy.Calendars = []string{"closed"}
		}
		if from, until, ok := strings.Cut(c.paused, "-"); ok {
			d.Paused = &kernel.Held{At: clock(t, from), Until: clock(t, until)}
		}
		s, err := timetable.Schedule(d)
		if err != nil {
			t.Fatal(err)
		}
		e := &entry{def: d, schedule: s}
		e.next, _ = s.Next(d.Since())
		f, ok := decide(e, &kernel.Global{}, timetable.Calendars(1, []*kernel.Calendar{&closed}), now)
		if got := decision(f); got != c.want || ok != (got != "") {
			t.Errorf("%s at %s, early %v, calendar %v, paused %q: %q\nwant %q", c.misfire, c.now, c.early, c.calendar, c.paused, got, c.want)
		}
		if err := f.Check(); ok && err != nil {
			t.Errorf("%s at %s: %v", c.misfire, c.now, err)
		}
		if ok && f.To.After(now.Add(c.early)) {
			t.Errorf("%s at %s decides up to %v", c.misfire, c.now, f.To)
		}
	}
}

// More due times than one decision looks at: all the same one of the late ones runs, the newest.
func TestDecideInParts(t *testing.T) {
	began := clock(t, "00:00:00")
	for _, c := range []struct{ late, paused int }{{fireLook + 50_000, 10}, {10, fireLook + 50_000}, {1, fireLook + 10}, {fireLook, 0}} {
		d := &kernel.Definition{Key: "report", Kind: kernel.Recurring, Anchor: began, Cursor: began,
			Policy: kernel.Policy{Schedule: "1s", Misfire: jobs.MisfireOnce}}
		s, err := timetable.Schedule(d)
		if err != nil {
			t.Fatal(err)
		}
		newest := began.Add(time.Duration(c.late) * time.Second)
		d.Paused = &kernel.Held{At: newest}
		now := newest.Add(max(time.Minute, time.Duration(c.paused)*time.Second))
		var ran []time.Time
		missed, parts := 0, 0
		for ; ; parts++ {
			e := &entry{def: d, schedule: s}
			e.next, _ = s.Next(d.Since())
			f, ok := decide(e, &kernel.Global{}, nil, now)
			if !ok {
				break
			}
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			ran = append(ran, f.Due...)
			for _, m := range f.Missed {
				missed += int(m.Count)
			}
			d.Cursor = f.To
		}
		if len(ran) != 1 || !ran[0].Equal(newest) || missed != int(now.Sub(began)/time.Second)-1 || parts > 3 {
			t.Errorf("%d late and %d paused: %v ran, %d are missed, in %d parts", c.late, c.paused, ran, missed, parts)
		}
	}
}

// What was decided before an edit, and what was paused before it resumed, stays so; what did not begin early is decided
// when it is due.
func TestDecideAfterChanges(t *testing.T) {
	for name, c := range map[string]struct {
		now    string
		change func(*kernel.Definition)
		want   string
	}{
		"a pause that ended": {"04:30:00", func(d *kernel.Definition) {
			d.Policy.Misfire = jobs.MisfireAll
			paused := *d
			paused.Paused = &kernel.Held{At: clock(t, "01:30:00")}
			d.Silenced(&paused, clock(t, "03:30:00"))
		}, "+01:00! paused 02:00-03:00/2 +04:00!"},
		"a disable that ended": {"04:30:00", func(d *kernel.Definition) {
			disabled := *d
			disabled.Policy.Disabled = true
			d.Silenced(&disabled, clock(t, "03:30:00"))
		}, "disabled 01:00-03:00/3 +04:00!"},
		"a pause that put another off": {"04:30:00", func(d *kernel.Definition) {
			paused := *d
			paused.Paused = &kernel.Held{At: clock(t, "00:40:00"), Until: clock(t, "01:30:00")}
			d.Paused = &kernel.Held{At: clock(t, "03:30:00")}
			d.Silenced(&paused, clock(t, "03:30:00"))
		}, "paused 01:00-01:00/1 missed 02:00-02:00/1 +03:00! paused 04:00-04:00/1"},
		"paused until before the due time": {"00:35:00", func(d *kernel.Definition) {
			d.Policy.Early, d.Paused = time.Hour, &kernel.Held{At: clock(t, "00:31:00"), Until: clock(t, "00:45:00")}
		}, ""},
		"paused, due later": {"00:35:00", func(d *kernel.Definition) {
			d.Policy.Early, d.Paused = time.Hour, &kernel.Held{At: clock(t, "00:31:00")}
		}, ""},
		"paused, due now": {"01:00:00", func(d *kernel.Definition) {
			d.Policy.Early, d.Paused = time.Hour, &kernel.Held{At: clock(t, "00:31:00")}
		}, "paused 01:00-01:00/1"},
		"begun early under an earlier schedule": {"00:45:00", func(d *kernel.Definition) {
			d.Policy.Early = 2 * time.Hour
			earlier := d.Earlier(clock(t, "00:35:00"))
			earlier.Decided = clock(t, "01:00:00")
			d.Ahead, d.Cursor = []kernel.Earlier{earlier}, clock(t, "00:35:00")
			d.Policy.Schedule = "*/30 * * * *"
		}, "+01:30 +02:00 +02:30"},
		"begun early, and edited twice": {"02:10:00", func(d *kernel.Definition) {
			first, second := d.Earlier(clock(t, "00:35:00")), d.Earlier(clock(t, "02:05:00"))
			first.Decided, second.SetAt = clock(t, "01:00:00"), clock(t, "00:35:00")
			d.Ahead, d.Undecided, d.Cursor = []kernel.Earlier{first}, []kernel.Earlier{second}, clock(t, "00:35:00")
		}, "edited 02:00-02:00/1"},
	} {
		d := &kernel.Definition{Key: "report", Kind: kernel.Recurring, Anchor: clock(t, "00:30:00"), Cursor: clock(t, "00:30:00"),
			Policy: kernel.Policy{Schedule: "0 * * * *", Misfire: jobs.MisfireOnce}}
		c.change(d)
		s, err := timetable.Schedule(d)
		if err != nil {
			t.Fatal(err)
		}
		e := &entry{def: d, schedule: s}
		e.next, _ = s.Next(d.Since())
		f, _ := decide(e, &kernel.Global{}, nil, clock(t, c.now))
		if got := decision(f); got != c.want {
			t.Errorf("%s: %q\nwant %q", name, got, c.want)
		}
		if d.Cursor = f.To; len(d.Silences) > 0 {
			if d.Decided(); len(d.Silences) > 0 {
				t.Errorf("%s: %v is remembered although all is decided up to %v", name, d.Silences, d.Cursor)
			}
		}
	}
}
