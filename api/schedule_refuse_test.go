package api_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/ops"
)

// quoted is text as JSON.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// noon is when the jobs of newDated are edited.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newDated is a fixture where it is always noon.
func newDated(t *testing.T) *fixture {
	now := func() time.Time { return noon }
	d := newStoreAt(t, now)
	d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store, Now: now, ForecastWork: time.Minute})})
	return d
}

// Bad schedules are refused with the field, the place and the reason, at once, and nothing is stored; a preview gets
// the same refusal.
func TestSchedulesRefused(t *testing.T) {
	d := newDated(t) // one for all, since nothing changes
	var numbers strings.Builder
	for range 5000 {
		numbers.WriteString("1,")
	}
	const elsewhere = -1 // no place is reported: the request itself does not fit
	for _, c := range []struct {
		name, schedule, zone string
		location             string // after "body."
		offset               int
		says                 string
	}{
		{"a zone in the text: number", "TZ=0 0 0 * * *", "", "schedule", 0, "property of the job"},
		{"a zone in the text: UTC", "TZ=UTC 0 0 * * *", "", "schedule", 0, "property of the job"},
		{"a zone in the text: CRON_TZ", "CRON_TZ=UTC 0 0 * * *", "", "schedule", 0, "property of the job"},
		{"a zone in the text: nothing else", "CRON_TZ=", "", "schedule", 0, "property of the job"},
		{"a zone in the text: thrice", "TZ=TZ=TZ=", "", "schedule", 0, "property of the job"},
		{"a zone in the text: a file", "TZ=../../etc/passwd 0 0 * * *", "", "schedule", 0, "property of the job"},

		{"zone: a file", "0 0 * * *", "../../etc/passwd", "zone", 0, "not a name in the time zone database"},
		{"zone: dots", "0 0 * * *", "Etc/../UTC", "zone", 0, "not a name in the time zone database"},
		{"zone: Local", "0 0 * * *", "Local", "zone", 0, "differs from machine to machine"},
		{"zone: another case", "0 0 * * *", "europe/berlin", "zone", 0, "not a name in the time zone database"},
		{"zone: 10 KiB", "0 0 * * *", strings.Repeat("x", 10<<10), "zone", elsewhere, "length"},

		{"never: 30 February", "0 0 30 2 *", "", "schedule", 0, "never fires"},
		{"never: the 31st of short months", "0 0 31 4,6,9,11 *", "", "schedule", 0, "never fires"},
		{"never: a year that is past", "0 0 0 1 1 ? 2025", "", "schedule", 0, "never fires"},
		{"never: always in the gap", "*/30 2 * 3 SUNL", "Europe/Berlin", "schedule", 0, "never fires"},
		{"never: an instant that is past", "2001-01-01T00:00:00Z", "", "schedule", 0, "never fires"},

		{"step 0", "*/0 * * * *", "", "schedule", 2, "minute: 0 is not within 1-60"},
		{"minute 60", "60 * * * *", "", "schedule", 0, "minute: 60 is not within 0-59"},
		{"day of the week 8", "* * * * 8", "", "schedule", 8, "day-of-week: 8 is not within 0-7"},
		{"a range beyond the field", "1-100/3 * * * *", "", "schedule", 2, "minute: 100 is not within 0-59"},
		{"a comma", ", * * * *", "", "schedule", 0, "minute: an item of the list is empty"},
		{"the 99th day before the last", "0 0 L-99 * *", "", "schedule", 6, "day-of-month: 99 is not within 1-30"},
		{"? twice", "0 0 ? * ?", "", "schedule", 8, "day-of-week: both day fields are ?"},
		{"4 fields", "* * * *", "", "schedule", 7, "5, 6 or 7 fields, this has 4"},
		{"8 fields", "0 0 0 1 1 ? 2027 1", "", "schedule", 17, "5, 6 or 7 fields, this has 8"},

		{"10 KiB", strings.Repeat("*", 10<<10), "", "schedule", elsewhere, "length"},
		{"5000 numbers", numbers.String() + "1 * * * *", "", "schedule", elsewhere, "length"},
		{"few characters of many bytes", strings.Repeat("＊", 100), "", "schedule", 256, "256"},

		{"every nanosecond", "@every 1ns", "", "schedule", 7, "whole seconds"},
		{"every 0 seconds", "@every 0s", "", "schedule", 7, "at least one second"},
		{"every -5 seconds", "@every -5s", "", "schedule", 7, "no sign"},
		{"at the start of the machine", "@reboot", "", "schedule", 0, "unknown macro"},

		{"digits of another script", "٥ * * * *", "", "schedule", 0, "minute: a character outside ASCII"},
		{"a full-width asterisk", "0 ＊ * * *", "", "schedule", 2, "hour: a character outside ASCII"},
		{"a line break", "0 0 * * *\r\n", "", "schedule", 9, "day-of-week"},
		{"a blank of another kind", "0 0\u00a0* * *", "", "schedule", 3, "outside ASCII"},

		{"second 60", "60 0 0 1 1 *", "", "schedule", 0, "second: 60 is not within 0-59"},
		{"a leap second", "2028-06-30T23:59:60Z", "", "schedule", 0, "RFC 3339"},
		{"year 2262", "0 0 0 1 1 ? 2262", "", "schedule", 12, "year: 2262 is not within 1970-2199"},
		{"an instant that nanoseconds cannot hold", "2262-04-12T00:00:00Z", "", "schedule", 0, "2199"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.t = t
			before := d.snapshot()
			body := `{"schedule":` + quoted(c.schedule) + `,"zone":` + quoted(c.zone) + `}`
			quickest := time.Hour
			const most = 50 * time.Millisecond // ten times what it should take
			for by := time.Now().Add(time.Minute); quickest > most && time.Now().Before(by); {
				// On a machine that does other things, too: one that is quick is enough.
				start := time.Now()
				checkScheduleProblem(t, d.send("PATCH", edit, body), "body."+c.location, c.offset, c.says)
				quickest = min(quickest, time.Since(start))
			}
			if quickest > most {
				t.Errorf("it takes %v to refuse it", quickest)
			}
			query := url.Values{"schedule": {c.schedule}, "zone": {c.zone}}
			checkScheduleProblem(t, d.send("GET", edit+"/next?"+query.Encode(), ""), "query."+c.location, c.offset, c.says)
			if after := d.snapshot(); after != before {
				t.Errorf("it was refused, and yet %s became %s", before, after)
			}
		})
	}
}

