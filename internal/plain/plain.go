// Package plain has the checks and cuts of texts that jobs, jobs/schedule and internal/kernel share. It is not
// promised.
package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut returns the first n bytes of s at most, without half a character at the end.
func Cut(s string, n int) string {
	for n > 0 && n < len(s) && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:min(n, len(s))]
}

// Is reports whether every store can hold s: valid UTF-8 without NUL.
func Is(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Readable makes a text of what a program reports, such as an error or a line of output: what no store can hold becomes
// U+FFFD. A report is not refused for its text; see Is for what a caller asks for.
func Readable(s string) string {
	if Is(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Short returns the first n bytes of Readable at most, in memory of their own.
func Short(s string, n int) string {
	if len(s) > n+utf8.UTFMax { // what is cut off here would not be returned
		s = strings.Clone(s[:n+utf8.UTFMax])
	}
	return Cut(Readable(s), n)
}

// MaxCode is the size of an error code in bytes.
const MaxCode = 64

// Code makes an error code of any text: control characters are dropped, and it is cut at MaxCode.
func Code(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
	return Cut(s, MaxCode)
}

// Name reports what is wrong with a name of at most most characters, or nil. Names end up in subjects and paths.
func Name(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty: give 1 to %d characters of A-Z a-z 0-9 . _ -", what, most)
	case len(s) > most:
		return fmt.Errorf("%s has %d characters, at most %d are allowed", what, len(s), most)
	case s[0] == '.':
		return fmt.Errorf("%s %q begins with a dot", what, s)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		case c == '.':
			if s[i-1] == '.' {
				return fmt.Errorf("%s %q has two dots in a row at byte %d", what, s, i)
			}
		default:
			return fmt.Errorf("%s %q has a character that is not one of A-Z a-z 0-9 . _ - at byte %d", what, s, i)
		}
	}
	return nil
}

// AfterEndSuffix is the end of a schedule that counts from the end of the last run.
const AfterEndSuffix = " after end"

// AfterEnd reports whether a schedule counts from the end of the last run ("@every 5m after end"), and returns it
// without that suffix.
func AfterEnd(schedule string) (rest string, is bool) {
	return strings.CutSuffix(strings.TrimRight(schedule, " \t"), AfterEndSuffix)
}
