// Package schedule computes the due times of jobs.
//
// Where to start: [Spec], [Parse], then [Schedule.Next]. A [Spec] is a schedule as users write it: a cron expression,
// an interval, an ISO 8601 repeat or a single instant, with a time zone and limits:
//
//	s, err := schedule.Parse(schedule.Spec{Expr: "30 2 * * MON-FRI", Zone: "Europe/Berlin"})
//	...
//	due, ok := s.Next(time.Now())
//
// docs/schedules.md has the rules, with examples; [Schedule.Words] describes a schedule in plain text. An [Agenda]
// keeps the due times of a million schedules in order.
//
// Sharp edges: clocks that are set forward leave a gap of times that do not exist, clocks that are set back repeat an
// hour. A cron expression whose hour and minute are plain numbers fires once through both; one that has a range or a
// step there follows the clock. See [Gap] and [Overlap]. Two dialects of cron disagree about which day of the week is
// 1; see [Schedule.Warnings]. The package is pure: it reads no clock, and it has its own time zone database, so that
// the same program gives the same results on every machine.
package schedule

import "time"

// Spec is a schedule as users write it.
type Spec struct {
	// Expr is one of
	//   - cron of 5, 6 or 7 fields: "30 2 * * *", "0 30 2 * * *", "0 30 2 ? * 2 2027"
	//   - a macro: "@yearly", "@annually", "@monthly", "@weekly", "@daily",
	//     "@midnight", "@hourly", "@every 5s"
	//   - an ISO 8601 period or repeat: "PT3S", "R4/PT3S", "P1M"
	//   - an interval: "2h30m", "1d2h0m2s"
	//   - an instant, due once: "2027-03-01T09:00:00+01:00", or, on the clocks of
	//     the zone, "2027-03-01 09:00:00" and "2027-3-1 9:00"
	//   - an interval that counts from the end of the last run: "5m after end"
	//
	// Empty is refused.
	Expr string
	// Zone is an IANA name, spelled as in the database. Empty means UTC.
	Zone string
	// Start limits the schedule: nothing is due before it, a cron match exactly at it is due. Zero means no limit.
	Start time.Time
	// End limits the schedule: nothing is due after it. Zero means no limit.
	End time.Time
	// Anchor is when the schedule was set. Intervals count from Start, else from Anchor, else from the start of 1970;
	// and a schedule without a due time after the later of the two is refused.
	Anchor time.Time
	// Due, if set, is the first due time of an interval, and the others count
	// from it. Other expressions ignore it.
	Due time.Time
	// Ended is when the last run ended, for a schedule that counts from that; zero if there has been none: then it
	// counts as other intervals do.
	Ended time.Time
	// Gap and Overlap are the policies of fixed-time cron expressions for wall times that do not exist or happen twice.
	Gap     Gap
	Overlap Overlap
	// Key is what H hashes: the tenant and the key of the job, as in
	// "default/billing.close-day".
	Key string
}

// Schedule is a checked Spec. It is immutable and safe for concurrent use.
type Schedule struct {
	spec Spec
	zone *zone
	rule rule
	// notBefore is the instant just before Start, so that "strictly after" it
	// includes Start itself. Zero if there is no Start.
	notBefore time.Time
}

// rule is one form of schedule, without its limits.
type rule interface {
	// next returns the first due time strictly after the given one.
	next(after time.Time) (time.Time, bool)
	// say describes the rule in words.
	say(l language) string
	// warnings lists what the author may not have meant.
	warnings(l language) []string
}

// horizonYears is how far ahead a cron expression may have no match: within 28 years every date meets every day of the
// week.
const horizonYears = 28

