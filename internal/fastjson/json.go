package fastjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"
)

// MaxLevels is how deep arguments may be nested.
const MaxLevels = 64

// Value reports whether b is sound JSON of at most so many levels; Fault has why not.
func Value(b []byte, levels int) bool {
	p := value(b, blank(b, 0), levels)
	return p > 0 && blank(b, p) == len(b)
}

// Levels returns how deep JSON is nested. It need not be valid.
func Levels(b []byte) (deepest int) {
	for token, depth := range structure(b) {
		if token == '{' || token == '[' {
			deepest = max(deepest, depth)
		}
	}
	return deepest
}

// structure iterates over the brackets, braces and commas of JSON outside of its texts, with the number of levels that
// are open there.
func structure(b []byte) func(func(token byte, depth int) bool) {
	return func(yield func(byte, int) bool) {
		depth, inText := 0, false
		for i := 0; i < len(b); i++ {
			c := b[i]
			switch {
			case inText && c == '\\':
				i++
			case c == '"':
				inText = !inText
			case inText:
			case c == '{' || c == '[':
				depth++
				fallthrough
			case c == ',':
				if !yield(c, depth) {
					return
				}
			case c == '}' || c == ']':
				depth--
				if !yield(c, depth) {
					return
				}
			}
		}
	}
}

// Bulky reports whether indentation would make JSON grow by more than 1 MiB and eight times its size. Each value stands
// behind the blanks of all its levels, and so 40 KB of brackets can become 200 MB.
func Bulky(b []byte) bool {
	size := 0
	for _, depth := range structure(b) {
		size += 1 + 2*depth
	}
	return size > 1<<20+8*len(b)
}

// Indented returns JSON with two blanks a level for reading, or compact if it would be bulky.
func Indented(b []byte) ([]byte, error) {
	var out bytes.Buffer
	var err error
	if Bulky(b) {
		err = json.Compact(&out, b)
	} else {
		err = json.Indent(&out, b, "", "  ")
	}
	return out.Bytes(), err
}

// Object reports whether b is a sound JSON object of at most MaxLevels levels. Each run's arguments are checked several
// times, and Object takes a fifth of the time of package encoding/json, which calls a function for each byte.
func Object(b []byte) bool {
	p := blank(b, 0)
	if p == len(b) || b[p] != '{' {
		return false
	}
	p = value(b, p, MaxLevels)
	return p > 0 && blank(b, p) == len(b)
}

// The functions below return the end of what begins at p, or less than 0 if they cannot read it.

// blank returns the end of the white space at p, if any.
func blank(b []byte, p int) int {
	for p < len(b) && (b[p] == ' ' || b[p] == '\n' || b[p] == '\t' || b[p] == '\r') {
		p++
	}
	return p
}

func value(b []byte, p, levels int) int {
	if p >= len(b) {
		return -1
	}
	switch c := b[p]; {
	case c == '"':
		return quoted(b, p)
	case c == '{' || c == '[':
		return nested(b, p, levels)
	case c == '-' || c >= '0' && c <= '9':
		return numeral(b, p)
	case c == 't':
		return literal(b, p, "true")
	case c == 'f':
		return literal(b, p, "false")
	case c == 'n':
		return literal(b, p, "null")
	}
	return -1
}

// nested reads an object or an array.
func nested(b []byte, p, levels int) int {
	if levels == 0 {
		return -1
	}
	object, end := b[p] == '{', b[p]+2 // the closing characters stand two behind the opening ones
	var known keys
	p = blank(b, p+1)
	if p < len(b) && b[p] == end {
		return p + 1
	}
	for {
		if object {
			if p >= len(b) || b[p] != '"' {
				return -1
			}
			begin := p
			if p = quoted(b, p); p < 0 || !known.add(b, begin, p) {
				return -1
			}
			if p = blank(b, p); p >= len(b) || b[p] != ':' {
				return -1
			}
			p = blank(b, p+1)
		}
		if p = value(b, p, levels-1); p < 0 {
			return -1
		}
		if p = blank(b, p); p >= len(b) {
			return -1
		}
		switch b[p] {
		case end:
			return p + 1
		case ',':
			p = blank(b, p+1)
		default:
			return -1
		}
	}
}

func quoted(b []byte, p int) int {
	begin, most := p, byte(0)
	for p++; p < len(b); p++ {
		switch c := b[p]; {
		case c == '"':
			if most >= utf8.RuneSelf && !utf8.Valid(b[begin:p]) {
				return -1
			}
			return p + 1
		case c < ' ':
			return -1
		case c == '\\':
			if p = escape(b, p); p < 0 {
				return -1
			}
		default:
			most |= c
		}
	}
	return -1
}

// escape returns the last byte of the escape at p.
func escape(b []byte, p int) int {
	if p++; p >= len(b) {
		return -1
	}
	switch b[p] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return p
	}
	switch unit := codeUnit(b, p-1); {
	case unit <= 0, low(unit):
		return -1
	case high(unit):
		if !low(codeUnit(b, p+5)) {
			return -1
		}
		return p + 10
	}
	return p + 4
}

// codeUnit returns the UTF-16 code unit of the escape at p, such as \u00e9, or -1 if there is none.
func codeUnit(b []byte, p int) (unit int) {
	if p+6 > len(b) || b[p] != '\\' || b[p+1] != 'u' {
		return -1
	}
	for _, c := range b[p+2 : p+6] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			unit = unit<<4 | int(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return unit
}

// high and low report whether a code unit is the first or the second half of a surrogate pair.
func high(unit int) bool { return unit >= 0xd800 && unit < 0xdc00 }
func low(unit int) bool  { return unit >= 0xdc00 && unit < 0xe000 }

func numeral(b []byte, p int) int {
	end := numeralEnd(b, p)
	if end > p && mayOverflow(b[p:end]) && overflows(string(b[p:end])) {
		return -1
	}
	return end
}

// mayOverflow reports whether a float64 might not hold a number, from its spelling.
func mayOverflow(number []byte) bool {
	return len(number) > 300 || bytes.ContainsAny(number, "eE")
}

// overflows reports whether no float64 holds a number. Most languages, Go among them, read numbers as float64.
func overflows(number string) bool {
	_, err := strconv.ParseFloat(number, 64)
	return errors.Is(err, strconv.ErrRange)
}

func numeralEnd(b []byte, p int) int {
	if b[p] == '-' {
		p++
	}
	begin := p
	if p = digits(b, p); p < 0 || b[begin] == '0' && p > begin+1 {
		return -1
	}
	if p < len(b) && b[p] == '.' {
		if p = digits(b, p+1); p < 0 {
			return -1
		}
	}
	if p < len(b) && (b[p] == 'e' || b[p] == 'E') {
		if p++; p < len(b) && (b[p] == '+' || b[p] == '-') {
			p++
		}
		return digits(b, p)
	}
	return p
}

// digits reads one or more.
func digits(b []byte, p int) int {
	begin := p
	for p < len(b) && b[p] >= '0' && b[p] <= '9' {
		p++
	}
	if p == begin {
		return -1
	}
	return p
}

func literal(b []byte, p int, want string) int {
	if len(b)-p < len(want) || string(b[p:p+len(want)]) != want {
		return -1
	}
	return p + len(want)
}
