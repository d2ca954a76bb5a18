package schedule

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	berlin := Spec{Zone: "Europe/Berlin", Anchor: at(t, "2026-11-01T00:00:00Z")}
	for _, c := range []struct{ expr, en, zh string }{
		{"* * * * * *", "every second, every day", "每天，每秒"},
		{"* * * * *", "every minute, every day", "每天，每分钟"},
		{"@hourly", "at minute 0 of every hour, every day", "每天，每小时的第 0 分"},
		{"30 * * * * *", "at second 30 of every minute, every day", "每天，每分钟的第 30 秒"},
		{"*/5 9-17 * * 1-5", "every 5 minutes of hours 9 to 17, on Monday to Friday", "周一至周五，第 9 时至 17 时的每 5 分钟"},
		{"*/7 * * * *", "at every 7th minute from 0 to 56 of every hour, every day", "每天，每小时的第 0 分至 56 分每 7 取一"},
		{"5,10-12 */2 * * *", "at minutes 5 and 10 to 12 of every 2nd hour, every day", "每天，每 2 小时的第 5 分和 10 分至 12 分"},
		{"15,45 30 2 * * *", "at 02:30:15 and 02:30:45, every day", "每天，02:30:15和 02:30:45"},
		{"0 9,12,18 * * FRIL,7#3", "at 09:00, 12:00 and 18:00, on the last Friday of the month and the 3rd Sunday of the month", "每月最后一个周五和每月第 3 个周日，09:00、12:00和 18:00"},
		{"0 0 * * */2", "at 00:00, on Sunday, Tuesday, Thursday and Saturday", "周日、周二、周四和周六，00:00"},
		{"0 0 13 * 5", "at 00:00, on day 13 of the month or on Friday (either counts)", "每月 13 日，或周五（符合其一即可），00:00"},
		{"0 0 L,L-1,L-3,LW,15W,1 JAN,MAR-MAY *", "at 00:00, on the last day, the last day but one, the 3rd day before the last, the last weekday, the weekday nearest to day 15 and day 1 of the month, in January and March to May",
			"1 月和 3 月至 5 月，每月最后一天、倒数第 2 天、倒数第 4 天、最后一个工作日、离 15 日最近的工作日和 1 日，00:00"},
		{"0 0 10-20/3 */4 *", "at 00:00, on every 3rd day from 10 to 19 of the month, in January, May and September", "1 月、5 月和 9 月，每月 10 日至 19 日每 3 取一，00:00"},
		{"0 30 9 ? * 2#1 2027-2029", "at 09:30, on the 1st Monday of the month, in 2027 to 2029", "2027 年至 2029 年，每月第 1 个周一，09:30"},
		{"0 0 0 1 1 ? 2027/10,2030", "at 00:00, on day 1 of the month, in January, in every 10th year from 2027 to 2197 and 2030", "2027 年至 2197 年每 10 取一和 2030 年，1 月，每月 1 日，00:00"},
		{"@every 90s", "every 1 minute and 30 seconds, counted from 2026-11-01 01:00:00", "每 1 分钟 30 秒，从 2026-11-01 01:00:00 起算"},
		{"R4/PT3S", "every 3 seconds, 4 times, counted from 2026-11-01 01:00:00", "每 3 秒，共 4 次，从 2026-11-01 01:00:00 起算"},
		{"R1/P1M", "every month, once, counted from 2026-11-01 01:00:00", "每 1 个月，共 1 次，从 2026-11-01 01:00:00 起算"},
		{"P1Y2M3DT4H", "every 1 year, 2 months, 3 days and 4 hours, counted from 2026-11-01 01:00:00", "每 1 年 2 个月 3 天 4 小时，从 2026-11-01 01:00:00 起算"},
		{"P2W", "every 2 weeks, counted from 2026-11-01 01:00:00", "每 2 周，从 2026-11-01 01:00:00 起算"},
		{"2026-12-01T00:00:00Z", "once, at 2026-12-01 01:00:00", "一次，在 2026-12-01 01:00:00"},
	} {
		spec := berlin
		spec.Expr = c.expr
		s, err := Parse(spec)
		if err != nil {
			t.Errorf("%q: %v", c.expr, err)
			continue
		}
		if got, want := s.Words(), c.en+", Europe/Berlin time"; got != want {
			t.Errorf("%q:\n got %s\nwant %s", c.expr, got, want)
		}
		if got, want := s.WordsIn("zh-CN"), c.zh+"（Europe/Berlin）"; got != want {
			t.Errorf("%q:\n got %s\nwant %s", c.expr, got, want)
		}
	}
}

func TestWordsOfBounds(t *testing.T) {
	start := at(t, "2027-01-01T00:00:00Z")
	s, err := Parse(Spec{
		Expr: "0 2 * * *", Start: start, End: start.Add(time.Hour * 24 * 31), Gap: GapSkip, Overlap: OverlapBoth,
	})
	if err != nil {
		t.Fatal(err)
	}
	en := "at 02:00, every day, UTC, from 2027-01-01 00:00:00, until 2027-02-01 00:00:00; a time that clocks skip is not due; a time that occurs twice is due both times"
	if got := s.Words(); got != en {
		t.Errorf("got %s", got)
	}
	zh := "每天，02:00（UTC），自 2027-01-01 00:00:00 起，至 2027-02-01 00:00:00 止；被时钟跳过的时刻不触发；重复的时刻两次都触发"
	if got := s.WordsIn("zh"); got != zh {
		t.Errorf("got %s", got)
	}
}
