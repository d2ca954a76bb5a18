package schedule

import (
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
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
	if rest, is := plain.AfterEnd(whole.text); is {
		whole.text = strings.TrimRight(rest, blank)
		if !countable(whole.text) {
			return nil, whole.refuse("only an interval such as 5m or PT5M can count from the end of a run")
		}
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
	case looksLikeInstant(whole.text):
		return parseOnce(whole, z)
	case oneWord && looksLikeInterval(whole.text):
		return parseInterval(whole, spec, z)
	}
	return parseCron(whole, spec, z)
}

// countable reports whether text looks like an interval without a number of times, from its start.
func countable(text string) bool {
	return strings.HasPrefix(text, "P") || strings.HasPrefix(strings.ToLower(text), "@every") ||
		!strings.ContainsAny(text, blank) && looksLikeInterval(text)
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
		return nil, whole.refuse("unknown macro %s: want @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every", quote(whole.text[:end]))
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
	at, err := parseInstant(whole, z)
	if err != nil {
		return nil, err
	}
	return once{at, z.local(at.Unix()) - at.Unix()}, nil
}

// wallLayouts are the ways of writing an instant on the clocks of a zone.
var wallLayouts = []string{"2006-1-2 15:4:5", "2006-1-2T15:4:5", "2006-1-2 15:4", "2006-1-2T15:4"}

// parseInstant reads an instant with its offset from UTC, or a time on the
// clocks of the zone: after a gap, and on the first pass of an overlap.
func parseInstant(whole source, z *zone) (at time.Time, _ *Error) {
	err := at.UnmarshalText([]byte(whole.text))
	if err != nil {
		if day, clock, ok := strings.Cut(whole.text, " "); ok { // RFC 3339 with a space
			err = at.UnmarshalText([]byte(day + "T" + strings.TrimLeft(clock, " ")))
		}
	}
	for _, layout := range wallLayouts {
		if err == nil {
			break
		}
		var wall time.Time
		if wall, err = time.Parse(layout, whole.text); err == nil {
			if wall.Unix() < firstSecond || wall.Unix() >= endSecond {
				return at, whole.refuse("it lies outside %d-%d", firstYear, lastYear)
			}
			at = time.Unix(z.resolve(wall.Unix()), int64(wall.Nanosecond()))
		}
	}
	if err != nil {
		return at, whole.refuse("%s is neither an RFC 3339 instant such as 2027-03-01T09:00:00Z nor a time such as 2027-03-01 09:00:00", quote(whole.text))
	}
	if at.Unix() < firstSecond || at.Unix() >= endSecond {
		return at, whole.refuse("it lies outside %d-%d", firstYear, lastYear)
	}
	return at.UTC(), nil
}

func (o once) next(after time.Time) (time.Time, bool) { return o.at, o.at.After(after) }

func (o once) warnings(language) []string { return nil }
