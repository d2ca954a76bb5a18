package schedule

import (
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// pace is the common part of all intervals: where counting starts, which counts are due, and where the calendar ends.
//
// The k-th due time is anchor + k periods. The anchor itself (k = 0) is due
// only where the specification names the first due time.
type pace struct {
	anchor time.Time
	offset int64 // of the zone from UTC at the anchor
	first  int64 // the first k that is due: 0 or 1
	last   int64 // the last one
	// afterEnd counts from the end of the last run, as far as there was one.
	afterEnd bool
}

// unlimited is a count that the calendar ends before.
const unlimited = 1 << 40

func paceOf(spec Spec, z *zone, times int64) pace {
	p := pace{anchor: spec.Anchor, first: 1}
	_, p.afterEnd = plain.AfterEnd(spec.Expr)
	switch {
	case p.afterEnd && !spec.Ended.IsZero():
		p.anchor = spec.Ended
	case !spec.Due.IsZero():
		p.anchor, p.first = spec.Due, 0
	case !spec.Start.IsZero():
		p.anchor = spec.Start
	case spec.Anchor.IsZero():
		p.anchor = time.Unix(0, 0)
	}
	p.anchor = p.anchor.UTC()
	p.offset = z.local(p.anchor.Unix()) - p.anchor.Unix()
	p.last = p.first + times - 1
	return p
}

// times is how often the interval is due in all, 0 if without end.
func (p pace) times() int64 {
	if n := p.last - p.first + 1; n < unlimited {
		return n
	}
	return 0
}

// limit drops what lies beyond the calendar.
func limit(due time.Time) (time.Time, bool) {
	return due, due.Unix() < endSecond
}

// every is an interval of elapsed time: clocks that are set forward or back do
// not matter to it.
type every struct {
	pace
	seconds int64
}

func (e every) next(after time.Time) (time.Time, bool) {
	if !e.anchor.Before(latest) {
		return time.Time{}, false
	}
	// In whole seconds and by hand: a time.Duration ends after 292 years.
	elapsed := after.Unix() - e.anchor.Unix()
	if after.Nanosecond() < e.anchor.Nanosecond() {
		elapsed--
	}
	k := e.first
	if elapsed >= 0 {
		k = max(k, elapsed/e.seconds+1)
	}
	if k > e.last || k > endSecond/e.seconds+1 {
		return time.Time{}, false
	}
	return limit(time.Unix(e.anchor.Unix()+k*e.seconds, int64(e.anchor.Nanosecond())).UTC())
}

func (e every) warnings(language) []string { return nil }

// maxInterval keeps arithmetic far from overflow; it is longer than the
// calendar.
const maxInterval = 300 * 366 * daySeconds

// intervalUnits lists the units of an interval by their size. There is no "M"
// and no "y": months and years differ in length, and ISO 8601 has them.
var intervalUnits = []struct {
	name string
	size time.Duration
}{
	{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"ms", time.Millisecond},
	{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// parseInterval reads "2h30m" or "1d2h0m2s".
func parseInterval(whole source, spec Spec, z *zone) (rule, *Error) {
	if whole.text == "" {
		return nil, whole.refuse("an interval is missing, such as 5s or 1d2h")
	}
	var seconds int64
	var nanoseconds time.Duration
	for rest := whole; rest.text != ""; {
		digits := len(rest.text) - len(strings.TrimLeft(rest.text, "0123456789"))
		if digits == 0 {
			if rest.text[0] == '-' || rest.text[0] == '+' {
				return nil, rest.refuse("an interval has no sign")
			}
			return nil, rest.refuse("%s", describe(rest.text))
		}
		n, err := strconv.ParseInt(rest.text[:digits], 10, 64)
		if err != nil || n > maxInterval {
			return nil, rest.refuse("%s is too long", quoteNumber(rest.text[:digits]))
		}
		name := rest.cut(digits)
		letters := len(name.text) - len(strings.TrimLeft(name.text, "abcdefghijklmnopqrstuvwxyz"))
		size := time.Duration(0)
		for _, u := range intervalUnits {
			if u.name == name.text[:letters] {
				size = u.size
			}
		}
		switch {
		case size == 0 && letters == 0 && name.text != "":
			return nil, name.refuse("%s", describe(name.text))
		case size == 0:
			return nil, name.refuse("a unit is missing or unknown: want d, h, m or s")
		case size < time.Second:
			nanoseconds += time.Duration(n%int64(time.Second/size)) * size
			seconds += n / int64(time.Second/size)
		default:
			seconds += n * int64(size/time.Second)
		}
		if seconds > maxInterval {
			return nil, whole.refuse("the interval is longer than the calendar, which ends with %d", lastYear)
		}
		rest = name.cut(letters)
	}
	seconds += int64(nanoseconds / time.Second)
	if err := checkSeconds(whole, seconds, nanoseconds%time.Second); err != nil {
		return nil, err
	}
	return every{paceOf(spec, z, unlimited), seconds}, nil
}

func checkSeconds(whole source, seconds int64, fraction time.Duration) *Error {
	switch {
	case fraction != 0:
		return whole.refuse("an interval has whole seconds")
	case seconds == 0:
		return whole.refuse("an interval is at least one second")
	}
	return nil
}
