package schedule

import (
	"testing"
	"time"
)

// at reads an instant in RFC 3339.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant.UTC()
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		after string
		want  []string
	}{
		{Spec{Expr: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{Spec{Expr: "30 2 * * *", Zone: "Europe/Berlin"}, "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{Spec{Expr: "*/30 * * * *", Zone: "America/New_York"}, "2026-03-08T06:30:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-08T07:30:00Z"}},
		{Spec{Expr: "0 0 * * *", Zone: "America/Sao_Paulo"}, "2018-11-04T00:00:00Z",
			[]string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		{Spec{Expr: "0 0 0 29 2 ?"}, "2026-11-01T00:00:00Z",
			[]string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		{Spec{Expr: "@every 90s"}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-01T00:01:30Z", "2026-11-01T00:03:00Z"}},
		{Spec{Expr: "1d2h0m2s"}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-02T02:00:02Z"}},
		{Spec{Expr: "R2/PT3S"}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-01T00:00:03Z", "2026-11-01T00:00:06Z", ""}},
		{Spec{Expr: "P1M"}, "2026-01-31T10:00:00Z",
			[]string{"2026-02-28T10:00:00Z", "2026-03-31T10:00:00Z", "2026-04-30T10:00:00Z"}},
		{Spec{Expr: "2026-11-02T00:00:00+01:00"}, "2026-11-01T00:00:00Z",
			[]string{"2026-11-01T23:00:00Z", ""}},
	} {
		after := at(t, c.after)
		c.spec.Anchor = after
		s, err := Parse(c.spec)
		if err != nil {
			t.Errorf("%q: %v", c.spec.Expr, err)
			continue
		}
		for _, want := range c.want {
			got, ok := s.Next(after)
			if !ok && want == "" {
				break
			}
			if !ok || got != at(t, want) {
				t.Errorf("%q after %v: got %v %v, want %v", c.spec.Expr, after, got, ok, want)
				break
			}
			after = got
		}
	}
}
