package plain

import (
	"strings"
	"testing"
)

// What a program reports becomes a text that every store can hold, whatever its bytes are and wherever it is cut.
func TestShort(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"a€🔔", 7, "a€"}, {"a\xffb", 10, "a\uFFFDb"}, {"\xff\xff\xff", 3, "\uFFFD"}, {"", 0, ""},
		{"a\x00b", 9, "a\uFFFDb"}, {"\x00\x00", 5, "\uFFFD"}, {"\x1b[2J", 9, "\x1b[2J"}, {"é" + strings.Repeat("\x80", 9), 5, "é\uFFFD"}, {strings.Repeat("é", 9), 5, "éé"},
	} {
		got := Short(c.in, c.n)
		if got != c.want {
			t.Errorf("Short(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
		if !Is(got) {
			t.Errorf("Short(%q, %d) = %q, which is no text", c.in, c.n, got)
		}
	}
}
