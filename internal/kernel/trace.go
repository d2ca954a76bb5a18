package kernel

import "strings"

// MaxTrace is the longest trace that a run carries.
const MaxTrace = 64

// checkTrace validates a W3C traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01. Later
// versions may be longer, up to MaxTrace. An empty one is valid.
func checkTrace(trace string) error {
	if trace == "" {
		return nil
	}
	hex := func(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
	nothing := func(s string) bool { return strings.Trim(s, "0") == "" }
	switch part := strings.SplitN(trace, "-", 5); {
	case len(trace) > MaxTrace, len(part) < 4, len(part[0]) != 2, len(part[1]) != 32, len(part[2]) != 16, len(part[3]) != 2,
		!hex(part[0]), !hex(part[1]), !hex(part[2]), !hex(part[3]), part[0] == "ff", part[0] == "00" && len(part) > 4,
		nothing(part[1]), nothing(part[2]):
		return Invalid("trace %.80q is not a W3C traceparent such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", trace)
	}
	return nil
}
