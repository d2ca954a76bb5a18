package schedule

import (
	"strings"
	"testing"
	"time"
)

// FuzzParse: no text makes the parser panic, hang or answer out of order; what
// it refuses it points at; what it accepts it can say.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"* * * * *", "30 2 * * MON-FRI", "*/5 9-17 1,15,L-3,LW,15W JAN-MAR 5L,2#1", "0 0 0 ? * 2#1 2027-2029/2", "H H(0-5) H(1-28)/3 */2 *",
		"22-2 FRI-MON", "@daily", "@every 1d2h0m2s", "R4/PT3S", "P1Y2M3W4DT5H6M7S", "2027-03-01T09:00:00+01:00", "2h30m", "TZ=UTC * * * * *",
		"0 0 30 2 *", "?,? * * * ?", "5-1 /7 */0 ,, #", "\t5٣ *\x00", "99999999999999999999 * * * *", "PT", "R/", "@", "-1s",
	} {
		f.Add(seed, "", int64(1_700_000_000), uint8(0), "default/key")
		f.Add(seed, "Europe/Berlin", int64(0), uint8(7), "")
	}
	f.Fuzz(func(t *testing.T, expr, zone string, anchor int64, policy uint8, key string) {
		spec := Spec{
			Expr: expr, Zone: zone, Anchor: time.Unix(anchor, 0), Key: key,
			Gap: Gap(policy % 3), Overlap: Overlap(policy / 3 % 3),
		}
		s, err := Parse(spec)
		if err != nil {
			e, ok := err.(*Error)
			if !ok || e.Field == "" || e.Reason == "" || e.Offset < 0 || e.Offset > max(len(expr), len(zone)) || len(e.Error()) > 300 {
				t.Fatalf("%q: %#v", expr, err)
			}
			return
		}
		if strings.TrimSpace(s.Words()) == "" || s.WordsIn("zh") == "" {
			t.Fatalf("%q has no words", expr)
		}
		if _, err := Reopen(spec); err != nil {
			t.Fatalf("%q is accepted and not reopened: %v", expr, err)
		}
		after := spec.Anchor
		for range 4 {
			due, ok := s.Next(after)
			if !ok {
				break
			}
			if !due.After(after) || due.Unix() >= endSecond+2*daySeconds {
				t.Fatalf("%q after %v: %v", expr, after, due)
			}
			after = due
		}
	})
}
