package ops_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Why a job did not run at a time is also explained for jobs with unusual times: spread ones, early ones, those that
// count from the end of a run, finished ones, and ones that no worker has any more. The fixture begins at noon.
func TestExplainAtOfUnusualTimes(t *testing.T) {
	d := newFixture(t)
	for _, o := range []jobs.Options{
		{Key: "spread", Cron: "@hourly", Jitter: 10 * time.Minute}, {Key: "early", Cron: "@hourly", Early: 5 * time.Minute},
		{Key: "both", Cron: "@hourly", Early: 5 * time.Minute, Jitter: 10 * time.Minute}, {Key: "four", Cron: "R4/PT1M"},
		{Key: "delay", Every: time.Minute, AfterEnd: true}, {Key: "gone", Cron: "@hourly"},
	} {
		d.recurring(o)
	}
	d.apply(kernel.Lead{Term: 1, Node: "n1"})
	d.now = d.now.Add(2 * time.Minute)
	d.apply(kernel.Mark{Key: "gone", Stopped: true})
	at := func(text string) time.Time {
		t.Helper()
		when, err := time.Parse("15:04:05", text)
		if err != nil {
			t.Fatal(err)
		}
		return time.Date(2026, 11, 21, when.Hour(), when.Minute(), when.Second(), 0, time.UTC)
	}
	for _, c := range []struct {
		key     jobs.Key
		at      string
		says    []string
		without string
	}{
		{"spread", "13:00:00", []string{"It is due at 2026-11-21T13:00:00Z and will start at 2026-11-21T13:0"}, ""},
		{"spread", "13:07:30", []string{"It is not due at 2026-11-21T13:07:30Z", "The run of 2026-11-21T13:00:00Z starts at 2026-11-21T13:0", "because its jitter is 10m0s."}, ""},
		{"spread", "13:20:00", []string{"It is not due at 2026-11-21T13:20:00Z"}, "spread"},
		{"early", "12:56:00", []string{"The run of 2026-11-21T13:00:00Z starts at 2026-11-21T12:55:00.000Z, because it may start 5m0s early."}, ""},
		{"early", "12:54:00", []string{"It is not due at"}, "early"},
		{"both", "12:57:00", []string{"The run of 2026-11-21T13:00:00Z starts at 2026-11-21T1", "because its jitter is 10m0s, and it may start 5m0s early."}, ""},
		{"four", "12:30:00", []string{"Its schedule is finished by 2026-11-21T12:30:00Z: it was due for the last time at 2026-11-21T12:04:00Z."}, ""},
		{"delay", "12:01:30", []string{"It was not due at 2026-11-21T12:01:30Z: its due times count from the end of its last run, and no run was due then."}, ""},
		{"delay", "18:00:00", []string{"; later due times count from the end of that run."}, ""},
		{"gone", "13:00:00", []string{"It would not run at 2026-11-21T13:00:00Z: it is stopped since 2026-11-21T12:02:00Z, because no worker of the app app has it any more."}, ""},
	} {
		e, err := d.ExplainAt(t.Context(), ann, c.key, at(c.at))
		if err != nil {
			t.Errorf("%s at %s: %v", c.key, c.at, err)
			continue
		}
		says := e.Text[0]
		for _, want := range c.says {
			if !strings.Contains(says, want) {
				t.Errorf("%s at %s: %q, want %q", c.key, c.at, says, want)
			}
		}
		if c.without != "" && strings.Contains(says, c.without) {
			t.Errorf("%s at %s: %q speaks of %s", c.key, c.at, says, c.without)
		}
	}
	d.now = at("13:05:00")
	if e, err := d.ExplainAt(t.Context(), ann, "gone", at("13:00:00")); err != nil || !strings.Contains(e.Text[0], "which is undecided: the job is stopped since 2026-11-21T12:02:00Z") {
		t.Errorf("a due time of a stopped job: %q, %v", e.Text, err)
	}
}
