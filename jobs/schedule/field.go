package schedule

import (
	"slices"
	"strings"
)

// unit describes one field of a cron expression: which numbers it is written
// with, and what they stand for.
type unit struct {
	name     string
	min, max int // as written
	size     int // how many different values; one less than written for 0-7
	base     int // what the first of them is called inside this package
	names    []string
	wraps    bool
}

var (
	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	dayNames   = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

	secondUnit  = &unit{name: "second", max: 59, size: 60, wraps: true}
	minuteUnit  = &unit{name: "minute", max: 59, size: 60, wraps: true}
	hourUnit    = &unit{name: "hour", max: 23, size: 24, wraps: true}
	dayUnit     = &unit{name: "day-of-month", min: 1, max: 31, size: 31, base: 1, wraps: true}
	monthUnit   = &unit{name: "month", min: 1, max: 12, size: 12, base: 1, names: monthNames, wraps: true}
	yearUnit    = &unit{name: "year", min: firstYear, max: lastYear, size: lastYear - firstYear + 1, base: firstYear}
	crontabUnit = &unit{name: "day-of-week", max: 7, size: 7, names: dayNames, wraps: true}
	quartzUnit  = &unit{name: "day-of-week", min: 1, max: 7, size: 7, names: dayNames, wraps: true}

	// hashDayUnit is what H may choose from in the day of the month: a day that
	// every month has.
	hashDayUnit = &unit{name: "day-of-month", min: 1, max: 28, size: 28, base: 1}
)

func (u *unit) isDayOfMonth() bool { return u == dayUnit }
func (u *unit) isDayOfWeek() bool  { return u == crontabUnit || u == quartzUnit }

// kind is the kind of an item.
type kind uint8

const (
	run         kind = iota // a number, a range, a step
	lastDay                 // L and L-n: n days before the last of the month
	lastWorkday             // LW
	nearWorkday             // nW
	lastOfWeek              // nL: the last such day of the week
	nthOfWeek               // n#k
)

// item is one element of a list. A run begins at the value from and takes
// every step-th of count values, around the end of the field if need be; the
// other kinds keep their number in from.
type item struct {
	kind        kind
	from        int
	count, step int
	nth         int // of nthOfWeek
	// What only the words and the class of the expression care for:
	whole   bool // the run is the whole field: "*", with or without a step
	stepped bool
	plain   bool // a single number, or H without a step
}

// each calls f with the values of a run.
func (it item) each(u *unit, f func(value int)) {
	for i := 0; i < it.count; i += it.step {
		f(u.base + (it.from-u.base+i)%u.size)
	}
}

// to is the last number of a run before any step is taken.
func (it item) to(u *unit) int { return u.base + (it.from-u.base+it.count-1)%u.size }

// lastOf is the last number that a run with a step takes.
func (it item) lastOf(u *unit) int {
	it.count -= (it.count - 1) % it.step
	return it.to(u)
}

// field is one field of a cron expression.
type field struct {
	unit  *unit
	text  string
	items []item
	// numbered is whether a plain number names a value, as in "1" or "5L": what
	// the two dialects read differently in the day of the week.
	numbered bool
}

// open is whether the field leaves everything open, judged by its text.
func (f *field) open() bool { return f.text == "*" || f.text == "?" }

// plain is whether the field is a number or a list of numbers, judged by its
// text.
func (f *field) plain() bool {
	return !slices.ContainsFunc(f.items, func(it item) bool { return !it.plain })
}

// set returns the values of all runs as bits, counted from the unit's base.
func (f *field) set() (bits [4]uint64) {
	for _, it := range f.items {
		if it.kind == run {
			it.each(f.unit, func(v int) {
				v -= f.unit.base
				bits[v/64] |= 1 << (v % 64)
			})
		}
	}
	return bits
}

// reader reads the text of one field from left to right.
type reader struct {
	source
	unit     *unit
	key      string // what H hashes
	pos      int
	numbered bool
}

