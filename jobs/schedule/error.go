package schedule

import "fmt"

// Error is why a specification is refused, for an editor to point at: the field, the offset in its text, and the
// reason.
type Error struct {
	// Field is the part of the specification at fault: "expression", one of
	// the cron fields ("second", "minute", "hour", "day-of-month", "month",
	// "day-of-week", "year"), "zone", "start", "end", "due", "anchor", "gap" or
	// "overlap".
	Field string
	// Offset counts bytes from 0: into Spec.Zone for the field "zone", into
	// Spec.Expr for all that is written there, and 0 for the rest.
	Offset int
	// Reason is a phrase, without a full stop.
	Reason string
}

// Error returns text such as "day-of-month at 4: 32 is not within 1-31".
func (e *Error) Error() string {
	return fmt.Sprintf("%s at %d: %s", e.Field, e.Offset, e.Reason)
}

func refuse(field string, offset int, format string, args ...any) *Error {
	return &Error{Field: field, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// quote quotes a user's text, shortened so that an error stays short.
func quote(text string) string {
	const most = 24
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("%q", text)
}
