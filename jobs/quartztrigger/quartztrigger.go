// Package quartztrigger makes the triggers of github.com/reugn/go-quartz the schedules of jobs.
//
// Where to start: [Options]. A program that moves from go-quartz keeps its triggers:
//
//	trigger, err := quartz.NewCronTriggerWithLoc("0 30 9 ? * MON-FRI", berlin)
//	...
//	o, err := quartztrigger.Options(trigger, jobs.Options{Key: "billing.remind"})
//	...
//	job := jobs.NewRecurring(remind, o)
//
// Sharp edges: a trigger is code of the program, and the server computes due times without it, so only triggers that
// can be written as text are converted. Due times are those of docs/schedules.md. They differ from the trigger's where
// clocks change, and where go-quartz computes a time that the expression does not have: 1 March for 29 February.
package quartztrigger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reugn/go-quartz/quartz"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Options returns o with the schedule of a trigger:
//   - A CronTrigger sets Cron and TimeZone. Its location must be an IANA zone.
//   - A SimpleTrigger sets Every, which counts from the creation of the job.
//   - A RunOnceTrigger sets Cron to one due time, its delay after the creation of the job: a restart of the program
//     does not repeat it.
//
// Other triggers, and expressions that Carillon would read differently, are refused.
func Options(t quartz.Trigger, o jobs.Options) (jobs.Options, error) {
	if o.Cron != "" || o.Every != 0 || o.TimeZone != "" {
		return o, errors.New("quartztrigger: Cron, Every or TimeZone is set, and a trigger would replace it: set one of them")
	}
	var err error
	switch t := t.(type) {
	case *quartz.CronTrigger:
		o.Cron, o.TimeZone, err = cronOf(t)
	case *quartz.SimpleTrigger:
		if o.Every, err = seconds(t.Interval); err != nil {
			err = fmt.Errorf("interval: %w", err)
		}
	case *quartz.RunOnceTrigger:
		o.Cron, err = once(t)
	case nil:
		err = errors.New("no trigger")
	default:
		err = errors.New("the server computes due times and does not have the code of this trigger: " +
			"use a cron, simple or run-once trigger, or leave the job without a schedule and enqueue its runs")
	}
	if err != nil {
		return o, fmt.Errorf("quartztrigger: %T: %w", t, err)
	}
	return o, nil
}

// seconds returns d if it is a valid interval.
func seconds(d time.Duration) (time.Duration, error) {
	if d < time.Second || d%time.Second != 0 {
		return 0, fmt.Errorf("invalid duration %v: want whole seconds, at least one", d)
	}
	return d, nil
}

func once(t *quartz.RunOnceTrigger) (string, error) {
	if t.Expired {
		return "", errors.New("the trigger has expired")
	}
	d, err := seconds(t.Delay)
	if err != nil {
		return "", fmt.Errorf("delay: %w; to run a job at once, enqueue a run", err)
	}
	return fmt.Sprintf("R1/PT%dS", d/time.Second), nil
}

func cronOf(t *quartz.CronTrigger) (expr, zone string, err error) {
	// The only way to read a CronTrigger: "CronTrigger::0 30 9 ? * MON-FRI::Europe/Berlin".
	rest, _ := strings.CutPrefix(t.Description(), "CronTrigger"+quartz.Sep)
	at := strings.LastIndex(rest, quartz.Sep)
	if at < 0 {
		return "", "", fmt.Errorf("unknown description %q", t.Description())
	}
	theirs, zone := rest[:at], rest[at+len(quartz.Sep):]
	if zone == "" || zone == time.Local.String() {
		return "", "", fmt.Errorf("location %q differs between machines: use time.UTC or time.LoadLocation with an IANA name", zone)
	}
	if expr, err = translate(theirs); err != nil {
		return "", "", fmt.Errorf("expression %q: %w", theirs, err)
	}
	s, err := schedule.Parse(schedule.Spec{Expr: expr, Zone: zone})
	if err != nil {
		return "", "", fmt.Errorf("expression %q: %w", theirs, err)
	}
	if zone != time.UTC.String() && !isZone(t, theirs, zone, s) {
		return "", "", fmt.Errorf("location %q is not the IANA zone of this name: use time.LoadLocation", zone)
	}
	return expr, zone, nil
}

// translate writes an expression of go-quartz, which reads ? as * in every field, as docs/schedules.md has it.
func translate(expr string) (string, error) {
	f := strings.Fields(expr)
	if len(f) < 6 {
		return expr, nil // a macro
	}
	for i := range f {
		if f[i] == "?" {
			f[i] = "*"
		}
	}
	dom, dow := &f[3], &f[5]
	if *dow != "*" { // a ? selects the dialect in which 1 is Sunday
		*dom = "?"
	}
	if *dow == "L" || *dow == "l" { // the last Saturday; schedule refuses it, because it looks like the last day
		*dow = "7L"
	}
	if day, near := strings.CutSuffix(*dom, "W"); near {
		if n, err := strconv.Atoi(day); err == nil && n > 28 {
			return "", fmt.Errorf("go-quartz replaces %s by the last weekday in months without that day, which Carillon does not: "+
				"use LW, or a day up to 28", *dom)
		}
	}
	return strings.Join(f, " "), nil
}

// isZone reports whether the location of a trigger is the zone of its name, and not a time.FixedZone: the same
// expression must be due at the same time in winter and in summer.
func isZone(t *quartz.CronTrigger, expr, zone string, s *schedule.Schedule) bool {
	location, err := time.LoadLocation(zone)
	if err != nil {
		return false
	}
	same, err := quartz.NewCronTriggerWithLoc(expr, location)
	if err != nil {
		return false
	}
	for _, month := range []time.Month{time.January, time.July} {
		after := time.Date(2026, month, 15, 12, 0, 0, 0, time.UTC)
		if _, due := s.Next(after); !due { // go-quartz may look for ever
			continue
		}
		got, err1 := t.NextFireTime(after.UnixNano())
		want, err2 := same.NextFireTime(after.UnixNano())
		if got != want || (err1 == nil) != (err2 == nil) {
			return false
		}
	}
	return true
}
