package cli

import "testing"

// &, < and > are shown as they are, and other escapes stay: the text is still the same JSON.
func TestUnescaped(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":"x \u0026\u0026 y \u003e z \u003C q"}`: `{"a":"x && y > z < q"}`,
		`"a backslash, then text: \\u0026"`:          `"a backslash, then text: \\u0026"`,
		`"\\\u0026 \u0000 \u2028 \" \n"`:             `"\\& \u0000 \u2028 \" \n"`,
	} {
		if got := unescaped([]byte(raw)); got != want {
			t.Errorf("%s became %s, want %s", raw, got, want)
		}
		if got := compact([]byte(raw)); got != want {
			t.Errorf("compact: %s became %s, want %s", raw, got, want)
		}
	}
	a := &asker{format: "json"}
	if got, _ := a.form(view{raw: []byte(`"a \u0026 b"`)}); got != "\"a & b\"\n" {
		t.Errorf("-o json has %s", got)
	}
}

// What a server sends cannot steer the terminal or hide: neither in a table nor in a remark. Colours stay.
func TestServersTextsAreVisible(t *testing.T) {
	for _, colour := range []bool{false, true} {
		p := &page{colour: colour}
		p.line("%s %s", p.paint(faint, "now"), "a\u202eb\x1b]0;title\x07")
		want := "now " + `a\u202eb\x1b]0;title\x07` + "\n"
		if colour {
			want = "\x1b[2mnow\x1b[0m " + `a\u202eb\x1b]0;title\x07` + "\n"
		}
		if got := p.shown(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
