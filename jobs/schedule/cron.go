package schedule

import (
	"math"
	"math/bits"
	"strings"
	"time"
)

// cron is a compiled cron expression in its zone.
type cron struct {
	zone     *zone
	policies policies

	seconds, minutes, hours uint64 // bit n: the number n
	days                    dayRule
	months                  uint16 // bit n: month n
	years                   [4]uint64

	// What the words are made of.
	quartz  bool
	written int      // how many fields it was written with
	fields  []*field // all seven, second first
}

// parseCron reads 5, 6 or 7 fields. The leftmost error is the one reported,
// which reading from left to right gives by itself.
func parseCron(whole source, spec Spec, z *zone) (rule, *Error) {
	texts := split(whole)
	if err := checkCount(whole, texts); err != nil {
		return nil, err
	}
	c := &cron{zone: z, written: len(texts)}
	c.quartz = len(texts) == 7 || strings.Contains(whole.text, "?")
	week := crontabUnit
	if c.quartz {
		week = quartzUnit
	}
	units := []*unit{secondUnit, minuteUnit, hourUnit, dayUnit, monthUnit, week, yearUnit}
	if len(texts) == 5 {
		texts = append([]source{{"0", whole.offset}}, texts...)
	}
	if len(texts) == 6 {
		texts = append(texts, source{"*", whole.offset + len(whole.text)})
	}
	for i, u := range units {
		f, err := parseField(texts[i], u, spec.Key)
		if u == week {
			err = leftmost(c.checkDays(texts[3], texts[i]), err)
		}
		if err != nil {
			return nil, err
		}
		c.fields = append(c.fields, f)
	}
	c.compile(spec)
	return c, nil
}

// split cuts an expression at its blanks.
func split(whole source) (texts []source) {
	for rest := whole; rest.text != ""; {
		end := strings.IndexAny(rest.text, blank)
		if end < 0 {
			return append(texts, rest)
		}
		texts = append(texts, source{rest.text[:end], rest.offset})
		rest = rest.cut(end)
		rest = rest.cut(len(rest.text) - len(strings.TrimLeft(rest.text, blank)))
	}
	return texts
}

// checkCount refuses a wrong number of fields where the first field is missing
// or the first superfluous one begins, unless a character that no field may
// have comes before that.
func checkCount(whole source, texts []source) *Error {
	at := whole.offset + len(whole.text)
	switch {
	case len(texts) > 7:
		at = texts[7].offset
	case len(texts) >= 5:
		return nil
	}
	for i := range whole.text {
		if c := whole.text[i]; (c < ' ' && c != '\t' || c >= 0x7f) && whole.offset+i < at {
			return whole.cut(i).refuse("%s", describe(whole.text[i:]))
		}
	}
	return refuse("expression", at, "cron has 5, 6 or 7 fields, this has %d", len(texts))
}

// checkDays applies what a dialect says of the two day fields together.
func (c *cron) checkDays(month, week source) *Error {
	monthOpen := month.text == "*" || month.text == "?"
	weekOpen := week.text == "*" || week.text == "?"
	switch {
	case month.text == "?" && week.text == "?":
		return refuse("day-of-week", week.offset, "both day fields are ?")
	case c.quartz && !monthOpen && !weekOpen:
		return refuse("day-of-week", week.offset,
			"with ? or a year field, one of the two day fields must be ? or *")
	}
	return nil
}

// leftmost prefers the error of the text itself where both begin at one place.
func leftmost(rule, text *Error) *Error {
	if rule == nil || text != nil && text.Offset <= rule.Offset {
		return text
	}
	return rule
}

func (c *cron) compile(spec Spec) {
	c.seconds = c.fields[0].set()[0]
	c.minutes = c.fields[1].set()[0]
	c.hours = c.fields[2].set()[0]
	c.days = compileDays(c.fields[3], c.fields[5])
	c.months = uint16(c.fields[4].set()[0] << 1)
	c.years = c.fields[6].set()
	c.policies = policies{
		flowing: !c.fields[1].plain() || !c.fields[2].plain(),
		gap:     spec.Gap,
		overlap: spec.Overlap,
	}
}

