package quartztrigger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reugn/go-quartz/quartz"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/quartztrigger"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/workertest"
)

func location(t *testing.T, zone string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func cron(t *testing.T, expr, zone string) *quartz.CronTrigger {
	t.Helper()
	trigger, err := quartz.NewCronTriggerWithLoc(expr, location(t, zone))
	if err != nil {
		t.Fatalf("%q: %v", expr, err)
	}
	return trigger
}

// theirs are the due times of a trigger after a time and before another.
func theirs(t *testing.T, trigger quartz.Trigger, after, end time.Time, most int) (list []string) {
	t.Helper()
	for len(list) < most {
		next, err := trigger.NextFireTime(after.UnixNano())
		if err != nil {
			break
		}
		if after = time.Unix(0, next).UTC(); !after.Before(end) {
			break
		}
		list = append(list, after.Format(time.RFC3339))
	}
	return list
}

// ours are those of a job with these options that is created at a time.
func ours(t *testing.T, o jobs.Options, created, end time.Time, most int) (list []string) {
	t.Helper()
	expr := o.Cron
	if o.Every != 0 {
		expr = "@every " + o.Every.String()
	}
	s, err := schedule.Parse(schedule.Spec{Expr: expr, Zone: o.TimeZone, Anchor: created})
	if err != nil {
		t.Errorf("%q: %v", expr, err)
		return nil
	}
	after := created
	for len(list) < most {
		due, ok := s.Next(after)
		if !ok || !due.Before(end) {
			break
		}
		after = due
		list = append(list, due.Format(time.RFC3339))
	}
	return list
}

// writer writes random expressions, without those whose due times go-quartz computes wrongly or never (see
// jobs/schedule/peers): open hours beside restricted days, several times a day on special days, days that a month lacks,
// a 2W that is the 1st.
type writer struct{ *rand.Rand }

func (w writer) pick(texts ...string) string { return texts[w.IntN(len(texts))] }

func (w writer) number(low, high int) string { return fmt.Sprint(low + w.IntN(high-low+1)) }

func (w writer) field(low, high int) string {
	from := low + w.IntN(high-low+1)
	to := from + w.IntN(high-from+1)
	step := 2 + w.IntN(max(1, (high-low)/2))
	switch w.IntN(7) {
	case 0:
		return fmt.Sprintf("*/%d", step)
	case 1:
		return fmt.Sprintf("%d-%d", from, to)
	case 2:
		return fmt.Sprintf("%d-%d/%d", from, to, step)
	case 3:
		return fmt.Sprintf("%d/%d", from, step)
	case 4:
		return w.number(low, high) + "," + w.number(low, high)
	}
	return fmt.Sprint(from)
}

func (w writer) expression() string {
	open := w.pick("*", "?")
	clock := w.pick("*", "?", w.field(0, 59)) + " " + w.pick("*", "?", w.field(0, 59)) + " " + w.field(0, 23)
	once := w.number(0, 59) + " " + w.number(0, 59) + " " + w.number(0, 23)
	month := w.pick("*", "?", "JAN", "feb-Nov", "MAR,JUN,SEP,DEC", w.field(1, 12))
	day := w.number(1, 7)
	date := ""
	switch w.IntN(7) {
	case 0:
		date = w.pick("*", "?") + " " + month + " " + open
	case 1:
		date = w.number(1, 28) + " " + month + " " + open
	case 2:
		date = open + " * " + w.pick(w.field(1, 7), "MON", "mon-fri", "TUE,THU", "SUN,SAT", "MON-SAT/2")
	case 3:
		clock, date = once, w.pick("L", "L-"+w.number(1, 27), "LW", w.number(3, 28)+"W")+" "+month+" "+open
	case 4:
		clock, date = once, open+" "+month+" "+w.pick("L", day+"L", "FRIL", day+"#"+w.number(1, 4), "MON#1")
	case 5:
		return w.pick("@yearly", "@monthly", "@weekly", "@daily", "@hourly")
	case 6:
		date = "* * " + open + " " + w.pick("*", "?", "2020-2099", "2030,2033,2050", "2024/4")
	}
	return clock + " " + date
}

// A translated expression has the due times of its trigger: in zones without clock changes from any day on, in others
// between two changes.
func TestCronTriggersKeepTheirDueTimes(t *testing.T) {
	const expressions, times = 3000, 100
	w := writer{rand.New(rand.NewPCG(2026, 11))}
	compared := 0
	for range expressions {
		expr, zone := w.expression(), w.pick("UTC", "Asia/Tokyo", "Asia/Kolkata", "America/New_York", "Australia/Sydney")
		// From midnight: go-quartz forgets the rest of a day that W selects.
		after := time.Date(2020+w.IntN(30), 1, 1+w.IntN(366), 0, 0, -1, 0, location(t, zone))
		end := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		switch zone {
		case "America/New_York":
			after = time.Date(2026, 4, 1, 0, 0, -1, 0, location(t, zone))
			end = time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)
		case "Australia/Sydney":
			after = time.Date(2026, 10, 10, 0, 0, -1, 0, location(t, zone))
			end = time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC)
		}
		trigger := cron(t, expr, zone)
		o, err := quartztrigger.Options(trigger, jobs.Options{Key: "j"})
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		if o.Key != "j" || o.TimeZone != zone {
			t.Errorf("%q in %s has the options %+v", expr, zone, o)
		}
		want, got := theirs(t, trigger, after, end, times), ours(t, o, after, end, times)
		compared += len(want)
		if !slices.Equal(got, want) {
			i := 0
			for i < min(len(got), len(want)) && got[i] == want[i] {
				i++
			}
			t.Errorf("%q in %s becomes %q: after %d due times, got %.1q, want %.1q", expr, zone, o.Cron, i, got[i:], want[i:])
		}
	}
	if compared < 100_000 {
		t.Errorf("only %d due times were compared", compared)
	}
}

