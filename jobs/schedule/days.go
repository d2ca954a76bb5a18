package schedule

import (
	"math/bits"
	"time"
)

// dayRule is what the two day fields ask of a month. Days of the month are bits
// 1-31, days of the week bits 0-6 from Sunday.
type dayRule struct {
	monthOpen, weekOpen bool

	dates       uint32   // plain days of the month
	beforeLast  uint32   // bit n: n days before the last one
	near        uint32   // bit n: the weekday nearest to day n
	lastWorkday bool     // LW
	weekdays    uint8    // every such day of the week
	lastOfWeek  uint8    // the last such day of the week
	nth         [6]uint8 // the k-th such day of the week
}

func compileDays(month, week *field) dayRule {
	r := dayRule{
		monthOpen: month.open(),
		weekOpen:  week.open(),
		dates:     uint32(month.set()[0] << 1),
		weekdays:  uint8(week.set()[0]),
	}
	for _, it := range month.items {
		switch it.kind {
		case lastDay:
			r.beforeLast |= 1 << it.from
		case nearWorkday:
			r.near |= 1 << it.from
		case lastWorkday:
			r.lastWorkday = true
		}
	}
	for _, it := range week.items {
		switch it.kind {
		case lastOfWeek:
			r.lastOfWeek |= 1 << it.from
		case nthOfWeek:
			r.nth[it.nth] |= 1 << it.from
		}
	}
	return r
}

// in returns the matching days of a month whose first day is the given day of
// the week. Where both fields restrict, a day that matches either counts;
// Quartz never gets that far.
func (r *dayRule) in(year, month, weekday int) uint32 {
	length := monthLength(year, month)
	all := uint32(1)<<(length+1) - 2
	switch {
	case r.monthOpen && r.weekOpen:
		return all
	case r.monthOpen:
		return r.inWeeks(weekday, length) & all
	case r.weekOpen:
		return r.inMonth(weekday, length) & all
	}
	return (r.inMonth(weekday, length) | r.inWeeks(weekday, length)) & all
}

func (r *dayRule) inMonth(weekday, length int) uint32 {
	days := r.dates
	for left := r.beforeLast; left != 0; left &= left - 1 {
		if day := length - bits.TrailingZeros32(left); day >= 1 {
			days |= 1 << day
		}
	}
	for left := r.near; left != 0; left &= left - 1 {
		if day := bits.TrailingZeros32(left); day <= length {
			days |= 1 << nearestWorkday(day, weekday, length)
		}
	}
	if r.lastWorkday {
		days |= 1 << nearestWorkday(length, weekday, length)
	}
	return days
}

// nearestWorkday stays inside the month: from a weekend at its edge it goes the
// longer way.
func nearestWorkday(day, weekday, length int) int {
	switch (weekday + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

func (r *dayRule) inWeeks(weekday, length int) uint32 {
	// Five weeks of seven days each, the first of which begins with day 1.
	const everyWeek = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28
	days := uint32(uint64(firstWeek(r.weekdays, weekday)) * everyWeek)
	if r.lastOfWeek != 0 {
		lastWeek := uint32(1)<<(length+1) - 1<<(length-6)
		days |= uint32(uint64(firstWeek(r.lastOfWeek, weekday))*everyWeek) & lastWeek
	}
	for k := 1; k < len(r.nth); k++ {
		if r.nth[k] != 0 {
			days |= uint32(uint64(firstWeek(r.nth[k], weekday)) << (7 * (k - 1)))
		}
	}
	return days
}

// firstWeek places days of the week on the days 1-7 of a month that begins with
// the given day of the week.
func firstWeek(days uint8, weekday int) uint32 {
	week := uint32(days)
	return (week>>weekday | week<<(7-weekday)) & 0x7f << 1
}

func monthLength(year, month int) int {
	switch time.Month(month) {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	}
	return 31
}
