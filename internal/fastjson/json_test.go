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