// next walks the spans of the zone, and in each looks for the first match in
// the window of local time that the span answers for.
func (c *cron) next(after time.Time) (time.Time, bool) {
	spans := c.zone.spans
	unix := after.Unix() + 1
	i := c.zone.find(unix)
	from, high := c.zone.window(i, c.policies)
	if unix > spans[i].start {
		from = max(from, unix+spans[i].offset)
	}
	match := c.match(from)
	for {
		if match < high {
			return time.Unix(c.zone.instant(i, match), 0).UTC(), true
		}
		if i++; i == len(spans)-1 {
			return time.Time{}, false
		}
		var low int64
		low, high = c.zone.window(i, c.policies)
		// There is no match between from and match, so most spans of a rare
		// expression are passed over with this glance.
		if low < from || low > match {
			from, match = low, c.match(low)
		}
	}
}

// never is later than any local time.
const never = math.MaxInt64

// match returns the first match at or after the given local seconds, as if all
// wall times existed.
func (c *cron) match(local int64) int64 {
	local = max(local, firstSecond)
	if local >= endSecond {
		return never
	}
	midnight := local - local%daySeconds
	clock := int(local - midnight)
	date := time.Unix(local, 0).UTC()
	year, m, day := date.Date()
	month := int(m)
	for {
		// Each step down the calendar that skips something starts what is below
		// it afresh.
		if y := c.nextYear(year); y < 0 {
			return never
		} else if y > year {
			year, month, day, clock = y, 1, 1, 0
		}
		ahead := bits.TrailingZeros16(c.months >> month << month)
		if ahead > 12 {
			year, month, day, clock = year+1, 1, 1, 0
			continue
		}
		if ahead > month {
			month, day, clock = ahead, 1, 0
		}
		first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC).Unix() / daySeconds
		days := c.days.in(year, month, int(first+4)%7) >> day << day
		for ; days != 0; days &= days - 1 {
			if d := bits.TrailingZeros32(days); d > day {
				day, clock = d, 0
			}
			if at := c.nextClock(clock); at >= 0 {
				return (first+int64(day)-1)*daySeconds + int64(at)
			}
		}
		month, day, clock = month+1, 1, 0
	}
}

// nextYear returns the first year of the expression from this one on, or -1.
func (c *cron) nextYear(year int) int {
	n := year - firstYear
	for word := n / 64; word < len(c.years); word, n = word+1, 0 {
		if left := c.years[word] >> (n % 64) << (n % 64); left != 0 {
			return firstYear + word*64 + bits.TrailingZeros64(left)
		}
	}
	return -1
}

// nextClock returns the first time of day that matches from this one on, both
// in seconds since midnight, or -1.
func (c *cron) nextClock(clock int) int {
	h, m, s := clock/3600, clock/60%60, clock%60
	minute, second := bits.TrailingZeros64(c.minutes), bits.TrailingZeros64(c.seconds)
	if c.hours>>h&1 != 0 {
		if c.minutes>>m&1 != 0 {
			if left := c.seconds >> s; left != 0 {
				return clock + bits.TrailingZeros64(left)
			}
		}
		if left := c.minutes >> (m + 1); left != 0 {
			return h*3600 + (m+1+bits.TrailingZeros64(left))*60 + second
		}
	}
	if left := c.hours >> (h + 1); left != 0 {
		return (h+1+bits.TrailingZeros64(left))*3600 + minute*60 + second
	}
	return -1
}

// warnings points at a day of the week that reads differently in the other
// dialect that has a field for seconds.
func (c *cron) warnings() []string {
	if c.quartz || c.written != 6 || !c.fields[5].numbered {
		return nil
	}
	return []string{"day-of-week: in crontab, which this is, 1 is Monday; in Quartz, which writes ? in one day field, 1 is Sunday"}
}
