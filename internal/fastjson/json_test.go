package fastjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// What is taken for an object is one, and what is one is taken for it.
func FuzzPlainObject(f *testing.F) {
	for _, s := range []string{
		``, ` `, `{`, `{}`, " {\t}\r\n", `{}x`, `{} {}`, `[]`, `1`, `"a"`, `null`,
		`{"a":1}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" : 1 , "b":[ ]}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":[1,]}`, `{"a":[1}`, `{"a":{]}`,
		`{"a":-0}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1.5e+10}`, `{"a":1E}`, `{"a":1e308}`, `{"a":1e309}`, `{"a":[-1e400]}`, `{"a":1e-400}`, `{"a":0e400}`, `{"a":"1e400"}`, `{"a":` + strings.Repeat("9", 400) + `}`, `{"a":1e-}`, `{"a":0e0}`, `{"a":00}`, `{"a":+1}`,
		`{"a":tru}`, `{"a":true}`, `{"a":falsey}`, `{"a":null}`, `{"a":NaN}`,
		`{"a":"\u00fF\n\/"}`, `{"a":"\u00f"}`, `{"a":"\x"}`, `{"a":"\`, "{\"a\":\"\x1f\"}", "{\"a\":\"\xff\x7f\"}", `{"a":"`,
		strings.Repeat(`{"a":`, 63) + `{}` + strings.Repeat(`}`, 63), strings.Repeat(`{"a":`, 64) + `{}` + strings.Repeat(`}`, 64),
		`{"a":` + strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63) + `}`, `{"a":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		trimmed := bytes.TrimLeft(b, " \t\r\n")
		want := json.Valid(b) && trimmed[0] == '{' && levels(b) <= MaxLevels && Overflowing(b) == ""
		if got := Object(b); got != want {
			t.Errorf("%q: %t, want %t", b, got, want)
		}
	})
}

// levels is how deep valid JSON is nested.
func levels(b []byte) (deepest int) {
	depth := 0
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// What is shown is indented, unless the blanks of many levels would make it much larger.
func TestIndentedIsBounded(t *testing.T) {
	for _, c := range []struct{ from, want string }{
		{`{"a":[1,{}],"b":"[,{"}`, "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"[,{\"\n}"}, {`"x"`, `"x"`}, {"[ ]", "[]"},
	} {
		if got, err := Indented([]byte(c.from)); err != nil || string(got) != c.want {
			t.Errorf("%s becomes %s (%v), want %s", c.from, got, err, c.want)
		}
	}
	if _, err := Indented([]byte("[1")); err == nil {
		t.Error("half a list is indented")
	}
	for what, b := range map[string]string{
		"brackets":       strings.Repeat("[", 9900) + strings.Repeat("]", 9900),
		"a deep list":    strings.Repeat("[", 64) + strings.Repeat("1,", 32<<10) + "1" + strings.Repeat("]", 64),
		"a list":         "[" + strings.Repeat("1,", 32<<10) + "1]",
		"text of a list": `"` + strings.Repeat("[", 60<<10) + `"`,
	} {
		got, err := Indented([]byte(b))
		if err != nil || len(got) > 2<<20+9*len(b) {
			t.Errorf("%s of %d bytes becomes %d bytes (%v)", what, len(b), len(got), err)
		}
		if lines := strings.Count(string(got), "\n"); lines > 0 != (what == "a list") {
			t.Errorf("%s has %d lines", what, lines)
		}
	}
}