func checkScheduleProblem(t *testing.T, a answer, location string, offset int, says string) {
	t.Helper()
	p := a.problem(t)
	if a.StatusCode != 422 || p.Code != "invalid" || len(p.Errors) != 1 {
		t.Fatalf("%d: %.400s", a.StatusCode, a.body)
	}
	f := p.Errors[0]
	if f.Location != location || !strings.Contains(f.Message, says) || (offset >= 0) != (f.Offset != nil) || f.Offset != nil && *f.Offset != offset {
		t.Errorf("want %s at %d: %q\n got %.400s", location, offset, says, a.body)
	}
}

// What looks odd and is allowed comes with the due times ahead: first on a look ahead, then after the edit.
func TestSchedulesTaken(t *testing.T) {
	for _, c := range []struct {
		name, schedule, zone string
		policy               string // more of the body of the edit
		next                 string // the beginning of the next due time
	}{
		{"29 February", "0 0 29 2 *", "", "", "2028-02-29T00:00:00Z"},
		{"29 February or the fifth Monday of a February", "0 0 29 2 1#5", "", "", "2028-02-29T00:00:00Z"},
		{"the fifth Monday of a February", "0 0 0 ? 2 2#5", "", "", "2044-02-29T00:00:00Z"},
		{"6 fields", "0 0 0 * * *", "", "", "2026-11-22T00:00:00Z"},
		{"7 fields", "0 0 0 ? * 2 2030", "", "", "2030-01-07T00:00:00Z"},
		{"a long interval", "@every 999999h", "", "", "21"},
		{"the second after 2^31", "8 14 3 19 1 ? 2038", "", "", "2038-01-19T03:14:08Z"},
		{"an instant in the last year", "2199-12-31T23:59:59Z", "", "", "2199-12-31T23:59:59Z"},
		{"in the gap", "0 30 2 28 3 ? 2027", "Europe/Berlin", "", "2027-03-28T01:00:00Z"},
		{"in the gap, before", "0 30 2 28 3 ? 2027", "Europe/Berlin", `"gap":"before"`, "2027-03-28T00:59:59Z"},
		{"in the overlap", "0 30 2 31 10 ? 2027", "Europe/Berlin", "", "2027-10-31T00:30:00Z"},
		{"in the overlap, second", "0 30 2 31 10 ? 2027", "Europe/Berlin", `"twice":"second"`, "2027-10-31T01:30:00Z"},
		{"clocks that move by half an hour", "0 15 2 3 10 ? 2027", "Australia/Lord_Howe", "", "2027-10-02T15:30:00Z"},
		{"clocks that move at midnight", "0 0 0 5 9 ? 2027", "America/Santiago", "", "2027-09-05T04:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDated(t)
			type next struct {
				Words string
				Next  []time.Time
			}
			if c.policy == "" { // a look ahead knows no other settings
				query := url.Values{"n": {"3"}, "schedule": {c.schedule}, "zone": {c.zone}}
				before := d.snapshot()
				ahead := read[next](t, d.send("GET", edit+"/next?"+query.Encode(), ""))
				if after := d.snapshot(); after != before || ahead.Words == "" || len(ahead.Next) == 0 || !strings.HasPrefix(ahead.Next[0].Format(time.RFC3339), c.next) {
					t.Errorf("%+v, and %s became %s", ahead, before, after)
				}
			} else {
				c.policy = "," + c.policy
			}
			job := read[api.Job](t, d.send("PATCH", edit, `{"schedule":`+quoted(c.schedule)+`,"zone":`+quoted(c.zone)+c.policy+`}`))
			if len(job.Next) != 1 || !strings.HasPrefix(job.Next[0].Format(time.RFC3339), c.next) || !job.Next[0].After(noon) {
				t.Errorf("after the edit it is due at %v", job.Next)
			}
		})
	}
}

