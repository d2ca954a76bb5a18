package fastjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// What is taken for a sound object is one, and what is one is taken for it. Fault gives a reason for all else.
func FuzzPlainObject(f *testing.F) {
	for _, s := range []string{
		``, ` `, `{`, `{}`, " {\t}\r\n", `{}x`, `{} {}`, `[]`, `1`, `"a"`, `null`,
		`{"a":1}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" : 1 , "b":[ ]}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":[1,]}`, `{"a":[1}`, `{"a":{]}`,
		`{"a":-0}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1.5e+10}`, `{"a":1E}`, `{"a":1e308}`, `{"a":1e309}`, `{"a":[-1e400]}`, `{"a":1e-400}`, `{"a":0e400}`, `{"a":"1e400"}`, `{"a":` + strings.Repeat("9", 400) + `}`, `{"a":1e-}`, `{"a":0e0}`, `{"a":00}`, `{"a":+1}`,
		`{"a":tru}`, `{"a":true}`, `{"a":falsey}`, `{"a":null}`, `{"a":NaN}`,
		`{"a":"\u00fF\n\/"}`, `{"a":"\u00f"}`, `{"a":"\x"}`, `{"a":"\`, "{\"a\":\"\x1f\"}", "{\"a\":\"\xff\x7f\"}", `{"a":"`,
		`{"a":1,"b":{"a":1},"a":2}`, `{"a":1,"\u0061":2}`, `{"a":["\ud83d\udd14","\\\ud83d"]}`, `{"\u0000":1}`, "{\"a\":\"\uFFFD\\ufffd\"}",
		strings.Repeat(`{"a":`, 63) + `{}` + strings.Repeat(`}`, 63), strings.Repeat(`{"a":`, 64) + `{}` + strings.Repeat(`}`, 64),
		`{"a":` + strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63) + `}`, `{"a":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := sound(b)
		if got := Value(b, MaxLevels); got != want {
			t.Errorf("%q: %t, want %t", b, got, want)
		}
		if why := Fault(b, MaxLevels); (why == "") != want {
			t.Errorf("%q: %q, want a fault: %t", b, why, !want)
		}
		if got := Object(b); got != (want && bytes.TrimLeft(b, " \t\r\n")[0] == '{') {
			t.Errorf("%q is an object: %t", b, got)
		}
	})
}

var replacement = regexp.MustCompile(`\\u[fF]{3}[dD]`)

// sound is Value by what package encoding/json reads.
func sound(b []byte) bool {
	if !json.Valid(b) || !utf8.Valid(b) || levels(b) > MaxLevels {
		return false
	}
	var keys []map[string]bool
	isKey, replaced := false, 0
	for d := decoder(b); ; {
		token, err := d.Token()
		if err != nil { // half a surrogate pair becomes a replacement character
			return replaced == strings.Count(string(b), "\uFFFD")+len(replacement.FindAll(bytes.ReplaceAll(b, []byte(`\\`), nil), -1))
		}
		top := len(keys) - 1
		switch v := token.(type) {
		case string:
			replaced += strings.Count(v, "\uFFFD")
			if strings.Contains(v, "\x00") || isKey && keys[top][v] {
				return false
			}
			if isKey {
				keys[top][v], isKey = true, false
				continue
			}
		case json.Number:
			if _, err := v.Float64(); err != nil {
				return false
			}
		case json.Delim:
			if v == '{' {
				keys, isKey = append(keys, map[string]bool{}), true
				continue
			}
			if v == '[' {
				keys, isKey = append(keys, nil), false
				continue
			}
			keys = keys[:top]
			top--
		}
		isKey = top >= 0 && keys[top] != nil
	}
}

// Each fault is named, wherever it is.
func TestFaults(t *testing.T) {
	many := func(last string) string {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `"k%d":0,`, i)
		}
		return "{" + b.String() + last + "}"
	}
	for _, c := range []struct{ value, want string }{
		{"{\"a\":\"\xff\"}", "not valid UTF-8"}, {"{\"\xc3\":1}", "not valid UTF-8"}, {"\"\xed\xa0\x80\"", "not valid UTF-8"},
		{`{"a":"\u0000"}`, "NUL"}, {`{"\u0000":1}`, "NUL"}, {`["\\\u0000"]`, "NUL"}, {`["\\u0000"]`, ""}, {"\"\x00\"", "not valid JSON"},
		{`"\ud83d\udd14"`, ""}, {`"\uD83D\uDD14"`, ""}, {`"\ud83d"`, "surrogate"}, {`"\udd14"`, "surrogate"}, {`"\ud83d\ud83d"`, "surrogate"},
		{`"\ud83d\u0041"`, "surrogate"}, {`"\ud83dx\udd14"`, "surrogate"}, {`{"\udd14":1}`, "surrogate"},
		{`{"a":1,"a":1}`, `the key "a" is repeated`}, {`{"a":1,"\u0061":1}`, `the key "a" is repeated`}, {`[{"x":{"é":1,"\u00e9":2}}]`, `the key "é" is repeated`},
		{`{"a":{"a":1},"b":{"a":1}}`, ""}, {`[{"a":1},{"a":1}]`, ""}, {`{"a":1,"A":1}`, ""}, {`{"":1,"":2}`, `the key "" is repeated`},
		{many(`"x":1`), ""}, {many(`"k0":1`), `the key "k0" is repeated`}, {many(`"k39":1`), `the key "k39" is repeated`}, {many(`"\u006b39":1`), `the key "k39" is repeated`},
		{`[1e400]`, "the number 1e400 exceeds"}, {`1e-400`, ""}, {`12345678901234567890`, ""},
		{"", "not valid JSON"}, {"{} {}", "not valid JSON"}, {"\ufeff{}", "not valid JSON"},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), "nested 65 levels deep, at most 64 are allowed"},
	} {
		if got := Fault([]byte(c.value), MaxLevels); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%.60q: %q, want %q", c.value, got, c.want)
		}
	}
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
