package schedule

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// period is an ISO 8601 period with a calendar part. The k-th due time is the
// wall time of the anchor, moved on by k times the months (and held back to the
// end of a shorter month), then by k times the days; that wall time made an
// instant, after a gap and on the first pass of an overlap; and k times the
// seconds after that.
type period struct {
	pace
	zone         *zone
	months, days int64
	seconds      int64
	average      int64 // seconds, by the mean length of a month
}

func (p period) next(after time.Time) (time.Time, bool) {
	if !p.anchor.Before(latest) {
		return time.Time{}, false
	}
	// No due time is far from where the average has it, so guess and adjust.
	k := max(p.first, (after.Unix()-p.anchor.Unix())/p.average)
	k = min(k, p.last, endSecond/p.average+1)
	for k > p.first && p.at(k).After(after) {
		k--
	}
	for ; k <= p.last; k++ {
		due := p.at(k)
		if due.After(after) || due.Unix() >= endSecond {
			return limit(due)
		}
	}
	return time.Time{}, false
}

// at returns the k-th due time.
func (p period) at(k int64) time.Time {
	if k == 0 {
		return p.anchor // an instant was named, and its wall time may occur twice
	}
	return time.Unix(p.zone.resolve(p.local(k))+k*p.seconds, int64(p.anchor.Nanosecond())).UTC()
}

// local returns the wall time of the k-th due time before seconds are added, in
// local seconds; it may lie in a gap.
func (p period) local(k int64) int64 {
	local := p.anchor.Unix() + p.offset
	clock := local % daySeconds
	year, month, day := time.Unix(local, 0).UTC().Date()
	months := int64(year)*12 + int64(month) - 1 + k*p.months
	year, month = int(months/12), time.Month(months%12+1)
	day = min(day, monthLength(year, int(month)))
	midnight := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	return midnight + k*p.days*daySeconds + clock
}

func (p period) warnings(language) []string { return nil }

// isoUnits lists the parts of a period in the order they must come in: those of
// the date, and those of the time after T.
var isoUnits = [2][]struct {
	letter                byte
	months, days, seconds int64
}{
	{{'Y', 12, 0, 0}, {'M', 1, 0, 0}, {'W', 0, 7, 0}, {'D', 0, 1, 0}},
	{{'H', 0, 0, 3600}, {'M', 0, 0, 60}, {'S', 0, 0, 1}},
}

// parseISO reads "P1M", "P1DT1H20M10S", "R4/PT3S" and, without an end, "R/PT3S".
func parseISO(whole source, spec Spec, z *zone) (rule, *Error) {
	times, text := int64(unlimited), whole
	if whole.text[0] == 'R' {
		count, _, found := strings.Cut(whole.text[1:], "/")
		if !found {
			return nil, whole.refuse("a repeat is written R4/PT3S")
		}
		if count != "" {
			var err *Error
			if times, err = isoNumber(whole.cut(1), len(count)); err != nil {
				return nil, err
			}
			if times == 0 {
				return nil, whole.cut(1).refuse("it never fires: it repeats 0 times")
			}
		}
		text = whole.cut(len(count) + 2)
	}
	if whole.text[0] == 'R' && looksLikeInterval(text.text) {
		r, err := parseInterval(text, spec, z)
		if e, ok := r.(every); ok && err == nil {
			e.pace = paceOf(spec, z, times)
			return e, nil
		}
		return nil, err
	}
	if !strings.HasPrefix(text.text, "P") {
		return nil, text.refuse("an ISO 8601 period begins with P")
	}
	p := period{pace: paceOf(spec, z, times), zone: z}
	if err := p.parse(text); err != nil {
		return nil, err
	}
	if p.months == 0 && p.days == 0 {
		if err := checkSeconds(text, p.seconds, 0); err != nil {
			return nil, err
		}
		return every{p.pace, p.seconds}, nil
	}
	const meanMonth = 2629746 // seconds: a twelfth of 365.2425 days
	p.average = p.months*meanMonth + p.days*daySeconds + p.seconds
	if p.average > maxInterval {
		return nil, text.refuse("the period is longer than the calendar, which ends with %d", lastYear)
	}
	return p, nil
}

// parse adds up the parts after P.
func (p *period) parse(text source) *Error {
	rest, half, next := text.cut(1), 0, 0
	for parts := 0; rest.text != "" || parts == 0; parts++ {
		if half == 0 && strings.HasPrefix(rest.text, "T") {
			rest, half, next, parts = rest.cut(1), 1, 0, 0
		}
		digits := len(rest.text) - len(strings.TrimLeft(rest.text, "0123456789"))
		n, err := isoNumber(rest, digits)
		if err != nil {
			return err
		}
		letter := rest.cut(digits)
		if letter.text == "" {
			return letter.refuse("a number without a unit")
		}
		i := next
		for i < len(isoUnits[half]) && isoUnits[half][i].letter != letter.text[0] {
			i++
		}
		if i == len(isoUnits[half]) {
			return letter.refuse("%s; the order is PnYnMnWnDTnHnMnS, in whole numbers", describe(letter.text))
		}
		u := isoUnits[half][i]
		p.months += n * u.months
		p.days += n * u.days
		p.seconds += n * u.seconds
		rest, next = letter.cut(1), i+1
	}
	return nil
}

// isoNumber reads so many digits: at least one, and few enough that sums of
// them stay far from overflow.
func isoNumber(text source, digits int) (int64, *Error) {
	if digits == 0 {
		if text.text == "" {
			return 0, text.refuse("a number is missing")
		}
		return 0, text.refuse("%s where a number should be", describe(text.text))
	}
	n, err := strconv.ParseInt(text.text[:digits], 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > maxInterval:
		return 0, text.refuse("%s is too large", quoteNumber(text.text[:digits]))
	case err != nil || n < 0:
		return 0, text.refuse("%s is not a number", quote(text.text[:digits]))
	}
	return n, nil
}
