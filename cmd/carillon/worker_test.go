package main

import "testing"

// A worker program is of the tenant of its token.
func TestTenantOfTheWorker(t *testing.T) {
	const token = "carillon_acme_abcdefgh_SECRET"
	for _, c := range []struct{ token, address, want string }{
		{token, "nats://127.0.0.1:4222", "acme"}, {"", "nats://" + token + "@127.0.0.1:4222", "acme"},
		{"", "nats://127.0.0.1:4222", ""}, {"", "nats://ann:word@127.0.0.1:4222", ""}, {"else", "%%", ""},
	} {
		if got := tenantOf(c.token, c.address); string(got) != c.want {
			t.Errorf("%q and %q: %q, want %q", c.token, c.address, got, c.want)
		}
	}
}
