package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
)

// A form is accepted from pages of the host that it is sent to, and from the URL of the pages: a proxy may change Host,
// and browsers send no Sec-Fetch-Site without TLS.
func TestOriginOfPages(t *testing.T) {
	const page = "http://jobs.example.com:8443"
	for _, c := range []struct {
		name, page, host, origin, site string
		want                           int
	}{
		{"the proxy drops the port", page, "jobs.example.com", page, "", 200},
		{"the proxy names the server", page + "/", "127.0.0.1:8080", page, "", 200},
		{"the URL has a path", page + "/jobs", "127.0.0.1:8080", page, "", 200},
		{"an old browser over TLS", "https://jobs.example.com:8443", "jobs.example.com", "https://jobs.example.com:8443", "", 200},
		{"no URL, the same host", "", "127.0.0.1:8080", "http://127.0.0.1:8080", "", 200},
		{"no browser", page, "jobs.example.com", "", "", 200},
		{"no URL, another port", "", "jobs.example.com", page, "", 403},
		{"another port of the host", page, "127.0.0.1:8080", "http://jobs.example.com:9999", "", 403},
		{"another scheme", page, "127.0.0.1:8080", "https://jobs.example.com:8443", "", 403},
		{"a stranger", page, "jobs.example.com", "https://evil.example", "", 403},
		{"a stranger that names itself", page, "jobs.example.com", "https://evil.example", "cross-site", 403},
		{"a sandbox", page, "jobs.example.com", "null", "", 403},
		{"no scheme", "jobs.example.com", "127.0.0.1:8080", "http://jobs.example.com", "", 403},
	} {
		handler := api.Guard(newLog(io.Discard), c.page, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest("POST", "http://"+c.host+"/login", nil)
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
	}
}
