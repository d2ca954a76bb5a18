package schedule

import (
	"math"
	"math/bits"
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

	// The text and its key, from which the fields are read again when needed: words are rarely requested, and a million
	// schedules should not keep the fields for them.
	text source
	key  string
}

func parseCron(whole source, spec Spec, z *zone) (rule, *Error) {
	e, err := parseExpression(whole, spec.Key)
	if err != nil {
		return nil, err
	}
	return &cron{
		zone:    z,
		seconds: e.fields[0].set()[0],
		minutes: e.fields[1].set()[0],
		hours:   e.fields[2].set()[0],
		days:    compileDays(e.fields[3], e.fields[5]),
		months:  uint16(e.fields[4].set()[0] << 1),
		years:   e.fields[6].set(),
		policies: policies{
			flowing: !e.fields[1].plain() || !e.fields[2].plain(),
			gap:     spec.Gap,
			overlap: spec.Overlap,
		},
		text: whole,
		key:  spec.Key,
	}, nil
}

// expression reads the fields again.
func (c *cron) expression() *expression {
	e, err := parseExpression(c.text, c.key)
	if err != nil {
		panic("schedule: an expression was accepted once and is refused now: " + err.Error())
	}
	return e
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

func (c *cron) warnings(l language) []string { return c.expression().warnings(l) }
