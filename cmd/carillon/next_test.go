package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// TestNext shows what is printed and how it ends.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string // all that is printed if code is 0, else a part of it
	}{
		{[]string{"30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T00:00:00Z", "-n", "3"}, 0, `
30 2 * * *
at 02:30, every day, Europe/Berlin time

Sat 2026-03-28 02:30:00 +01:00   2026-03-28T01:30:00Z
Sun 2026-03-29 03:00:00 +02:00   2026-03-29T01:00:00Z   clocks go forward: 02:30 does not exist
Mon 2026-03-30 02:30:00 +02:00   2026-03-30T00:30:00Z
`},
		{[]string{"0,30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-29T00:00:00Z", "-n", "1"}, 0, `
0,30 2 * * *
at 02:00 and 02:30, every day, Europe/Berlin time

Sun 2026-03-29 03:00:00 +02:00   2026-03-29T01:00:00Z   clocks go forward: 02:00 and 02:30 do not exist and become one
`},
		{[]string{"30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-10-24T12:00:00Z", "-n", "2", "--overlap", "both", "--gap", "skip"}, 0, `
30 2 * * *
at 02:30, every day, Europe/Berlin time; a time that clocks skip is not due; a time that occurs twice is due both times

Sun 2026-10-25 02:30:00 +02:00   2026-10-25T00:30:00Z   clocks go back: 02:30 occurs twice, this is the first time
Sun 2026-10-25 02:30:00 +01:00   2026-10-25T01:30:00Z   clocks go back: 02:30 occurs twice, this is the second time
`},
		{[]string{"0 0 9 * * 1", "--after", "2026-11-21T00:00:00Z", "-n", "1"}, 0, `
0 0 9 * * 1
at 09:00, on Monday, UTC
warning: day-of-week: in crontab, which this is, 1 is Monday; in Quartz, which writes ? in one day field, 1 is Sunday

Mon 2026-11-23 09:00:00 +00:00   2026-11-23T09:00:00Z
`},
		{[]string{"H H(0-5) * * *", "--key", "default/report", "--after", "2026-11-21T00:00:00Z", "-n", "1"}, 0, `
H H(0-5) * * *
at 03:11, every day, UTC

Sat 2026-11-21 03:11:00 +00:00   2026-11-21T03:11:00Z
`},
		{[]string{"R2/PT3S", "--after", "2026-11-21T01:00:00+01:00"}, 0, `
R2/PT3S
every 3 seconds, 2 times, counted from 2026-11-21 00:00:00, UTC

Sat 2026-11-21 00:00:03 +00:00   2026-11-21T00:00:03Z
Sat 2026-11-21 00:00:06 +00:00   2026-11-21T00:00:06Z
finished
`},
		{[]string{"0 30 2 * * 0", "--lang", "zh", "--zone", "Europe/Berlin", "--after", "2026-03-28T00:00:00Z", "-n", "1"}, 0, `
0 30 2 * * 0
周日，02:30（Europe/Berlin）
warning: 星期：此处是 crontab 写法，1 是周一；Quartz 写法有一个日期字段为 ?，其中 1 是周日

Sun 2026-03-29 03:00:00 +02:00   2026-03-29T01:00:00Z   时钟拨快：02:30 不存在
`},
		{[]string{"@daily", "--lang", "fr"}, 2, "en or zh"},
		{nil, 2, "needs a schedule"},
		{[]string{"30", "2", "*", "*", "*"}, 2, "quotes"},
		{[]string{"0 0 32 * *"}, 2, "day-of-month at 4: 32 is not within 1-31\n  0 0 32 * *\n      ^\n"},
		{[]string{"＊ * * * *"}, 2, "minute at 0: a character outside ASCII\n"},
		{[]string{"@daily", "--zone", "Mars"}, 2, "zone at 0: \"Mars\" is not a name in the time zone database\n"},
		{[]string{"@daily", "--gap", "x"}, 2, "gap"},
		{[]string{"@daily", "--overlap", "x"}, 2, "overlap"},
		{[]string{"@daily", "-n", "0"}, 2, "invalid n 0"},
		{[]string{"@daily", "-n", "10001"}, 2, "invalid n 10001"},
		{[]string{"@daily", "-n", "x"}, 2, "carillon next --help"},
		{[]string{"@daily", "--after", "yesterday"}, 2, "after"},
		{[]string{"@daily", "--after", "2026-11-21T9:00:00Z"}, 2, "want an RFC 3339 instant"},
		{[]string{"@daily", "--after", "2026-11-21T09:00:00,5Z"}, 2, "want an RFC 3339 instant"},
		{[]string{"@daily", "--after", "2026-11-21T09:00:00+24:00"}, 2, "want an RFC 3339 instant"},
		{[]string{"@daily", "--after", "1969-12-31T23:59:59Z"}, 2, "after lies before 1970"},
		{[]string{"-", "--zone", "UTC"}, 2, "lines of the input"},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"next"}, c.args...), &out, &errs)
		if got := out.String(); code == 0 && "\n"+got != c.want || code != 0 && (got != "" || !strings.Contains(errs.String(), c.want)) || code != c.code {
			t.Errorf("%q: code %d, want %d\n%s%s\nwant:%s", c.args, code, c.code, out.String(), errs.String(), c.want)
		}
	}
}

