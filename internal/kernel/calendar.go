package kernel

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The limits of a calendar, and of the calendars of a job.
const (
	MaxCalendarRules = 1_000
	MaxCalendarRule  = 200 // bytes
	MaxCalendars     = 8

	MaxCalendarsOfTenant = 1_000
	maxEarlier           = 5 // earlier versions of a calendar that are kept
)

// Calendar is a named set of times at which the jobs that use it are not due.
type Calendar struct {
	Tenant      jobs.Tenant
	Name        string
	Description string
	Zone        string   // IANA name; "" = UTC
	Rules       []string // one a line, as jobs/schedule reads them
	By          string   // who changed it last
	Created     time.Time
	Edited      time.Time
	Revision    uint64 // counts the changes of this name, across deletions
	// Earlier are the rules before the last edits, oldest first. A due time that was undecided at an edit does not fire
	// if the rules before excluded it: edits never fire for the past.
	Earlier []CalendarRules
	// Bundle is the bundle that created the calendar or took it over; "" = none.
	Bundle string
}

// CalendarRules are the rules of a calendar up to an edit.
type CalendarRules struct {
	Zone  string
	Rules []string
	Until time.Time
}

// same reports whether two calendars are equal.
func (c *Calendar) same(o *Calendar) bool {
	return c.Description == o.Description && c.Zone == o.Zone && c.Bundle == o.Bundle && slices.Equal(c.Rules, o.Rules)
}

// Edit returns the calendar with other rules from a time on, or nil if nothing would change.
func (c *Calendar) Edit(to *Calendar, at time.Time, by string) *Calendar {
	if c.same(to) {
		return nil
	}
	next := *c
	if c.Zone != to.Zone || !slices.Equal(c.Rules, to.Rules) {
		next.Earlier = append(slices.Clone(c.Earlier), CalendarRules{Zone: c.Zone, Rules: c.Rules, Until: at})
		next.Earlier = next.Earlier[max(0, len(next.Earlier)-maxEarlier):]
	}
	next.Description, next.Zone, next.Rules, next.Bundle = to.Description, to.Zone, to.Rules, to.Bundle
	next.By, next.Edited, next.Revision = by, at, c.Revision+1
	return &next
}

// SetCalendar creates or replaces a calendar. jobs/schedule checks its rules before a command is created.
type SetCalendar struct {
	Name        string
	Description string
	Zone        string
	Rules       []string
	IfRevision  uint64 // refused as Stale if the calendar has another; 0 = any
	// Bundle is the bundle that writes it; "" = none. A new calendar belongs to it, and, with TakeOver, any. A calendar
	// of another bundle is refused as Conflict.
	Bundle   string
	TakeOver bool
}

// DropCalendar deletes a calendar. A job that still names it is due as if it were empty, and shows a warning.
type DropCalendar struct {
	Name       string
	IfRevision uint64
	Bundle     string // prunes: refused as Conflict if the calendar is not in this bundle
}

// Verb returns the verb of each command.
func (SetCalendar) Verb() Verb  { return VerbSetCalendar }
func (DropCalendar) Verb() Verb { return VerbDropCalendar }

// Check validates the calendar, except the meaning of its rules.
func (c SetCalendar) Check() error {
	if err := cmp.Or(CheckName("calendar", c.Name), checkBundle(c.Bundle)); err != nil {
		return err
	}
	if c.TakeOver && c.Bundle == "" {
		return Invalid("calendar %s: taking over needs a bundle", c.Name)
	}
	if len(c.Description) > MaxDescription {
		return Invalid("invalid description of calendar %s: want at most %d bytes of text", c.Name, MaxDescription)
	}
	if len(c.Zone) > MaxZone {
		return Invalid("time zone has %d bytes, at most %d are allowed", len(c.Zone), MaxZone)
	}
	if len(c.Rules) > MaxCalendarRules {
		return Invalid("calendar %s has %d rules, at most %d are allowed", c.Name, len(c.Rules), MaxCalendarRules)
	}
	for i, r := range c.Rules {
		if strings.TrimSpace(r) == "" || len(r) > MaxCalendarRule || strings.ContainsFunc(r, unicode.IsControl) {
			return Invalid("calendar %s, rule %d: want one line of 1 to %d bytes", c.Name, i+1, MaxCalendarRule)
		}
	}
	return nil
}

// Check validates the name and the bundle.
func (c DropCalendar) Check() error {
	return cmp.Or(CheckName("calendar", c.Name), checkBundle(c.Bundle))
}

// CalendarRef returns the reference of a calendar.
func CalendarRef(t jobs.Tenant, name string) Ref {
	return Ref{Kind: RowCalendar, Tenant: t, Name: name}
}

// Ref returns the reference of the calendar.
func (c *Calendar) Ref() Ref { return CalendarRef(c.Tenant, c.Name) }

func wireCalendarRules(c *coder, r *CalendarRules) {
	text(c, &r.Zone)
	list(c, &r.Rules, 1, wireString)
	c.time(&r.Until)
}

func wireCalendar(c *coder, k *Calendar) {
	text(c, &k.Tenant)
	text(c, &k.Name)
	text(c, &k.Description)
	text(c, &k.Zone)
	list(c, &k.Rules, 1, wireString)
	text(c, &k.By)
	c.time(&k.Created)
	c.time(&k.Edited)
	number(c, &k.Revision)
	list(c, &k.Earlier, 3, wireCalendarRules)
	text(c, &k.Bundle)
}

// FixedDelay reports whether the job is due a delay after the end of its last run.
func (d *Definition) FixedDelay() bool {
	_, is := plain.AfterEnd(d.Policy.Schedule)
	return is
}

// Waits reports that the job has no next due time yet, because that counts from the end of an unfinished run.
func (d *Definition) Waits() bool { return !d.Running.IsZero() && d.FixedDelay() }

// Starts returns when the run of a due time may start: at the due time, or early if the job allows it, and spread by
// its jitter, which is the same on every node for a job and due time.
func (d *Definition) Starts(due time.Time) time.Time {
	return due.Add(Scatter(d.UID, due, d.Policy.Jitter) - d.Policy.Early)
}

// Scatter returns a duration from 0 up to, but not including, within, in whole milliseconds: a hash of job and due
// time.
func Scatter(job jobs.ID, due time.Time, within time.Duration) time.Duration {
	steps := uint64(within / time.Millisecond)
	if steps == 0 {
		return 0
	}
	h := fnv.New64a()
	id := DueID("", job, due, 0, 0) // a good hash, whose bits FNV only folds
	h.Write(id[:])
	return time.Duration(h.Sum64()%steps) * time.Millisecond
}
