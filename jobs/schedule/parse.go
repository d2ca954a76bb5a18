package schedule

import (
	"strings"
	"time"
)

// maxExpression bounds an expression, in bytes as written.
const maxExpression = 256

// blank holds the characters that may surround an expression and separate the
// fields of cron.
const blank = " \t"

// source is a part of an expression that remembers where it begins, so that
// errors can point into the whole.
type source struct {
	text   string
	offset int
}

func (s source) refuse(format string, args ...any) *Error {
	return refuse("expression", s.offset, format, args...)
}

// cut returns the part from byte i on.
func (s source) cut(i int) source { return source{s.text[i:], s.offset + i} }

// parseRule tells the ways of writing a schedule apart by their first letters:
// none of the others can begin a cron expression.
func parseRule(spec Spec, z *zone) (rule, *Error) {
	if len(spec.Expr) > maxExpression {
		return nil, refuse("expression", maxExpression, "it has %d bytes, at most %d are allowed", len(spec.Expr), maxExpression)
	}
	lead := len(spec.Expr) - len(strings.TrimLeft(spec.Expr, blank))
	whole := source{strings.Trim(spec.Expr, blank), lead}
	if whole.text == "" {
		return nil, refuse("expression", 0, "it is empty")
	}
	upper := strings.ToUpper(whole.text)
	oneWord := !strings.ContainsAny(whole.text, blank)
	switch {
	case strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ="):
		return nil, whole.refuse("the time zone is a property of the job, not part of the expression")
	case whole.text[0] == '@':
		return parseMacro(whole, spec, z)
	case strings.ContainsRune("PR", rune(whole.text[0])):
		return parseISO(whole, spec, z)
	case oneWord && looksLikeInstant(whole.text):
		return parseOnce(whole, z)
	case oneWord && looksLikeInterval(whole.text):
		return parseInterval(whole, spec, z)
	}
	return parseCron(whole, spec, z)
}

func looksLikeInstant(text string) bool {
	return len(text) > 4 && text[4] == '-' && strings.Trim(text[:4], "0123456789") == ""
}

// looksLikeInterval accepts what begins with a sign or a number and goes on
// with a unit, so that a lone "5" is answered as the cron that it resembles.
func looksLikeInterval(text string) bool {
	rest := strings.TrimLeft(strings.TrimLeft(text, "+-"), ".0123456789")
	return len(rest) < len(text) && rest != "" && strings.Contains("dhmsunw", rest[:1])
}

// macros lists the shorthands and what they stand for, and so what class they
// are: @daily is fixed-time, @hourly is flowing.
var macros = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

func parseMacro(whole source, spec Spec, z *zone) (rule, *Error) {
	end := strings.IndexAny(whole.text, blank)
	if end < 0 {
		end = len(whole.text)
	}
	name := strings.ToLower(whole.text[:end])
	if name == "@every" {
		rest := whole.cut(end)
		skip := len(rest.text) - len(strings.TrimLeft(rest.text, blank))
		return parseInterval(rest.cut(skip), spec, z)
	}
	expansion, ok := macros[name]
	if !ok {
		return nil, whole.refuse("%s is not a macro; there are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every", quote(whole.text[:end]))
	}
	if end < len(whole.text) {
		return nil, whole.cut(end).refuse("nothing may follow %s", name)
	}
	return parseCron(source{expansion, whole.offset}, spec, z)
}

// once is due at a single instant.
type once struct {
	at     time.Time
	offset int64 // of the zone from UTC at that instant
}

func parseOnce(whole source, z *zone) (rule, *Error) {
	var at time.Time
	// UnmarshalText is the strict reader of RFC 3339; time.Parse forgives much.
	if err := at.UnmarshalText([]byte(whole.text)); err != nil {
		return nil, whole.refuse("%s is not an RFC 3339 instant such as 2027-03-01T09:00:00Z", quote(whole.text))
	}
	if at.Unix() < firstSecond || at.Unix() >= endSecond {
		return nil, whole.refuse("it lies outside %d-%d", firstYear, lastYear)
	}
	return once{at.UTC(), z.local(at.Unix()) - at.Unix()}, nil
}

func (o once) next(after time.Time) (time.Time, bool) { return o.at, o.at.After(after) }

func (o once) warnings() []string { return nil }
