package kernel

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What a calendar may hold, and how many of them a job may use.
const (
	MaxCalendarRules = 1_000
	MaxCalendarRule  = 200 // bytes
	MaxCalendars     = 8

	MaxCalendarsOfTenant = 1_000
	maxEarlier           = 5 // versions of a calendar that are kept beside the current one
)

// Calendar is a named set of times at which the jobs that use it are not due.
type Calendar struct {
	Tenant      jobs.Tenant
	Name        string
	Description string
	Zone        string   // IANA name; "" = UTC
	Rules       []string // one a line, as jobs/schedule reads them
	By          string   // who wrote it last
	Created     time.Time
	Edited      time.Time
	Revision    uint64 // counts the changes of this name, also beyond a deletion
	// Earlier are the rules before the last edits, oldest first. A due time that nobody had decided when they were
	// edited does not fire if they excluded it: edits never fire for the past.
	Earlier []CalendarRules
}

// CalendarRules are what a calendar excluded, up to an edit.
type CalendarRules struct {
	Zone  string
	Rules []string
	Until time.Time
}

// same says that two calendars say the same.
func (c *Calendar) same(o *Calendar) bool {
	return c.Description == o.Description && c.Zone == o.Zone && slices.Equal(c.Rules, o.Rules)
}

// Edit is the calendar with other rules from a time on. Nil if nothing would change.
func (c *Calendar) Edit(to *Calendar, at time.Time, by string) *Calendar {
	if c.same(to) {
		return nil
	}
	next := *c
	if c.Zone != to.Zone || !slices.Equal(c.Rules, to.Rules) {
		next.Earlier = append(slices.Clone(c.Earlier), CalendarRules{Zone: c.Zone, Rules: c.Rules, Until: at})
		next.Earlier = next.Earlier[max(0, len(next.Earlier)-maxEarlier):]
	}
	next.Description, next.Zone, next.Rules = to.Description, to.Zone, to.Rules
	next.By, next.Edited, next.Revision = by, at, c.Revision+1
	return &next
}

// SetCalendar writes a calendar whole: a new one, or in the place of the one of that name. Its rules are judged by
// jobs/schedule, before a command is made of them.
type SetCalendar struct {
	Name        string
	Description string
	Zone        string
	Rules       []string
	IfRevision  uint64 // refused as Stale if the calendar has another; 0 = whatever it has
}

// DropCalendar takes a calendar away. A job that still names it is due as if it were empty, and says so.
type DropCalendar struct {
	Name       string
	IfRevision uint64
}

// Verb of each command.
func (SetCalendar) Verb() Verb  { return VerbSetCalendar }
func (DropCalendar) Verb() Verb { return VerbDropCalendar }

// Check says what is wrong with the calendar, but for what its rules mean.
func (c SetCalendar) Check() error {
	if err := CheckName("calendar", c.Name); err != nil {
		return err
	}
	if len(c.Description) > MaxDescription || !utf8.ValidString(c.Description) {
		return Invalid("description of calendar %s: at most %d bytes of text are allowed", c.Name, MaxDescription)
	}
	if len(c.Zone) > MaxZone {
		return Invalid("time zone has %d bytes, at most %d are allowed", len(c.Zone), MaxZone)
	}
	if len(c.Rules) > MaxCalendarRules {
		return Invalid("calendar %s has %d rules, at most %d are allowed", c.Name, len(c.Rules), MaxCalendarRules)
	}
	for i, r := range c.Rules {
		if strings.TrimSpace(r) == "" || len(r) > MaxCalendarRule || !utf8.ValidString(r) || strings.ContainsFunc(r, unicode.IsControl) {
			return Invalid("calendar %s, rule %d: a rule is one line of 1 to %d bytes", c.Name, i+1, MaxCalendarRule)
		}
	}
	return nil
}

// Check says what is wrong with the name.
func (c DropCalendar) Check() error { return CheckName("calendar", c.Name) }

// CalendarRef points to a calendar.
func CalendarRef(t jobs.Tenant, name string) Ref {
	return Ref{Kind: RowCalendar, Tenant: t, Name: name}
}

// Ref points to the calendar.
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
}

// afterEnd are the last words of a schedule that counts from the end of a run.
const afterEnd = " after end"

// AfterEnd says that a schedule counts from the end of the last run ("@every 5m after end"), and what remains of it
// without those words.
func AfterEnd(schedule string) (rest string, is bool) {
	return strings.CutSuffix(strings.TrimRight(schedule, " \t"), afterEnd)
}

// FixedDelay says that the job is due a while after its last run has ended.
func (d *Definition) FixedDelay() bool {
	_, is := AfterEnd(d.Policy.Schedule)
	return is
}

// Waits says that the job has no next due time yet, because that counts from the end of a run that is not over.
func (d *Definition) Waits() bool { return !d.Running.IsZero() && d.FixedDelay() }

// Starts is when the run of a due time may start: at the due time, or early if the job allows it, and spread by its
// jitter, which is the same for the same job and due time wherever it is worked out.
func (d *Definition) Starts(due time.Time) time.Time {
	return due.Add(Scatter(d.UID, due, d.Policy.Jitter) - d.Policy.Early)
}

// Scatter is a length of time from 0 up to, and without, within, in whole milliseconds: a hash of job and due time.
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
