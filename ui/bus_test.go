package ui

import (
	"net/http/httptest"
	"testing"
)

func TestBusAddress(t *testing.T) {
	r := httptest.NewRequest("GET", "http://jobs.example:8080/", nil)
	for _, c := range []struct {
		bus  string
		open bool
		want string
	}{
		{"", true, "nats://127.0.0.1:4222"},
		{"", false, "tls://jobs.example:4222?token-file=w"},
		{"nats://127.0.0.1:14222", true, "nats://127.0.0.1:14222"},
		{"tls://0.0.0.0:4333", false, "tls://jobs.example:4333?token-file=w"},
		{"nats://[::]:4333", true, "nats://jobs.example:4333"},
		{"tls://a.example:4222,tls://b.example:4222", false, "tls://a.example:4222?token-file=w"},
		{"nats://shop:s3cret@a.example:4222?token-file=/run/secret", false, "nats://a.example:4222?token-file=w"},
		{"an address that is not understood", true, "nats://127.0.0.1:4222"},
	} {
		u := &UI{bus: c.bus, open: c.open}
		if got := u.busAddress(r, "w"); got != c.want {
			t.Errorf("%s, open %v: %s, want %s", c.bus, c.open, got, c.want)
		}
	}
}
