package schedule

import (
	"testing"
	"time"
)

func TestRemark(t *testing.T) {
	const (
		spring = "2026-03-29T00:00:00+01:00"
		autumn = "2026-10-25T00:00:00+02:00"
	)
	for _, c := range []struct {
		expr, zone string
		gap        Gap
		overlap    Overlap
		after      string
		due        string
		en, zh     string
	}{
		{"30 2 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "clocks go forward: 02:30 does not exist", "时钟拨快：02:30 不存在"},
		{"30 2 * * *", "Europe/Berlin", GapBefore, 0, spring, "2026-03-29T01:59:59+01:00", "clocks go forward: 02:30 does not exist", "时钟拨快：02:30 不存在"},
		{"30 2 * * *", "Europe/Berlin", GapSkip, 0, spring, "2026-03-30T02:30:00+02:00", "", ""},
		{"0,30 2 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "clocks go forward: 02:00 and 02:30 do not exist and become one", "时钟拨快：02:00 和 02:30 不存在，合为一次"},
		{"0 2,3 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "clocks go forward: 02:00 does not exist and falls together with 03:00", "时钟拨快：02:00 不存在，与 03:00 合为一次"},
		{"* 30 2 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "clocks go forward: 02:30 to 02:30:59 do not exist and become one", "时钟拨快：02:30 至 02:30:59 不存在，合为一次"},
		{"0 3 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "", ""},
		{"*/30 2-3 * * *", "Europe/Berlin", 0, 0, spring, "2026-03-29T03:00:00+02:00", "", ""},
		{"30 2 * * *", "Europe/Berlin", 0, 0, autumn, "2026-10-25T02:30:00+02:00", "clocks go back: 02:30 occurs twice, this is the first time", "时钟拨慢：02:30 出现两次，这是第 1 次"},
		{"30 2 * * *", "Europe/Berlin", 0, OverlapSecond, autumn, "2026-10-25T02:30:00+01:00", "clocks go back: 02:30 occurs twice, this is the second time", "时钟拨慢：02:30 出现两次，这是第 2 次"},
		{"*/30 2-3 * * *", "Europe/Berlin", 0, 0, "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "clocks go back: 02:00 occurs twice, this is the second time", "时钟拨慢：02:00 出现两次，这是第 2 次"},
		{"0 3 * * *", "Europe/Berlin", 0, 0, autumn, "2026-10-25T03:00:00+01:00", "", ""},
		{"59 1 * * *", "Europe/Berlin", 0, 0, autumn, "2026-10-25T01:59:00+02:00", "", ""},
		{"0 0 * * *", "America/Sao_Paulo", 0, 0, "2018-11-03T12:00:00-03:00", "2018-11-04T01:00:00-02:00", "clocks go forward: 00:00 does not exist", "时钟拨快：00:00 不存在"},
		{"15 2 * * *", "Australia/Lord_Howe", 0, 0, "2026-10-04T00:00:00+10:30", "2026-10-04T02:30:00+11:00", "clocks go forward: 02:15 does not exist", "时钟拨快：02:15 不存在"},
		{"0 12 * * *", "Pacific/Apia", 0, 0, "2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "clocks go forward: 2011-12-30 12:00 does not exist", "时钟拨快：2011-12-30 12:00 不存在"},
		{"0 12 * * *", "UTC", 0, 0, spring, "2026-03-29T12:00:00Z", "", ""},
		{"P1D", "Europe/Berlin", 0, 0, "2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "clocks go forward: 02:30 does not exist", "时钟拨快：02:30 不存在"},
		{"P1D", "Europe/Berlin", 0, 0, "2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "clocks go back: 02:30 occurs twice, this is the first time", "时钟拨慢：02:30 出现两次，这是第 1 次"},
		{"P1DT1H", "Europe/Berlin", 0, 0, "2026-03-28T02:30:00+01:00", "2026-03-29T04:00:00+02:00", "", ""},
		{"P1M", "Europe/Berlin", 0, 0, "2026-03-28T02:30:00+01:00", "2026-04-28T02:30:00+02:00", "", ""},
		{"@every 30m", "Europe/Berlin", 0, 0, "2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "", ""},
		{"2026-10-25T00:30:00Z", "Europe/Berlin", 0, 0, autumn, "2026-10-25T02:30:00+02:00", "", ""},
	} {
		after := at(t, c.after)
		s, err := Parse(Spec{Expr: c.expr, Zone: c.zone, Gap: c.gap, Overlap: c.overlap, Anchor: after})
		if err != nil {
			t.Errorf("%q: %v", c.expr, err)
			continue
		}
		due, _ := s.Next(after)
		if shown := s.In(due).Format(time.RFC3339); shown != c.due || s.Remark(due) != c.en || s.RemarkIn("zh", due) != c.zh {
			t.Errorf("%q, gap %v, overlap %v:\n got %s %q %q\nwant %s %q %q", c.expr, c.gap, c.overlap, shown, s.Remark(due), s.RemarkIn("zh", due), c.due, c.en, c.zh)
		}
	}
}
