package schedule

import (
	"strings"
	"time"
)

// Timer is a schedule as a first due time and a period. It is another notation for fields of a [Spec].
type Timer struct {
	// DueTime is a duration from now ("1h", "PT1H", "1d2h0m2s") or a time ("2023-10-01 09:00:01", with or without zeros
	// and an offset).
	DueTime string `json:"dueTime"`
	// Period is a duration ("5m", "PT5M"), zero for once ("0s"), a number of times ("R4/PT3S"), cron of 5 to 7 fields,
	// which ignores DueTime, or "external": no schedule, only requested runs.
	Period string `json:"period"`
	// TTL is a duration from now after which nothing is due; "" = no end.
	TTL string `json:"ttl,omitempty"`
}

// External is the Timer.Period of a job without a schedule.
const External = "external"

// soon is how far in the future "at once" is, so that it is not past when the job is stored.
const soon = time.Second

// Spec converts the timer, set now, to expression, zone ("" = UTC), first due time and end of a schedule; without a
// schedule, the expression is "". If DueTime or Period is missing, the schedule is due once, about a second after it
// has been set. Errors are an *[Error] whose field is dueTime, period or ttl.
func (t Timer) Spec(now time.Time, zone string) (Spec, error) {
	z, bad := loadZone(zone)
	if bad != nil {
		return Spec{}, bad
	}
	dueTime, period := strings.TrimSpace(t.DueTime), strings.TrimSpace(t.Period)
	s := Spec{Expr: period, Zone: zone}
	if t.TTL != "" {
		end, _, err := t.moment("ttl", t.TTL, now, z)
		if err != nil {
			return s, err
		}
		s.End = end
	}
	isCron := len(strings.Fields(period)) >= 5 || strings.HasPrefix(period, "@")
	switch {
	case period == External:
		s.Expr = ""
		return s, nil
	case isCron:
		return s, readable("period", Spec{Expr: period, Zone: zone, Anchor: now})
	case dueTime == "" || period == "":
		s.Expr = "R1/PT1S"
		return s, nil
	}
	first, relative, err := t.moment("dueTime", dueTime, now, z)
	if err != nil {
		return s, err
	}
	if relative {
		first = later(first, now.Add(soon))
	}
	if isZero(period) {
		s.Expr = first.UTC().Format(time.RFC3339Nano)
		return s, nil
	}
	s.Due = first
	return s, readable("period", Spec{Expr: period, Zone: zone, Anchor: now, Due: first})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// moment reads a time, or a duration from now.
func (t Timer) moment(field, text string, now time.Time, z *zone) (at time.Time, relative bool, err error) {
	if looksLikeInstant(text) {
		at, bad := parseInstant(source{text, 0}, z)
		if bad != nil {
			bad.Field = field
			return at, false, bad
		}
		return at, false, nil
	}
	if isZero(text) {
		return now, true, nil
	}
	s, err := Parse(Spec{Expr: text, Zone: z.name, Anchor: now})
	if err != nil {
		if bad, is := err.(*Error); is {
			bad.Field = field
		}
		return at, true, err
	}
	at, _ = s.Next(now)
	if s.isCron() {
		return at, true, refuse(field, 0, "invalid time %s: want a duration such as 1h or a time such as 2023-10-01 09:00:01", quote(text))
	}
	return at, true, nil
}

// isZero reports whether a duration is zero: "0", "0s", "0h0m0s", "PT0S".
func isZero(text string) bool {
	number, some := false, false
	for _, r := range text {
		number = number || r == '0'
		some = some || r >= '1' && r <= '9'
	}
	return number && !some && strings.Trim(text, "0dhmsPTDHMS") == ""
}

// readable checks a specification.
func readable(field string, spec Spec) error {
	_, err := Parse(spec)
	if bad, is := err.(*Error); is && bad.Field == "expression" {
		bad.Field = field
	}
	return err
}

func (s *Schedule) isCron() bool {
	_, is := s.rule.(*cron)
	return is
}