// conversation is questions and, below each, its answer.
const conversation = `
{"expr":"30 2 * * *","zone":"Europe/Berlin","after":"2026-03-28T12:00:00Z","n":2}
{"times":["2026-03-29T01:00:00Z","2026-03-30T00:30:00Z"]}
{"expr":"30 2 * * *","zone":"Europe/Berlin","after":"2026-03-28T12:00:00Z","n":1,"gap":"before"}
{"times":["2026-03-29T00:59:59Z"]}
{"expr":"30 2 * * *","zone":"Europe/Berlin","after":"2026-10-25T00:00:00Z","n":1,"overlap":"second"}
{"times":["2026-10-25T01:30:00Z"]}
{"expr":"@hourly","after":"2026-11-21T00:00:00Z"}
{"times":["2026-11-21T01:00:00Z","2026-11-21T02:00:00Z","2026-11-21T03:00:00Z","2026-11-21T04:00:00Z","2026-11-21T05:00:00Z"]}
{"expr":"@every 90s","after":"2026-11-21T00:00:00.25Z","n":2}
{"times":["2026-11-21T00:01:30Z","2026-11-21T00:03:00Z"]}
{"expr":"1d2h0m2s","after":"2026-11-21T00:00:00Z","n":1}
{"times":["2026-11-22T02:00:02Z"]}
{"expr":"R2/PT3S","after":"2026-11-21T00:00:00Z"}
{"times":["2026-11-21T00:00:03Z","2026-11-21T00:00:06Z"]}
{"expr":"P1M","zone":"Asia/Shanghai","after":"2026-01-31T09:00:00+08:00","n":2}
{"times":["2026-02-28T01:00:00Z","2026-03-31T01:00:00Z"]}
{"expr":"2027-03-01T09:00:00+01:00","after":"2026-11-21T00:00:00Z"}
{"times":["2027-03-01T08:00:00Z"]}
{"expr":"H H(0-5) * * *","key":"default/report","after":"2026-11-21T00:00:00Z","n":1}
{"times":["2026-11-21T03:11:00Z"]}
{"expr":"0 0 29 2 1#5","after":"2026-11-21T00:00:00Z","n":1,"zone":""}
{"times":["2028-02-29T00:00:00Z"]}
{"expr":"0 0 30 2 *","after":"2026-11-21T00:00:00Z"}
{"error":"expression at 0: it never fires after 2026-11-21T00:00:00Z"}
{"expr":"60 * * * *"}
{"error":"minute at 0: 60 is not within 0-59"}
{"expr":"TZ=UTC 0 0 * * *"}
{"error":"expression at 0: the time zone is a property of the job, not part of the expression"}
{"expr":"@daily","zone":"Local"}
{"error":"zone at 0: Local differs from machine to machine; name a zone such as Europe/Berlin"}
{"expr":"@daily","gap":"sometimes"}
{"error":"gap at 0: invalid policy \"sometimes\": want one of [after before skip]"}
{"expr":"@daily","after":"2026-11-21"}
{"error":"invalid after \"2026-11-21\": want an RFC 3339 instant such as 2027-03-01T09:00:00Z"}
{"expr":"@daily","after":"0001-01-01T00:00:00Z"}
{"error":"after lies before 1970"}
{"expr":"@daily","n":0}
{"error":"invalid n 0: want 1 to 10000"}
{"expr":"@daily","n":10001}
{"error":"invalid n 10001: want 1 to 10000"}
{"expr":"@daily","n":2.5}
{"error":"n must be a whole number"}
{"expr":5}
{"error":"expr must be a text"}
{"expr":"@daily","start":"2026-11-21T00:00:00Z"}
{"error":"invalid question: unknown field \"start\""}
{"expr":"@daily"} {}
{"error":"there is more than one JSON object on the line"}
{"expr":"@daily"
{"error":"the line ends before the JSON object does"}
not JSON
{"error":"invalid question: invalid character 'o' in literal null (expecting 'u')"}
["@daily"]
{"error":"a question is a JSON object"}
null
{"error":"expression at 0: it is empty"}
{}
{"error":"expression at 0: it is empty"}
{"expr":"@daily","after":"2026-11-21T00:00:00Z","n":1,"gap":null,"key":"x"}
{"times":["2026-11-22T00:00:00Z"]}`

