package schedule

import "testing"

func TestWords(t *testing.T) {
	anchor := at(t, "2026-11-01T00:00:00Z")
	for _, e := range []string{"*/5 9-17 * * 1-5", "30 2 * * *", "0 0 1,15,L * *", "0 0 13 * 5", "0 30 9 ? * 2#1 2027-2029", "* * * * * *", "30 * * * * *", "*/10 5 */2 L-3,LW,15W JAN,MAR-MAY *", "*/7 * * * *", "0 */3 * * */2", "0 9,12,18 * * FRIL,7#3", "@hourly", "@every 90s", "R4/PT3S", "P1Y2M3DT4H", "P2W", "2026-12-01T00:00:00Z", "5/20 3-9/2 * */3 *", "H H(0-5) * * *", "5 * 10-20/3 * *"} {
		s, err := Parse(Spec{Expr: e, Zone: "Europe/Berlin", Anchor: anchor})
		if err != nil {
			t.Error(e, err)
			continue
		}
		t.Log(e, "|", s.Words(), "|", s.WordsIn("zh-CN"))
	}
}
