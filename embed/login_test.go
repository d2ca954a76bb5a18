package embed_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/ops"
)

// A person signs in through a proxy that passes another Host on than the browser has asked for.
func TestSignInBehindAProxy(t *testing.T) {
	o := newOffice(t, embed.Config{Tokens: true, Page: "http://jobs.example.com:8443"})
	_, token, err := o.Ops().Grant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewToken{Name: "admin", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]int{"http://jobs.example.com:8443": 303, "http://evil.example": 403} {
		r := httptest.NewRequest("POST", "http://jobs.example.com/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		if o.Handler().ServeHTTP(w, r); w.Code != want || len(w.Result().Cookies()) > 0 != (want == 303) {
			t.Errorf("from %s: %d, want %d, and %d cookies: %s", origin, w.Code, want, len(w.Result().Cookies()), w.Body)
		}
	}
}
