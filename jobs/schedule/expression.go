package schedule

import "strings"

// expression is a cron expression as it is written.
type expression struct {
	quartz  bool     // the dialect; the other one is crontab
	written int      // how many fields it was written with
	fields  []*field // all seven, second first
}

// parseExpression reads 5, 6 or 7 fields. The leftmost error is the one
// reported, which reading from left to right gives by itself.
func parseExpression(whole source, key string) (*expression, *Error) {
	texts := split(whole)
	if err := checkCount(whole, texts); err != nil {
		return nil, err
	}
	e := &expression{written: len(texts)}
	e.quartz = len(texts) == 7 || strings.Contains(whole.text, "?")
	week := crontabUnit
	if e.quartz {
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
		f, err := parseField(texts[i], u, key)
		if u == week {
			err = leftmost(e.checkDays(texts[3], texts[i]), err)
		}
		if err != nil {
			return nil, err
		}
		e.fields = append(e.fields, f)
	}
	return e, nil
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

// checkDays applies a dialect's rules for both day fields.
func (e *expression) checkDays(month, week source) *Error {
	monthOpen := month.text == "*" || month.text == "?"
	weekOpen := week.text == "*" || week.text == "?"
	switch {
	case month.text == "?" && week.text == "?":
		return refuse("day-of-week", week.offset, "both day fields are ?")
	case e.quartz && !monthOpen && !weekOpen:
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

// warnings points at a day of the week that reads differently in the other
// dialect that has a field for seconds.
func (e *expression) warnings(l language) []string {
	if e.quartz || e.written != 6 || !e.fields[5].numbered {
		return nil
	}
	return []string{l.dialects()}
}