// Parse checks a specification and returns its schedule. It reports errors as an *[Error]. It refuses a schedule that
// would never fire: a cron expression without a match in the 28 years after the later of Anchor and Start, anything
// else without a due time. If both are zero, only expressions that no calendar ever matches are refused.
func Parse(spec Spec) (*Schedule, error) {
	s, err := read(spec)
	if err != nil {
		return nil, err
	}
	if err := s.checkFires(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reopen reads a specification that [Parse] accepted in the past. It differs in one thing: a schedule that has ended
// meanwhile, or that a new edition of the zone database has emptied, is finished and not refused.
func Reopen(spec Spec) (*Schedule, error) {
	s, err := read(spec)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Spec returns the specification.
func (s *Schedule) Spec() Spec { return s.spec }

// Next returns the first due time strictly after the given one, in UTC; false
// means that the schedule is finished. Cron expressions are due on whole
// seconds, intervals keep the fraction of what they count from. Nothing is due
// before 1970 or after 2199.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	due, ok := s.endless(after)
	if !ok || !s.spec.End.IsZero() && due.After(s.spec.End) {
		return time.Time{}, false
	}
	return due, true
}

// endless is Next without the end. It keeps the rules away from instants so distant that arithmetic would overflow.
func (s *Schedule) endless(after time.Time) (time.Time, bool) {
	switch {
	case after.Before(s.notBefore):
		after = s.notBefore
	case after.Before(earliest):
		after = earliest
	}
	if !after.Before(latest) {
		return time.Time{}, false
	}
	return s.rule.next(after)
}

// Warnings lists what is allowed but may not mean what its author thinks. It is empty for nearly every schedule.
func (s *Schedule) Warnings() []string { return s.WarningsIn("en") }

// WarningsIn is Warnings in a language, as [Schedule.WordsIn] understands it.
func (s *Schedule) WarningsIn(lang string) []string { return s.rule.warnings(languageOf(lang)) }

// read does all of Parse but the search for a first due time. It returns an
// *Error as such, never a nil one in an error.
func read(spec Spec) (*Schedule, error) {
	if err := checkBounds(spec); err != nil {
		return nil, err
	}
	zone, err := loadZone(spec.Zone)
	if err != nil {
		return nil, err
	}
	rule, err := parseRule(spec, zone)
	if err != nil {
		return nil, err
	}
	s := &Schedule{spec: spec, zone: zone, rule: rule}
	if !spec.Start.IsZero() {
		s.notBefore = spec.Start.Add(-1) // a nanosecond
	}
	return s, nil
}

func checkBounds(spec Spec) *Error {
	for _, bound := range []struct {
		field string
		at    time.Time
	}{{"start", spec.Start}, {"end", spec.End}, {"anchor", spec.Anchor}, {"due", spec.Due}, {"ended", spec.Ended}} {
		if !bound.at.IsZero() && bound.at.Unix() < firstSecond {
			return refuse(bound.field, 0, "it is before %d", firstYear)
		}
	}
	switch {
	case !spec.End.IsZero() && spec.End.Before(spec.Start):
		return refuse("end", 0, "it is before the start")
	case !spec.Due.IsZero() && spec.Due.Before(spec.Start):
		return refuse("due", 0, "it is before the start")
	case int(spec.Gap) >= len(gapNames):
		return refuse("gap", 0, "unknown policy %d", spec.Gap)
	case int(spec.Overlap) >= len(overlapNames):
		return refuse("overlap", 0, "unknown policy %d", spec.Overlap)
	}
	return nil
}

// checkFires refuses a schedule that would never fire. It ignores End: ending a schedule at once is a valid way to stop
// it.
func (s *Schedule) checkFires() error {
	_, isCron := s.rule.(*cron)
	from := s.spec.Anchor
	if from.Before(s.spec.Start) {
		from = s.spec.Start
	}
	if from.IsZero() {
		if _, ok := s.endless(earliest); !ok {
			return refuse("expression", 0, "it never fires: no calendar has such a time")
		}
		return nil
	}
	due, ok := s.endless(s.spec.Anchor)
	switch {
	case !ok:
		return refuse("expression", 0, "it never fires after %s", from.UTC().Format(time.RFC3339))
	case isCron && due.Unix() > s.zone.horizon(from.Unix()):
		return refuse("expression", 0, "it never fires in the %d years after %s",
			horizonYears, from.UTC().Format(time.RFC3339))
	}
	return nil
}

// horizon returns the last second in which a first match still counts: the same wall time 28 years later, and the later
// one if it happens twice.
func (z *zone) horizon(unix int64) int64 {
	local := time.Unix(z.local(unix), 0).UTC().AddDate(horizonYears, 0, 0).Unix()
	at := z.resolve(local)
	if i := z.find(at) + 1; i < len(z.spans)-1 {
		if again := local - z.spans[i].offset; again >= z.spans[i].start && again < z.spans[i+1].start {
			return again
		}
	}
	return at
}