// Intervals and single due times count from the creation of the job, as those of go-quartz do from the call of
// ScheduleJob.
func TestOtherTriggersKeepTheirDueTimes(t *testing.T) {
	created := time.Date(2026, 11, 21, 10, 20, 30, 0, time.UTC)
	end := created.AddDate(1, 0, 0)
	for _, d := range []time.Duration{time.Second, 90 * time.Second, 26 * time.Hour, 100 * 24 * time.Hour} {
		o, err := quartztrigger.Options(quartz.NewSimpleTrigger(d), jobs.Options{})
		if want, got := theirs(t, quartz.NewSimpleTrigger(d), created, end, 50), ours(t, o, created, end, 50); err != nil || !slices.Equal(got, want) {
			t.Errorf("every %v: %v, %v, want %v", d, err, got, want)
		}
		o, err = quartztrigger.Options(quartz.NewRunOnceTrigger(d), jobs.Options{})
		if want, got := theirs(t, quartz.NewRunOnceTrigger(d), created, end, 50), ours(t, o, created, end, 50); err != nil || !slices.Equal(got, want) || len(got) != 1 {
			t.Errorf("once after %v: %v, %v, want %v", d, err, got, want)
		}
	}
}

// mine is a trigger of the program.
type mine struct{}

func (mine) NextFireTime(prev int64) (int64, error) { return prev + 1e9, nil }
func (mine) Description() string                    { return "CronTrigger::0 0 0 * * ?::UTC" }

// What cannot be written as text, or would mean something else, is refused with what to do.
func TestRefusedTriggers(t *testing.T) {
	fixed := func(name string, hours int) *quartz.CronTrigger {
		trigger, err := quartz.NewCronTriggerWithLoc("0 0 9 * * ?", time.FixedZone(name, hours*3600))
		if err != nil {
			t.Fatal(err)
		}
		return trigger
	}
	local, err := quartz.NewCronTriggerWithLoc("0 0 9 * * ?", time.Local)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		trigger quartz.Trigger
		o       jobs.Options
		want    string
	}{
		{nil, jobs.Options{}, "no trigger"},
		{mine{}, jobs.Options{}, "quartztrigger_test.mine: the server computes due times and does not have the code"},
		{quartz.NewSimpleTrigger(time.Hour), jobs.Options{Cron: "@daily"}, "set one of them"},
		{quartz.NewSimpleTrigger(time.Hour), jobs.Options{TimeZone: "UTC"}, "set one of them"},
		{quartz.NewSimpleTrigger(time.Hour), jobs.Options{Every: time.Minute}, "set one of them"},
		{quartz.NewSimpleTrigger(1500 * time.Millisecond), jobs.Options{}, "interval: invalid duration 1.5s: want whole seconds"},
		{quartz.NewSimpleTrigger(0), jobs.Options{}, "interval: invalid duration 0s"},
		{quartz.NewRunOnceTrigger(0), jobs.Options{}, "to run a job at once, enqueue a run"},
		{&quartz.RunOnceTrigger{Delay: time.Minute, Expired: true}, jobs.Options{}, "the trigger has expired"},
		{local, jobs.Options{}, `location "Local" differs between machines`},
		{fixed("", 1), jobs.Options{}, `location "" differs between machines`},
		{fixed("mine", 1), jobs.Options{}, "zone at 0"},
		{fixed("Europe/Berlin", 1), jobs.Options{}, "is not the IANA zone of this name: use time.LoadLocation"},
		{fixed("CET", 2), jobs.Options{}, "is not the IANA zone of this name: use time.LoadLocation"},
		{cron(t, "0 0 9 31W * ?", "UTC"), jobs.Options{}, "31W by the last weekday in months without that day"},
		{cron(t, "0 0 9 30 2 ?", "UTC"), jobs.Options{}, "it never fires"},
		{cron(t, "0 0 9 L-31 * ?", "UTC"), jobs.Options{}, "31 is not within 1-30"},
		{cron(t, "0 0 9 * * ? 2300", "UTC"), jobs.Options{}, "2300"},
	} {
		if _, err := quartztrigger.Options(c.trigger, c.o); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "quartztrigger: ") {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// A job with the schedule of a run-once trigger runs once, although its program restarts with a new trigger; one with
// that of a simple trigger continues.
func TestJobsWithTriggers(t *testing.T) {
	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
		var runs [2]atomic.Int32
		start := func() (stop func()) {
			list := make([]jobs.Job, len(runs))
			for i, trigger := range []quartz.Trigger{quartz.NewRunOnceTrigger(5 * time.Minute), quartz.NewSimpleTrigger(time.Hour)} {
				o, err := quartztrigger.Options(trigger, jobs.Options{Key: jobs.Key(fmt.Sprint("j", i))})
				if err != nil {
					t.Fatal(err)
				}
				list[i] = jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { runs[i].Add(1); return nil }), o)
			}
			return c.Start(worker.Config{}, list...)
		}
		stop := start()
		c.Pass(4 * time.Minute)
		if runs[0].Load() != 0 {
			t.Error("it ran early")
		}
		c.Pass(2 * time.Minute)
		stop()
		start()
		c.Pass(150 * time.Minute)
		if once, often := runs[0].Load(), runs[1].Load(); once != 1 || often != 2 {
			t.Errorf("the jobs ran %d and %d times, want 1 and 2", once, often)
		}
	})
}