// TestNextLines reads the conversation to the program, one line at a time: each answer is there before the next
// question is asked.
func TestNextLines(t *testing.T) {
	questions, ask := io.Pipe()
	output, answers := io.Pipe()
	done := make(chan error, 1)
	go func() {
		root := newRoot(answers, io.Discard)
		root.SetIn(questions)
		root.SetArgs([]string{"next", "-"})
		done <- root.ExecuteContext(t.Context())
		answers.Close()
	}()
	replies := bufio.NewScanner(output)
	lines := strings.Split(conversation, "\n")[1:]
	for i := 0; i < len(lines); i += 2 {
		if _, err := io.WriteString(ask, lines[i]+"\n"); err != nil {
			t.Fatal(err)
		}
		if !replies.Scan() || replies.Text() != lines[i+1] {
			t.Errorf("%s\n got %s\nwant %s", lines[i], replies.Text(), lines[i+1])
		}
	}
	ask.Close()
	if err := <-done; err != nil || replies.Scan() {
		t.Errorf("it ends with %v and %q", err, replies.Text())
	}
}

// What a line may be that no person writes.
func TestNextOddLines(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"an empty line", "\n", `{"error":"the line ends before the JSON object does"}` + "\n"},
		{"no newline at the end", `{"expr":"@yearly","after":"2026-11-21T00:00:00Z","n":1}`, `{"times":["2027-01-01T00:00:00Z"]}` + "\n"},
		{"a carriage return", "{\"expr\":\"@yearly\",\"after\":\"2026-11-21T00:00:00Z\",\"n\":1}\r\n", `{"times":["2027-01-01T00:00:00Z"]}` + "\n"},
		{"too long, and one that is not", strings.Repeat("x", 3*longestLine) + "\n{}\n", "{\"error\":\"the line is longer than 65536 bytes\"}\n{\"error\":\"expression at 0: it is empty\"}\n"},
		{"too long, at the end", strings.Repeat("x", longestLine+1), "{\"error\":\"the line is longer than 65536 bytes\"}\n"},
	} {
		var out strings.Builder
		if err := answerLines(strings.NewReader(c.in), &out); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n got %swant %s", c.name, err, out.String(), c.want)
		}
	}
}

// Without --after, due times count from now.
func TestNextFromNow(t *testing.T) {
	var out strings.Builder
	before := time.Now()
	if err := answerLines(strings.NewReader(`{"expr":"@every 1h","n":1}`), &out); err != nil {
		t.Fatal(err)
	}
	var r struct{ Times []time.Time }
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || len(r.Times) != 1 {
		t.Fatal(out.String())
	}
	if due := r.Times[0]; due.Before(before.Add(time.Hour-time.Second)) || due.After(time.Now().Add(time.Hour)) {
		t.Errorf("asked at %v, due at %v", before, due)
	}
}
