package peers

import (
	"strings"
	"testing"
	"time"
)

// TestDiffer lists what the others do otherwise, with the reason, and asserts both answers: where a row fails, the
// other engine has changed, or ours is broken. An answer is the next two due times, or "finished" in place of those
// that do not come, or the beginning of an error.
func TestDiffer(t *testing.T) {
	const (
		saturday = "2026-11-21T00:00:00Z"
		never    = "expression at 0: it never fires"
		crash    = "runtime: goroutine stack exceeds"

		berlin   = "Europe/Berlin"
		newYork  = "America/New_York"
		saoPaulo = "America/Sao_Paulo"
	)
	rows := []struct {
		why                       string
		engine, expr, zone, after string
		theirs, ours              string
	}{
		{"it looks for a year that has a fifth Friday in February for ever, on the stack: the process dies",
			"go-quartz", "0 0 0 ? 2 6#5 2027", "UTC", saturday, crash, never},
		{"it lets Go turn 29 February into 1 March",
			"go-quartz", "0 0 0 29 2 ?", "UTC", saturday, "2027-03-01T00:00:00Z 2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{"and 30 February into 1 or 2 March",
			"go-quartz", "0 0 0 30 2 ?", "UTC", saturday, "2027-03-02T00:00:00Z 2028-03-01T00:00:00Z", never},
		{"as above, for the 30th day before the last of February",
			"go-quartz", "0 0 0 L-30 2 ?", "UTC", saturday, "2027-03-01T00:00:00Z 2028-03-01T00:00:00Z", never},
		{"no month has a 31st day before the last",
			"go-quartz", "0 0 0 L-31 * ?", "UTC", saturday, "2026-11-30T00:00:00Z 2026-12-30T00:00:00Z", "day-of-month at 8: 31 is not within 1-30"},
		{"an open hour counts on to 24, so that the day after a matching one begins with a fire",
			"go-quartz", "0 0 * ? * MON-FRI", "UTC", "2026-11-20T22:30:00Z", "2026-11-20T23:00:00Z 2026-11-21T00:00:00Z", "2026-11-20T23:00:00Z 2026-11-23T00:00:00Z"},
		{"the same at the end of a month",
			"go-quartz", "0 30 * * JAN ?", "UTC", "2027-01-31T22:45:00Z", "2027-01-31T23:30:00Z 2027-02-01T00:30:00Z", "2027-01-31T23:30:00Z 2028-01-01T00:30:00Z"},
		{"it goes to the next month by way of its weekdays, and passes over the first ones",
			"go-quartz", "0 0 9 ? 3-10/2 MON-FRI", "UTC", "2035-03-30T09:00:00Z", "2035-05-02T09:00:00Z 2035-05-03T09:00:00Z", "2035-05-01T09:00:00Z 2035-05-02T09:00:00Z"},
		{"it takes one time on the last weekday, and forgets the rest of that day",
			"go-quartz", "0 0 9,17 LW * ?", "UTC", saturday, "2026-11-30T09:00:00Z 2026-12-31T09:00:00Z", "2026-11-30T09:00:00Z 2026-11-30T17:00:00Z"},
		{"and if it is asked on that day, the day",
			"go-quartz", "0 0 14 5W * ?", "UTC", "2045-02-06T02:00:00Z", "2045-03-06T14:00:00Z 2045-04-05T14:00:00Z", "2045-02-06T14:00:00Z 2045-03-06T14:00:00Z"},
		{"it forgets a 2W that is the 1st, as on Friday 1 January 2027",
			"go-quartz", "0 0 9 2W JAN ?", "UTC", saturday, "2028-01-03T09:00:00Z 2029-01-02T09:00:00Z", "2027-01-01T09:00:00Z 2028-01-03T09:00:00Z"},
		{"where a month has no 31st, it takes the last weekday; we take none, as for every day that a month does not have",
			"go-quartz", "0 0 9 31W * ?", "UTC", "2027-01-30T00:00:00Z", "2027-02-26T09:00:00Z 2027-03-31T09:00:00Z", "2027-03-31T09:00:00Z 2027-05-31T09:00:00Z"},
		{"a bare L is Saturday to it; to a reader it is the last day of the month, so we ask",
			"go-quartz", "0 0 9 ? * L", "UTC", saturday, "2026-11-28T09:00:00Z 2026-12-26T09:00:00Z", "day-of-week at 10: a bare L names no day of the week"},
		{"without a ? we read crontab, where 1 is Monday",
			"go-quartz", "0 0 0 * * 1", "UTC", saturday, "2026-11-22T00:00:00Z 2026-11-29T00:00:00Z", "2026-11-23T00:00:00Z 2026-11-30T00:00:00Z"},
		{"clocks go forward: its answer lies before the question, which ends the trigger",
			"go-quartz", "0 0/30 * * * ?", newYork, "2026-03-08T01:30:00-05:00", "finished finished", "2026-03-08T03:00:00-04:00 2026-03-08T03:30:00-04:00"},
		{"clocks go forward: an hour early, where Go reads a missing time with the offset after the gap",
			"go-quartz", "0 30 2 * * ?", newYork, "2026-03-08T00:00:00-05:00", "2026-03-08T01:30:00-05:00 2026-03-09T02:30:00-04:00", "2026-03-08T03:00:00-04:00 2026-03-09T02:30:00-04:00"},
		{"clocks go forward: on the wrong day",
			"go-quartz", "0 0 0 * * ?", saoPaulo, "2018-11-03T12:00:00-03:00", "2018-11-03T23:00:00-03:00 2018-11-05T00:00:00-02:00", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"clocks go forward: half an hour after the gap, not right after it",
			"go-quartz", "0 30 2 * * ?", berlin, "2026-03-29T00:00:00+01:00", "2026-03-29T03:30:00+02:00 2026-03-30T02:30:00+02:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"clocks go back: silent for 70 minutes",
			"go-quartz", "*/10 * * * * ?", newYork, "2026-11-01T01:59:50-04:00", "2026-11-01T02:00:00-05:00 2026-11-01T02:00:10-05:00", "2026-11-01T01:00:00-05:00 2026-11-01T01:00:10-05:00"},
		{"clocks go back: on the second pass, where we fire on the first",
			"go-quartz", "0 30 2 * * ?", berlin, "2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+01:00 2026-10-26T02:30:00+01:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},

		{"a step of one counts as open to it; to us only * itself does, and of two day fields that restrict, either counts",
			"robfig/cron", "0 0 */1 * 1", "UTC", saturday, "2026-11-23T00:00:00Z 2026-11-30T00:00:00Z", "2026-11-22T00:00:00Z 2026-11-23T00:00:00Z"},
		{"with a ? we read Quartz, where 1 is Sunday",
			"robfig/cron", "0 0 ? * 1", "UTC", saturday, "2026-11-23T00:00:00Z 2026-11-30T00:00:00Z", "2026-11-22T00:00:00Z 2026-11-29T00:00:00Z"},
		{"it does not know that 7 is Sunday, too",
			"robfig/cron", "0 0 * * 7", "UTC", saturday, "end of range (7) above maximum (6)", "2026-11-22T00:00:00Z 2026-11-29T00:00:00Z"},
		{"nor ranges that wrap around",
			"robfig/cron", "0 22-2 * * *", "UTC", saturday, "beginning of range (22) beyond end of range (2)", "2026-11-21T01:00:00Z 2026-11-21T02:00:00Z"},
		{"nor the last day",
			"robfig/cron", "0 0 L * *", "UTC", saturday, "failed to parse int from L", "2026-11-30T00:00:00Z 2026-12-31T00:00:00Z"},
		{"it gives up after five years, and 2100 is no leap year",
			"robfig/cron", "0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "finished finished", "2104-02-29T00:00:00Z 2108-02-29T00:00:00Z"},
		{"clocks go forward: not that day",
			"robfig/cron", "30 2 * * *", berlin, "2026-03-28T12:00:00+01:00", "2026-03-30T02:30:00+02:00 2026-03-31T02:30:00+02:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"clocks go forward at midnight: not that day",
			"robfig/cron", "0 0 * * *", saoPaulo, "2018-11-03T12:00:00-03:00", "2018-11-05T00:00:00-02:00 2018-11-06T00:00:00-02:00", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"clocks go back: twice",
			"robfig/cron", "30 2 * * *", berlin, "2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"it counts an interval from the question, we from when it was written: here, from 1970",
			"robfig/cron", "@every 90s", "UTC", "2026-11-21T00:00:10Z", "2026-11-21T00:01:40Z 2026-11-21T00:03:10Z", "2026-11-21T00:01:30Z 2026-11-21T00:03:00Z"},

		{"with a step from *, both day fields must match; to us either counts, as for every field that is not * itself",
			"gronx", "0 0 */10 * 1", "UTC", saturday, "2026-12-21T00:00:00Z 2027-01-11T00:00:00Z", "2026-11-23T00:00:00Z 2026-11-30T00:00:00Z"},
		{"with a ? we read Quartz, where 1 is Sunday",
			"gronx", "0 0 ? * 1", "UTC", saturday, "2026-11-23T00:00:00Z 2026-11-30T00:00:00Z", "2026-11-22T00:00:00Z 2026-11-29T00:00:00Z"},
		{"it takes what never fires",
			"gronx", "0 0 30 2 *", "UTC", saturday, "finished finished", never},
		{"it does not know the last weekday",
			"gronx", "0 0 LW * *", "UTC", saturday, "gronx says that it is not valid", "2026-11-30T00:00:00Z 2026-12-31T00:00:00Z"},
		{"clocks go forward: not that day",
			"gronx", "30 2 * * *", berlin, "2026-03-28T12:00:00+01:00", "2026-03-30T02:30:00+02:00 2026-03-31T02:30:00+02:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"clocks go forward at midnight: not that day",
			"gronx", "0 0 * * *", saoPaulo, "2018-11-03T12:00:00-03:00", "2018-11-05T00:00:00-02:00 2018-11-06T00:00:00-02:00", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00"},
		{"clocks go back: on the second pass, where we fire on the first",
			"gronx", "30 2 * * *", berlin, "2026-10-25T00:00:00+02:00", "2026-10-25T02:30:00+01:00 2026-10-26T02:30:00+01:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"clocks go back: silent for an hour",
			"gronx", "*/30 * * * *", berlin, "2026-10-25T02:15:00+02:00", "2026-10-25T02:30:00+01:00 2026-10-25T03:00:00+01:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00"},
	}
	var questions []question
	for _, r := range rows {
		after, err := time.Parse(time.RFC3339, r.after)
		if err != nil {
			t.Fatal(err)
		}
		q := question{Engine: r.engine, Expr: r.expr, Zone: r.zone, After: after.Unix(), N: 2}
		questions = append(questions, q)
		q.Engine = "ours"
		questions = append(questions, q)
	}
	answers := ask(t, questions)
	for i, r := range rows {
		zone, err := time.LoadLocation(r.zone)
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := answers[2*i].in(zone), answers[2*i+1].in(zone)
		if !strings.HasPrefix(theirs, r.theirs) || !strings.HasPrefix(ours, r.ours) {
			t.Errorf("%s, %v (%s):\ntheirs %s\n  want %s\n  ours %s\n  want %s", r.engine, questions[2*i], r.why, theirs, r.theirs, ours, r.ours)
		}
	}
}

// in writes an answer to a question of two due times as the table has it.
func (a answer) in(zone *time.Location) string {
	if a.Error != "" {
		return a.Error
	}
	texts := []string{"finished", "finished"}
	for i, at := range a.Times {
		texts[i] = time.Unix(at, 0).In(zone).Format(time.RFC3339)
	}
	return strings.Join(texts, " ")
}
