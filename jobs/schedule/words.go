package schedule

import (
	"strings"
	"time"
)

// Words describes the schedule in English: when, on which days, in which zone, within which limits.
func (s *Schedule) Words() string { return s.WordsIn("en") }

// WordsIn describes the schedule in a language: "en" or "zh". Variants such as "zh-Hans" or "en_GB" are accepted; other
// languages get English.
func (s *Schedule) WordsIn(lang string) string {
	l := languageOf(lang)
	var notes []string
	if c, ok := s.rule.(*cron); ok && !c.policies.flowing {
		notes = l.policies(s.spec.Gap, s.spec.Overlap)
	}
	return l.sentence(s.rule.say(l), bounds{
		zone:  s.zone.name,
		start: s.wall(s.spec.Start),
		end:   s.wall(s.spec.End),
		notes: notes,
	})
}

func languageOf(lang string) language {
	if lang, _, _ = strings.Cut(strings.ReplaceAll(lang, "_", "-"), "-"); strings.EqualFold(lang, "zh") {
		return chinese{}
	}
	return english{}
}

// language describes the parts of a schedule. Every method returns a phrase for sentence to join.
type language interface {
	cron(e *expression) string
	every(months, days, seconds int64) string
	counted(every string, times int64, anchor string, anchorIsFirst bool) string
	afterEnd(every string) string
	once(at string) string
	policies(gap Gap, overlap Overlap) []string
	// forward and back remark on a change of the clocks; back is about the first
	// or the second pass.
	forward(s skipped) string
	back(clock string, pass int) string
	// dialects warns that the two dialects number the days differently.
	dialects() string
	sentence(what string, b bounds) string
}

// bounds is the text around a rule; empty texts are left out.
type bounds struct {
	zone, start, end string
	notes            []string
}

func (c *cron) say(l language) string { return l.cron(c.expression()) }

func (e every) say(l language) string {
	if e.afterEnd {
		return l.afterEnd(l.every(0, 0, e.seconds))
	}
	return l.counted(l.every(0, 0, e.seconds), e.times(), wallTime(e.anchor.Unix()+e.offset), e.first == 0)
}

func (p period) say(l language) string {
	if p.afterEnd {
		return l.afterEnd(l.every(p.months, p.days, p.seconds))
	}
	return l.counted(l.every(p.months, p.days, p.seconds), p.times(), wallTime(p.anchor.Unix()+p.offset), p.first == 0)
}

func (o once) say(l language) string { return l.once(wallTime(o.at.Unix() + o.offset)) }

// wall formats an instant as the clocks of the zone show it.
func (s *Schedule) wall(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return wallTime(s.zone.local(at.Unix()))
}

func wallTime(local int64) string { return time.Unix(local, 0).UTC().Format("2006-01-02 15:04:05") }

// shape is the form of a field, for a language.
type shape uint8

const (
	each     shape = iota // every value
	stepping              // every n-th value, all around the clock
	listed                // anything else
)

func (f *field) shape() shape {
	if len(f.items) > 1 || !f.items[0].whole {
		return listed
	}
	switch step := f.items[0].step; {
	case step == 1:
		return each
	case f.unit.size%step == 0:
		return stepping
	}
	return listed
}

// isZero is whether the field is the plain number 0, which goes without saying
// for seconds.
func (f *field) isZero() bool {
	return len(f.items) == 1 && f.items[0].plain && f.items[0].from == 0
}

// values lists the numbers of a field in their order.
func (f *field) values() (list []int) {
	bits := f.set()
	for v := range f.unit.size {
		if bits[v/64]>>(v%64)&1 != 0 {
			list = append(list, f.unit.base+v)
		}
	}
	return list
}

// clocks writes the times of day out, if they are few and plainly written.
func (e *expression) clocks() []string {
	const few = 6
	second, minute, hour := e.fields[0], e.fields[1], e.fields[2]
	if !second.plain() || !minute.plain() || !hour.plain() {
		return nil
	}
	layout := "15:04:05"
	if second.isZero() {
		layout = "15:04"
	}
	var list []string
	for _, h := range hour.values() {
		for _, m := range minute.values() {
			for _, s := range second.values() {
				if len(list) == few {
					return nil
				}
				list = append(list, time.Date(1970, 1, 1, h, m, s, 0, time.UTC).Format(layout))
			}
		}
	}
	return list
}

// parts splits a duration into months and years, days and weeks, hours, minutes and seconds, largest first; zero parts
// are left out. The index names the unit: 0 year, 1 month, 2 week, 3 day, 4 hour, 5 minute, 6 second.
func parts(months, days, seconds int64, f func(index int, n int64)) {
	weeks := int64(0)
	if days%7 == 0 {
		weeks, days = days/7, 0
	}
	// A day by the clock is not a day by the calendar, so hours stay hours.
	for i, n := range [...]int64{months / 12, months % 12, weeks, days, seconds / 3600, seconds / 60 % 60, seconds % 60} {
		if n != 0 {
			f(i, n)
		}
	}
}
