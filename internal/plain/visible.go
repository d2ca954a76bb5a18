package plain

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
)

// Visible writes invisible characters that act on terminals and pages as escapes: control characters, and those without
// a width, such as marks of writing direction. All text of callers is shown through it; line breaks and tabs stay.
func Visible(s string) string {
	if strings.IndexFunc(s, acts) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case !acts(r):
			out.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	return out.String()
}

// Seen reports whether Visible would change nothing.
func Seen(text []byte) bool { return bytes.IndexFunc(text, acts) < 0 }

func acts(r rune) bool {
	switch r {
	case '\t', '\n':
		return false
	case '\u2028', '\u2029': // lines and paragraphs of their own
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
