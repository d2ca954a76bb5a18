package api

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"unicode/utf8"
)

// Whatever comes in, looking at it does not panic, and what is let through is one clean document.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":[1,{"b":null}]}`, `{"args":{"x":null}}`, `{"a":"\ud83d\udd14"}`, `{"a":"\ud83d"}`, `"\`, `{"a\u0000":1}`, `[[[`, `{"a":1,"a":2}`, "\xff"} {
		f.Add([]byte(seed))
	}
	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Content-Type", "application/json")
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkBody(r, body) == nil && (!json.Valid(body) || !utf8.Valid(body)) {
			t.Errorf("%q was let through", body)
		}
	})
}
