package webhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/webhook"
)

// Only a fresh signature of this body with this secret is accepted.
func TestVerify(t *testing.T) {
	at, secret, body := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), []byte("sixteen bytes it has"), []byte(`{"id":"1"}`)
	good := webhook.Sign(secret, at, body)
	for _, c := range []struct {
		name, header string
		secret, body string
		after        time.Duration
		want         string // "" = accepted
	}{
		{"fresh", good, string(secret), string(body), time.Minute, ""},
		{"old", good, string(secret), string(body), webhook.Tolerance + time.Second, "expired"},
		{"ahead", good, string(secret), string(body), -webhook.Tolerance - time.Second, "expired"},
		{"another body", good, string(secret), "{}", 0, "invalid"},
		{"another secret", good, "another secret of it", string(body), 0, "invalid"},
		{"another time", strings.Replace(good, "t=1", "t=2", 1), string(secret), string(body), 0, "invalid"},
		{"none", "", string(secret), string(body), 0, "missing"},
		{"cut", good[:len(good)-2], string(secret), string(body), 0, "invalid"},
		{"no hex", "t=1,v1=zz", string(secret), string(body), 0, "invalid"},
	} {
		err := webhook.Verify([]byte(c.secret), c.header, []byte(c.body), at.Add(c.after))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