func parseField(text source, u *unit, key string) (*field, *Error) {
	r := &reader{source: text, unit: u, key: key}
	f := &field{unit: u, text: text.text}
	if text.text == "?" && (u.isDayOfMonth() || u.isDayOfWeek()) {
		f.items = []item{r.everything()}
		return f, nil
	}
	for {
		it, err := r.item()
		if err != nil {
			return nil, err
		}
		f.items = append(f.items, it)
		if r.pos == len(r.text) {
			f.numbered = r.numbered
			return f, nil
		}
		if !r.take(',') {
			return nil, r.unexpected()
		}
	}
}

func (r *reader) item() (item, *Error) {
	u := r.unit
	switch c := r.peek(); {
	case c == '*' || c == '/':
		r.take('*')
		return r.stepped(r.everything())
	case c == 'H':
		return r.hashed()
	case c == 'L' && u.isDayOfMonth():
		return r.last()
	case c == 'L' && u.isDayOfWeek():
		return item{}, r.refuse(r.pos, "a bare L names no day of the week; write SATL for the last Saturday of the month")
	}
	start := r.pos
	from, err := r.value(u)
	if err != nil {
		return item{}, err
	}
	single := item{from: r.inside(from), count: 1, step: 1, plain: true}
	switch c := r.peek(); {
	case c == 'W' && u.isDayOfMonth():
		r.pos++
		return item{kind: nearWorkday, from: single.from}, nil
	case c == 'L' && u.isDayOfWeek():
		r.pos++
		return item{kind: lastOfWeek, from: single.from}, nil
	case c == '#' && u.isDayOfWeek():
		r.pos++
		k, err := r.number(1, 5)
		return item{kind: nthOfWeek, from: single.from, nth: k}, err
	case c == '/':
		// To the end of the field, where 0-7 ends with Saturday.
		single.count = u.size - (single.from - u.base)
		return r.stepped(single)
	case c == '-':
		r.pos++
		to, err := r.value(u)
		if err != nil {
			return item{}, err
		}
		it, err := r.between(u, start, from, to)
		if err != nil {
			return item{}, err
		}
		return r.stepped(it)
	}
	return single, nil
}

// inside turns a number as written into a value of the field.
func (r *reader) inside(written int) int {
	return r.unit.base + (written-r.unit.min)%r.unit.size
}

func (r *reader) everything() item {
	return item{from: r.unit.base, count: r.unit.size, step: 1, whole: true}
}

// between is the run from one written number to another.
func (r *reader) between(u *unit, start, from, to int) (item, *Error) {
	if from <= to {
		return item{from: r.inside(from), count: to - from + 1, step: 1}, nil
	}
	if !u.wraps {
		return item{}, r.refuse(start, "the range %d-%d runs backwards", from, to)
	}
	it := item{from: r.inside(from), step: 1}
	it.count = (r.inside(to)-it.from+u.size)%u.size + 1
	return it, nil
}

// stepped reads a step, if there is one, for the run before it.
func (r *reader) stepped(it item) (item, *Error) {
	if !r.take('/') {
		return it, nil
	}
	step, err := r.number(1, r.unit.size)
	it.step, it.stepped, it.plain = step, true, false
	return it, err
}

// last reads L, L-n or LW in the day of the month.
func (r *reader) last() (item, *Error) {
	r.pos++
	switch {
	case r.peek() == 'W':
		r.pos++
		return item{kind: lastWorkday}, nil
	case r.take('-'):
		n, err := r.number(1, 30)
		return item{kind: lastDay, from: n}, err
	}
	return item{kind: lastDay}, nil
}

