package natsbus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

// A client that lost its server tries again quickly while a leader is replaced, and never gives up more than that.
func TestReconnectDelay(t *testing.T) {
	for range 100 {
		var all time.Duration
		for n := range soonBack {
			all += reconnectDelay(n)
		}
		if all > time.Second {
			t.Errorf("the first %d attempts take %v", soonBack, all)
		}
		if late := reconnectDelay(1 << 20); late < 250*time.Millisecond || late > 750*time.Millisecond {
			t.Errorf("later there are %v between two", late)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct{ name, token string }{
		{"", "=none"},
		{"billing", "billing"},
		{"Billing-2_b", "Billing-2_b"},
		{"billing.eu", "billing=2Eeu"},
		{"a=b", "a=3Db"},
		{"=none", "=3Dnone"},
		{"*", "=2A"},
		{">", "=3E"},
		{"a b\t\r\n", "a=20b=09=0D=0A"},
		{"$SYS", "=24SYS"},
		{"a/b\\c@d", "a=2Fb=5Cc=40d"},
		{"jürgen", "j=C3=BCrgen"},
	} {
		if got := token(c.name); got != c.token {
			t.Errorf("token(%q) = %q, not %q", c.name, got, c.token)
		}
		if got, ok := name(c.token); !ok || got != c.name {
			t.Errorf("name(%q) = %q, %v, not %q", c.token, got, ok, c.name)
		}
	}
	for _, bad := range []string{"", "=", "=2", "a=2e", "a=4", "=41", "a=zz", "*", ">", "a b", "=none=none", "=2E="} {
		if got, ok := name(bad); ok {
			t.Errorf("name(%q) = %q; no name is written so", bad, got)
		}
	}
}

func TestWhoSpeaksIsInTheSubject(t *testing.T) {
	p := bus.Principal{Tenant: "acme.eu", Role: bus.Worker, Name: "w.1>*", App: "billing.eu"}
	if got, ok := callerOf(callSubject(p, bus.ServiceStore)); !ok || got != p {
		t.Errorf("%s was called by %+v, %v", callSubject(p, bus.ServiceStore), got, ok)
	}
	s := bus.Signal{Tenant: "default", Topic: bus.TopicCancel, To: "x.y", From: p}
	got, ok := signalOf(signalSubject(s))
	if !ok || got.Tenant != s.Tenant || got.Topic != s.Topic || got.To != s.To || got.From != p {
		t.Errorf("%s is %+v, %v", signalSubject(s), got, ok)
	}
	for _, bad := range []string{"", "call.a.b.c.d", "call.a.b.c.d.e.f", "call.a..c.d.e", "call.a.=b.c.d.e"} {
		if p, ok := callerOf(bad); ok {
			t.Errorf("%q was called by %+v", bad, p)
		}
	}
	for _, bad := range []string{"", "signal.a.b.c.d.e.f", "signal.a.b.c.d.e.f.g.h", "signal.a.b.=0.d.e.f.g", "signal.a.b.c.d.e.f.=4"} {
		if s, ok := signalOf(bad); ok {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}

// The table of a worker's permissions, in full: additions to it should be seen.
func TestAWorkersPermissions(t *testing.T) {
	got := Permissions(bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w.1"}, "billing.eu")
	want := Permission{
		Publish: Subjects{
			Allow: []string{
				"call.default.worker.w=2E1.billing=2Eeu.*",
				"signal.default.log.*.default.worker.w=2E1.billing=2Eeu",
				"answer.default.billing=2Eeu.w=2E1.*.*.*",
			},
			Deny: []string{"$SYS.>"},
		},
		Subscribe: Subjects{
			Allow: []string{"inbox.default.worker.w=2E1.billing=2Eeu.>", "signal.default.cancel.>", "signal.default.changed.>", "signal.default.live.>", "to.default.billing=2Eeu.w=2E1.*"},
			Deny:  []string{"$SYS.>"},
		},
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"publish", got.Publish.Allow, want.Publish.Allow},
		{"not publish", got.Publish.Deny, want.Publish.Deny},
		{"subscribe", got.Subscribe.Allow, want.Subscribe.Allow},
		{"not subscribe", got.Subscribe.Deny, want.Subscribe.Deny},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("may %s:\n%q\nshould be\n%q", c.what, c.got, c.want)
		}
	}
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"", "a", "a.b", "=none", "=2E", "\x00\xff", strings.Repeat(".", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w := token(s)
		if w == "" || strings.ContainsAny(w, ".*> \t\r\n/\\@") {
			t.Fatalf("token(%q) = %q", s, w)
		}
		if back, ok := name(w); !ok || back != s {
			t.Fatalf("token(%q) = %q, which is the name %q, %v", s, w, back, ok)
		}
		if n, ok := name(s); ok && token(n) != s {
			t.Fatalf("%q is the name %q, whose token is %q", s, n, token(n))
		}
	})
}
