package plain

import "testing"

func TestVisible(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain, é 漢字 🔔\n\tx", "plain, é 漢字 🔔\n\tx"},
		{"a\x1b[2Jb\r\x00\x7f", `a\x1b[2Jb\x0d\x00\x7f`},
		{"pay\u202egnp.exe", `pay\u202egnp.exe`}, {"\u2066a\u2069", `\u2066a\u2069`}, {"a\u200bb\u200d\ufeff\u00ad", `a\u200bb\u200d\ufeff\u00ad`},
		{"\u009b31m", `\u009b31m`}, {"a\u2028b", `a\u2028b`}, {"\U000e0041", `\U000e0041`}, {"", ""},
	} {
		if got := Visible(c.in); got != c.want || Seen([]byte(c.in)) != (c.in == c.want) {
			t.Errorf("Visible(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