// hashed reads H, H(a-b), H/n or H(a-b)/n. What comes out is an ordinary number
// or step: only where it begins is chosen by the key.
func (r *reader) hashed() (item, *Error) {
	u := r.unit
	if u == yearUnit {
		return item{}, r.refuse(r.pos, "H is not for years")
	}
	if u.isDayOfMonth() {
		u = hashDayUnit
	}
	r.pos++
	it := item{from: u.base, count: u.size, step: 1}
	if r.take('(') {
		start := r.pos
		from, err := r.value(u)
		if err != nil {
			return item{}, err
		}
		if !r.take('-') {
			return item{}, r.unexpected()
		}
		to, err := r.value(u)
		if err != nil {
			return item{}, err
		}
		if it, err = r.between(u, start, from, to); err != nil {
			return item{}, err
		}
		it.count = min(it.count, u.size) // 0-7 names Sunday twice
		if !r.take(')') {
			return item{}, r.unexpected()
		}
	}
	it, err := r.stepped(it)
	if err != nil {
		return item{}, err
	}
	choices := it.count
	if it.stepped {
		choices = min(choices, it.step)
	}
	skip := int(hash(r.key, u.name) % uint64(choices))
	it.from = u.base + (it.from-u.base+skip)%u.size
	it.count -= skip
	if !it.stepped {
		it.count, it.plain = 1, true
	}
	return it, nil
}

// value reads a number or a name, and returns the number as written.
func (r *reader) value(u *unit) (int, *Error) {
	if u.names != nil && isLetter(r.peek()) {
		end := min(r.pos+3, len(r.text))
		if i := slices.Index(u.names, strings.ToUpper(r.text[r.pos:end])); i >= 0 {
			r.pos = end
			return u.min + i, nil
		}
		return 0, r.refuse(r.pos, "%s is not one of %s", quote(r.word()), strings.Join(u.names, " "))
	}
	if !isDigit(r.peek()) {
		return 0, r.unexpected()
	}
	r.numbered = true
	return r.number(u.min, u.max)
}

// number reads digits, leading zeros and all.
func (r *reader) number(low, high int) (int, *Error) {
	start, n := r.pos, 0
	for isDigit(r.peek()) {
		n = min(n*10+int(r.peek()-'0'), 1_000_000) // too large is large enough
		r.pos++
	}
	if r.pos == start {
		return 0, r.unexpected()
	}
	if n < low || n > high {
		return 0, r.refuse(start, "%s is not within %d-%d", quoteNumber(r.text[start:r.pos]), low, high)
	}
	return n, nil
}

// peek returns the next character in upper case, 0 at the end.
func (r *reader) peek() byte {
	if r.pos == len(r.text) {
		return 0
	}
	if c := r.text[r.pos]; 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return r.text[r.pos]
}

// take skips the character if it is the next one.
func (r *reader) take(c byte) bool {
	if r.peek() != c || r.pos == len(r.text) {
		return false
	}
	r.pos++
	return true
}

func (r *reader) word() string {
	end := r.pos
	for end < len(r.text) && isLetter(r.text[end]&^0x20) {
		end++
	}
	return r.text[r.pos:end]
}

func (r *reader) refuse(pos int, format string, args ...any) *Error {
	return refuse(r.unit.name, r.offset+pos, format, args...)
}

func (r *reader) unexpected() *Error {
	if r.pos == len(r.text) || r.text[r.pos] == ',' {
		if r.pos == 0 || r.text[r.pos-1] == ',' {
			return r.refuse(r.pos, "an item of the list is empty")
		}
		return r.refuse(r.pos, "something is missing after %s", quote(r.text[:r.pos]))
	}
	if r.text[r.pos] == '?' {
		return r.refuse(r.pos, "? must be the only value of its field, a day field")
	}
	return r.refuse(r.pos, "%s", describe(r.text[r.pos:]))
}

// describe describes the first character of an invalid text.
func describe(text string) string {
	switch c := text[0]; {
	case c >= 0x80:
		return "a character outside ASCII"
	case c < ' ' || c == 0x7f:
		return "a control character"
	default:
		return "unexpected " + quote(text)
	}
}

func quoteNumber(digits string) string {
	if len(digits) > 12 {
		return digits[:12] + "..."
	}
	return digits
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'A' <= c && c <= 'Z' }