// A job that is edited again and again is always as its last editor left it.
func TestSchedulesEditedOften(t *testing.T) {
	d := newFixture(t)
	for i := range 100 {
		text := "@every " + (time.Duration(i+1) * time.Hour).String()
		job := read[api.Job](t, d.send("PATCH", edit, `{"schedule":"`+text+`"}`))
		ahead := time.Duration(i+1) * time.Hour
		if *job.Schedule != text || time.Until(job.Next[0]) > ahead || time.Until(job.Next[0]) < ahead-time.Minute {
			t.Fatalf("edit %d: %s is due at %v", i, *job.Schedule, job.Next)
		}
	}
	if tag := d.send("GET", edit, "").Header.Get("ETag"); tag != `"101"` {
		t.Errorf("after 100 edits it is %s", tag)
	}
}

// A look ahead knows the rules for clocks that move, and bounds, without storing them.
func TestNextAsIf(t *testing.T) {
	d := newDated(t)
	gap := url.Values{"n": {"1"}, "schedule": {"0 30 2 28 3 ? 2027"}, "zone": {"Europe/Berlin"}}
	overlap := url.Values{"n": {"2"}, "schedule": {"0 30 2 31 10 ? 2027"}, "zone": {"Europe/Berlin"}}
	daily := url.Values{"n": {"9"}, "schedule": {"0 0 0 * * *"}}
	with := func(v url.Values, more ...string) string {
		out := url.Values{}
		for k := range v {
			out.Set(k, v.Get(k))
		}
		for i := 0; i < len(more); i += 2 {
			out.Set(more[i], more[i+1])
		}
		return out.Encode()
	}
	before := d.snapshot()
	for query, want := range map[string]string{
		with(gap):                        "2027-03-28T01:00:00Z",
		with(gap, "gap", "before"):       "2027-03-28T00:59:59Z",
		with(overlap):                    "2027-10-31T00:30:00Z",
		with(overlap, "twice", "second"): "2027-10-31T01:30:00Z",
		with(overlap, "twice", "both"):   "2027-10-31T00:30:00Z 2027-10-31T01:30:00Z",
		with(daily, "start", "2027-01-01T00:00:00Z", "end", "2027-01-02T12:00:00Z"): "2027-01-01T00:00:00Z 2027-01-02T00:00:00Z",
	} {
		var list []string
		for _, at := range read[struct{ Next []time.Time }](t, d.send("GET", edit+"/next?"+query, "")).Next {
			list = append(list, at.Format(time.RFC3339))
		}
		if got := strings.Join(list, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if after := d.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}
