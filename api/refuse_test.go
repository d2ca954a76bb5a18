package api_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

const (
	trigger = "/api/v1/jobs/billing.charge/trigger"
	many    = "/api/v1/runs"
	edit    = "/api/v1/jobs/billing.close-day"
)

// What may not be stored: each row is refused with a problem, its status and its code, and nothing has changed.
func TestRefused(t *testing.T) {
	d := newFixture(t) // one for all, since nothing changes
	items := func(n int, bad string) string {
		list := strings.Repeat(`{"job":"billing.charge"},`, n)
		return `{"items":[` + list + bad + `]}`
	}
	for _, c := range []struct {
		name         string
		method, path string
		body         string
		headers      []string
		status       int
		says         string
	}{
		// The transport.
		{"no such route", "GET", "/api/v1/nothing", "", nil, 404, "no_such_route"},
		{"wrong method", "DELETE", "/api/v1/jobs", "", nil, 405, "method_not_allowed"},
		{"not JSON by name", "POST", trigger, `{}`, []string{"Content-Type", "text/xml"}, 415, "unsupported_media_type"},
		{"a form", "POST", trigger, "args=1", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		{"a form in parts", "POST", trigger, "--b\r\n\r\n{}\r\n--b--\r\n", []string{"Content-Type", "multipart/form-data; boundary=b"}, 415, "unsupported_media_type"},
		{"no Content-Type", "POST", trigger, `{}`, []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		{"no Content-Type of a bulk", "POST", many, `{"items":[{"job":"billing.charge"}]}`, []string{"Content-Type", ""}, 415, "unsupported_media_type"},
		{"compressed", "POST", trigger, `{}`, []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type"},
		{"another origin", "POST", trigger, `{}`, []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin"},
		{"too large a body", "POST", trigger, `{"unique":"` + strings.Repeat("x", 600<<10) + `"}`, nil, 413, "too_large"},
		{"too large an apply", "POST", "/api/v1/apply", strings.Repeat(" ", 4<<20+1), nil, 413, "4194304"},

		// JSON.
		{"truncated", "POST", trigger, `{"args":{`, nil, 400, "malformed"},
		{"trailing data", "POST", trigger, `{} {}`, nil, 400, "malformed"},
		{"byte order mark", "POST", trigger, "\ufeff{}", nil, 400, "malformed"},
		{"trailing garbage", "POST", trigger, `{}x`, nil, 400, "malformed"},
		{"truncated bulk", "POST", many, `{"items":[{"job":"billing.charge"}`, nil, 400, "malformed"},
		{"two bulks", "POST", many, `{"items":[{"job":"billing.charge"}]} {"items":[]}`, nil, 400, "malformed"},
		{"100000 levels", "POST", trigger, `{"args":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}`, nil, 400, "malformed"},
		{"unknown field", "POST", trigger, `{"arg":{}}`, nil, 422, "body.arg: unexpected property"},
		{"another case", "POST", trigger, `{"Args":{}}`, nil, 422, "unexpected property"},
		{"another case in a bulk", "POST", many, `{"items":[{"Job":"billing.charge"}]}`, nil, 422, "items[0]"},
		{"unknown field in a bulk", "POST", many, `{"items":[{"job":"billing.charge","arg":{}}]}`, nil, 422, "items[0].arg"},
		{"unknown field beside a bulk", "POST", many, `{"items":[{"job":"billing.charge"}],"Items":[]}`, nil, 422, "body.Items"},
		{"a key twice", "POST", trigger, `{"priority":1,"priority":2}`, nil, 422, "is repeated"},
		{"a key twice, deep", "POST", trigger, `{"args":{"a":[{"b":1,"b":2}]}}`, nil, 422, "is repeated"},
		{"invalid UTF-8", "POST", trigger, "{\"unique\":\"\xff\"}", nil, 422, "UTF-8"},
		{"NUL", "POST", trigger, `{"unique":"a\u0000b"}`, nil, 422, "NUL"},
		{"NUL in arguments", "POST", trigger, `{"args":{"a":"\u0000"}}`, nil, 422, "NUL"},
		{"NUL as a byte", "POST", trigger, "{\"unique\":\"a\x00b\"}", nil, 400, "malformed"},
		{"half a surrogate", "POST", trigger, `{"unique":"\ud800"}`, nil, 422, "surrogate"},
		{"half a surrogate and more", "POST", trigger, `{"unique":"\ud800x\udc00"}`, nil, 422, "surrogate"},
		{"text for a number", "POST", trigger, `{"priority":"high"}`, nil, 422, "body.priority"},
		{"a fraction for a whole number", "POST", trigger, `{"priority":0.5}`, nil, 422, "body.priority"},
		{"2^63", "POST", trigger, `{"retries":9223372036854775808}`, nil, 422, "body.retries"},
		{"null", "POST", trigger, `{"priority":null}`, nil, 422, "null"},
		{"1e400", "POST", trigger, `{"priority":1e400}`, nil, 422, "the number 1e400"},
		{"a number of 400 digits", "POST", trigger, `{"args":{"a":-` + strings.Repeat("9", 400) + `}}`, nil, 422, "the number -9999"},
		{"a whole number with a point", "POST", trigger, `{"priority":1.0}`, nil, 422, "without a point or an exponent"},
		{"a whole number with a point, in a bulk", "POST", many, `{"items":[{"job":"billing.charge","priority":1e1}]}`, nil, 422, "without a point or an exponent"},
		{"-0 with a point", "POST", trigger, `{"priority":-0.0}`, nil, 422, "without a point or an exponent"},
		{"1e400 in arguments", "POST", trigger, `{"args":{"a":1e400}}`, nil, 422, "the number 1e400"},
		{"1e400 in a bulk", "POST", many, `{"items":[{"job":"billing.charge","args":{"a":1e400}}]}`, nil, 422, "the number 1e400"},
		{"2^63 in a bulk", "POST", many, `{"items":[{"job":"billing.charge","retries":9223372036854775808}]}`, nil, 422, "items[0].retries"},
		{"a number for text", "POST", trigger, `{"unique":5}`, nil, 422, "body.unique"},

		// Row 20: keys.
		{"key: empty", "POST", many, `{"items":[{"job":""}]}`, nil, 422, "items[0]"},
		{"key: 201 bytes", "POST", many, `{"items":[{"job":"` + strings.Repeat("k", 201) + `"}]}`, nil, 422, "items[0]"},
		{"key: ../x", "POST", many, `{"items":[{"job":"../x"}]}`, nil, 422, "items[0]"},
		{"key: ../x in the path", "POST", "/api/v1/jobs/..%2fx/trigger", ``, nil, 422, "dot"},
		{"key: two dots", "POST", many, `{"items":[{"job":"a..b"}]}`, nil, 422, "items[0]"},
		{"key: blank", "POST", many, `{"items":[{"job":"a b"}]}`, nil, 422, "items[0]"},
		{"key: a dot first", "POST", many, `{"items":[{"job":".x"}]}`, nil, 422, "begins with a dot"},
		{"key: * of a new job", "POST", "/api/v1/jobs", `{"key":"*","kind":"triggered","app":"billing"}`, nil, 422, "job key"},
		{"key: ../x of a new job", "POST", "/api/v1/jobs", `{"key":"../x","kind":"triggered","app":"billing"}`, nil, 422, "dot"},
		{"key: emoji of a new job", "POST", "/api/v1/jobs", `{"key":"\ud83d\udd14","kind":"triggered","app":"billing"}`, nil, 422, "job key"},
		{"key: *", "GET", "/api/v1/jobs/*", ``, nil, 422, "invalid"},
		{"key: >", "GET", "/api/v1/jobs/%3E", ``, nil, 422, "invalid"},
		{"key: $JS", "GET", "/api/v1/jobs/$JS", ``, nil, 422, "invalid"},
		{"key: newline", "GET", "/api/v1/jobs/a%0Ab", ``, nil, 422, "invalid"},
		{"key: emoji", "GET", "/api/v1/jobs/%F0%9F%94%94", ``, nil, 422, "invalid"},
		{"key: right to left", "GET", "/api/v1/jobs/a%E2%80%AEb", ``, nil, 422, "invalid"},
		// Row 21: keys are bytes.
		{"key: another case", "POST", "/api/v1/jobs/Billing.Charge/trigger", ``, nil, 404, "not_found"},

		// Row 22: arguments.
		{"args: 256 KiB + 1", "POST", trigger, `{"args":{"x":"` + strings.Repeat("y", 256<<10-7) + `"}}`, nil, 413, "too_large"},
		{"args: 256 KiB + 1 in a bulk", "POST", many, items(3, `{"job":"billing.charge","args":{"x":"`+strings.Repeat("y", 256<<10-7)+`"}}`), nil, 413, "items[3]"},
		{"args: a list", "POST", trigger, `{"args":[1]}`, nil, 422, "body.args"},
		{"args: text", "POST", trigger, `{"args":"x"}`, nil, 422, "body.args"},
		{"args: a list in a bulk", "POST", many, `{"items":[{"job":"billing.charge","args":[1]}]}`, nil, 422, "items[0].args"},
		{"args: a default of 256 KiB + 1", "PATCH", edit, `{"args":{"x":"` + strings.Repeat("y", 256<<10-7) + `"}}`, nil, 413, "too_large"},
		{"args: 65 levels", "POST", trigger, `{"args":{"a":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}}`, nil, 422, "arguments: nested 65 levels deep"},
		{"args: 65 levels in a bulk", "POST", many, `{"items":[{"job":"billing.charge","args":{"a":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}}]}`, nil, 422, "arguments: nested 65 levels deep"},
		{"73 levels", "POST", trigger, strings.Repeat(`{"args":`, 72) + `{}` + strings.Repeat(`}`, 72), nil, 400, "malformed"},

		// Row 24: texts.
		{"description: 64 KiB of combining marks", "PATCH", edit, `{"description":"` + strings.Repeat("\u0301", 32<<10) + `"}`, nil, 422, "4096"},
		{"name: 201 bytes", "PATCH", edit, `{"name":"` + strings.Repeat("n", 201) + `"}`, nil, 422, "name"},

		// Row 25 and 26: pages and filters.
		{"page: 0", "GET", many + "?limit=0", "", nil, 422, "query.limit"},
		{"page: -1", "GET", many + "?limit=-1", "", nil, 422, "query.limit"},
		{"page: 10^9", "GET", many + "?limit=1000000000", "", nil, 422, "query.limit"},
		{"cursor: forged", "GET", many + "?cursor=AAAA", "", nil, 400, "bad_cursor"},
		{"cursor: forged, long", "GET", many + "?cursor=" + strings.Repeat("A", 64), "", nil, 400, "bad_cursor"},
		{"cursor: not of its alphabet", "GET", many + "?cursor=%27%20OR%201=1--", "", nil, 400, "bad_cursor"},
		{"sort: SQL", "GET", many + "?sort=due;drop%20table", "", nil, 400, "malformed"},
		{"limit: twice", "GET", many + "?limit=1&limit=2", "", nil, 422, "repeated"},
		{"sort: there is none", "GET", many + "?sort=due", "", nil, 422, "unknown query parameter"},
		{"filter: SQL", "GET", "/api/v1/jobs?filter=%27%20OR%201=1--", "", nil, 422, "unknown query parameter"},
		{"state: unknown", "GET", many + "?state=Running", "", nil, 422, "query.state"},
		{"worker: a NUL", "GET", many + "?worker=a%00b", "", nil, 422, "NUL"},
		{"worker: no UTF-8", "GET", many + "?worker=%ff", "", nil, 422, "UTF-8"},
		{"after: a NUL", "GET", "/api/v1/jobs?after=%00", "", nil, 422, "NUL"},
		{"jobs: a page of 1001", "GET", "/api/v1/jobs?limit=1001", "", nil, 422, "query.limit"},

		// Row 27: numbers.
		{"max concurrency: -1", "PATCH", edit, `{"maxConcurrency":-1}`, nil, 422, "body.maxConcurrency"},
		{"max concurrency: 2^31", "PATCH", edit, `{"maxConcurrency":2147483648}`, nil, 422, "body.maxConcurrency"},
		{"retries: -1", "PATCH", edit, `{"retries":-1}`, nil, 422, "body.retries"},
		{"retries: 10^6", "POST", trigger, `{"retries":1000000}`, nil, 422, "1000"},
		{"timeout: -1 s", "PATCH", edit, `{"timeout":"-1s"}`, nil, 422, "timeout"},
		{"timeout: 10000 years", "PATCH", edit, `{"timeout":"87600000h"}`, nil, 422, "too long"},
		{"timeout: 2 years", "PATCH", edit, `{"timeout":"17568h"}`, nil, 422, "timeout"},
		{"timeout: a number", "PATCH", edit, `{"timeout":5}`, nil, 422, "body.timeout"},
		{"timeout: no unit", "PATCH", edit, `{"timeout":"5"}`, nil, 422, "duration"},
		{"retry factor: 0", "PATCH", edit, `{"retryFactor":0}`, nil, 422, "body.retryFactor: expected number >= 1"},
		{"retry factor: 1e308", "PATCH", edit, `{"retryFactor":1e308}`, nil, 422, "body.retryFactor: expected number <= 100"},
		{"retry factor of a rule: 1e308", "PATCH", edit, `{"retryRules":[{"codes":["*"],"factor":1e308}]}`, nil, 422, "body.retryRules[0].factor: expected number <= 100"},
		{"priority: 101", "POST", trigger, `{"priority":101}`, nil, 422, "body.priority"},
		{"overlap: unknown", "PATCH", edit, `{"overlap":"both"}`, nil, 422, "body.overlap"},
		{"limits: without a maximum", "PATCH", edit, `{"limits":[{"name":"db"}]}`, nil, 422, "limit db"},

		// Row 28: bounds.
		{"start after end", "PATCH", edit, `{"start":"2030-01-02T00:00:00Z","end":"2030-01-01T00:00:00Z"}`, nil, 422, "after end"},
		{"start in year 1", "PATCH", edit, `{"start":"0001-01-01T00:00:01Z"}`, nil, 422, "1970"},
		{"start in year 9999", "PATCH", edit, `{"start":"9999-01-01T00:00:00Z"}`, nil, 422, "2199"},

		// Row 29: when.
		{"due in 300 years", "POST", trigger, `{"due":"2326-01-01T00:00:00Z"}`, nil, 422, "due"},
		{"due in 6 years", "POST", trigger, `{"due":"2099-01-01T00:00:00Z"}`, nil, 422, "5 years"},
		{"due in zone +25:00", "POST", trigger, `{"due":"2026-12-01T00:00:00+25:00"}`, nil, 422, "body.due"},
		{"due and delay", "POST", trigger, `{"due":"2026-12-01T00:00:00Z","delay":"1s"}`, nil, 422, "both"},
		{"negative delay", "POST", trigger, `{"delay":"-1s"}`, nil, 422, "delay"},

		// Row 30: idempotency keys.
		{"idempotency key of 1 KiB", "POST", trigger, `{}`, []string{"Idempotency-Key", strings.Repeat("k", 1024)}, 422, "header.Idempotency-Key"},
		{"idempotency key of 1 KiB, of a bulk", "POST", many, `{"items":[{"job":"billing.charge"}]}`, []string{"Idempotency-Key", strings.Repeat("k", 1024)}, 422, "header.Idempotency-Key"},

		// Row 31: bulks.
		{"bulk: empty", "POST", many, `{"items":[]}`, nil, 422, "body.items"},
		{"bulk: 100001", "POST", many, items(100_000, `{"job":"billing.charge"}`), nil, 422, "body.items"},
		{"bulk: one unknown job among 1000", "POST", many, items(999, `{"job":"nope"}`), nil, 404, "items[999]"},
		{"bulk: one bad number among 1000", "POST", many, items(999, `{"job":"billing.charge","retries":-1}`), nil, 422, "items[999].retries"},
		{"bulk: one bad delay among 1000", "POST", many, items(999, `{"job":"billing.charge","delay":"-1s"}`), nil, 422, "items[999]"},

		// Schedules, with the place.
		{"schedule: minute 60", "PATCH", edit, `{"schedule":"60 * * * *"}`, nil, 422, `"offset":0`},
		{"schedule: never fires", "PATCH", edit, `{"schedule":"0 0 30 2 *"}`, nil, 422, "never fires"},
		{"schedule: zone", "PATCH", edit, `{"zone":"../../etc/passwd"}`, nil, 422, "zone"},
		{"schedule: of a triggered job", "PATCH", "/api/v1/jobs/billing.charge", `{"schedule":"@daily"}`, nil, 409, "conflict"},
		{"clear: unknown field", "PATCH", edit, `{"clear":["cron"]}`, nil, 422, "cron"},
		{"If-Match: no ETag", "PATCH", edit, `{"retries":1}`, []string{"If-Match", "W/abc"}, 412, "stale"},
		{"If-Match: an old one", "PATCH", edit, `{"retries":1}`, []string{"If-Match", `"7"`}, 412, "stale"},
		{"If-Match: none", "PATCH", edit, `{"retries":1}`, []string{"If-Match", ""}, 428, "precondition_required"},
		{"If-Match: none, delete", "DELETE", edit, "", []string{"If-Match", ""}, 428, "precondition_required"},
		{"If-Match: an old one, delete", "DELETE", edit, "", []string{"If-Match", `"7"`}, 412, "stale"},
		{"delete: unknown fate", "DELETE", edit + "?runs=keep", "", nil, 422, "query.runs"},
		// Row 51: no caller raises its own role.
		{"a role in an edit", "PATCH", edit, `{"role":"admin"}`, nil, 422, "unexpected property"},
		{"a tenant in a run", "POST", trigger, `{"tenant":"other"}`, nil, 422, "unexpected property"},
		{"an actor in a run", "POST", trigger, `{"actor":"person:root"}`, nil, 422, "unexpected property"},
		{"a revision in an edit", "PATCH", edit, `{"revision":7}`, nil, 422, "unexpected property"},
		{"a hash in a token", "POST", "/api/v1/tokens", `{"name":"a","role":"admin","hash":"AAAA"}`, nil, 422, "unexpected property"},
		{"a key twice, in a token", "POST", "/api/v1/tokens", `{"name":"a","role":"viewer","role":"admin"}`, nil, 422, "is repeated"},
		{"a role that is none", "POST", "/api/v1/tokens", `{"name":"a","role":"root"}`, nil, 422, "body.role"},
		{"an app of an admin", "POST", "/api/v1/tokens", `{"name":"a","role":"admin","app":"billing"}`, nil, 422, "worker"},
		{"next: unknown gap", "GET", edit + "/next?gap=maybe", "", nil, 422, "query.gap"},
		{"next: start in year 9999", "GET", edit + "/next?start=9999-01-01T00:00:00Z", "", nil, 422, "2199"},
		{"audit: a page of 201", "GET", "/api/v1/audit?limit=201", "", nil, 422, "query.limit"},
		{"numbers: NaN", "POST", trigger, `{"priority":NaN}`, nil, 400, "malformed"},
		{"run: no UUID", "GET", many + "/17", "", nil, 422, "invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.t = t
			before := d.snapshot()
			a := d.send(c.method, c.path, c.body, c.headers...)
			p := a.problem(t)
			if a.StatusCode != c.status || p.Status != c.status || p.Code == "" || p.Title == "" || !strings.Contains(string(a.body), c.says) {
				t.Errorf("%d, want %d and %q: %.400s", a.StatusCode, c.status, c.says, a.body)
			}
			if strings.Contains(string(a.body), "json: ") || strings.Contains(string(a.body), "Go struct") || len(a.body) > 8<<10 {
				t.Errorf("it says too much: %.400s", a.body)
			}
			if after := d.snapshot(); after != before {
				t.Errorf("it was refused, and yet %s became %s", before, after)
			}
		})
	}
}

// What looks odd and is allowed.
func TestTaken(t *testing.T) {
	d := newFixture(t)
	odd := `{"$ref":"x","__proto__":{"a":1},"constructor":null}`
	run := read[api.Run](t, d.send("POST", trigger, `{"args":`+odd+`}`))
	if string(*run.Args) != odd {
		t.Errorf("arguments became %s", *run.Args)
	}
	if run := read[api.Run](t, d.send("POST", trigger, `{"due":"1950-01-01T00:00:00Z"}`)); run.State != "Enqueued" {
		t.Errorf("a run that was due long ago is %s", run.State)
	}
	if run := read[api.Run](t, d.send("POST", trigger, `{"timeout":"0s"}`)); run.State != "Enqueued" {
		t.Errorf("a run without a timeout is %s", run.State)
	}
	if run := read[api.Run](t, d.send("POST", trigger, `{"due":"1970-01-01T00:00:00Z"}`)); run.State != "Enqueued" || time.Since(*run.Due) > time.Hour {
		t.Errorf("a run that was due in 1970 is %s, due at %v", run.State, run.Due)
	}
	if run := read[api.Run](t, d.send("POST", trigger, `{"priority":-0}`)); run.Priority != 0 {
		t.Errorf("-0 became %d", run.Priority)
	}
	if job := read[api.Job](t, d.send("PATCH", edit, `{"end":"2020-01-01T00:00:00Z"}`)); len(job.Next) != 0 {
		t.Errorf("a job that has ended is due at %v", job.Next)
	}
	most := `{"x":"` + strings.Repeat("y", 256<<10-8) + `"}`
	if run := read[api.Run](t, d.send("POST", trigger, `{"args":`+most+`}`)); len(*run.Args) != 256<<10 {
		t.Errorf("%d bytes of arguments came back", len(*run.Args))
	}
	if run := read[api.Run](t, d.send("POST", trigger, `{"unique":"\ud83d\udd14"}`)); run.Unique != "\U0001f514" {
		t.Errorf("a whole surrogate pair became %q", run.Unique)
	}
}

func TestIdempotencyKeyWithAnotherBody(t *testing.T) {
	d := newFixture(t)
	d.send("POST", trigger, `{"priority":1}`, "Idempotency-Key", "k")
	before := d.snapshot()
	if p := d.send("POST", trigger, `{"priority":2}`, "Idempotency-Key", "k").problem(t); p.Status != 409 {
		t.Errorf("another body under the same key: %+v", p)
	}
	if after := d.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	if p := d.send("POST", many, `{"items":[{"job":"billing.charge","priority":1},{"job":"billing.charge"}]}`, "Idempotency-Key", "bulk"); p.StatusCode != 201 {
		t.Fatalf("%d %s", p.StatusCode, p.body)
	}
	before = d.snapshot()
	for body, place := range map[string]string{
		`{"items":[{"job":"billing.charge","priority":1},{"job":"billing.charge","priority":2}]}`: "body.items[1]",
		`{"items":[{"job":"billing.charge","priority":2},{"job":"billing.charge"}]}`:              "body.items[0]",
		`{"items":[{"job":"billing.close-day"}]}`:                                                 "body.items[0]",
	} {
		if p := d.send("POST", many, body, "Idempotency-Key", "bulk").problem(t); p.Status != 409 || p.Code != "conflict" || len(p.Errors) != 1 || p.Errors[0].Location != place {
			t.Errorf("another bulk under the same key: %+v, want %s", p, place)
		}
	}
	if after := d.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	// What looks like the rest of a bulk that was cut off is started.
	longer := read[struct{ Items []api.Run }](t, d.send("POST", many, `{"items":[{"job":"billing.charge","priority":1},{"job":"billing.charge"},{"job":"billing.charge"}]}`, "Idempotency-Key", "bulk"))
	if len(longer.Items) != 3 || !longer.Items[0].Duplicate || !longer.Items[1].Duplicate || longer.Items[2].Duplicate {
		t.Errorf("a longer bulk under the same key: %+v", longer)
	}
}

// broken is a store that fails in the way that must stay inside.
type broken struct {
	metastore.Store
	panics bool
}

const secret = "dsn=postgres://u:hunter2@db"

func (b broken) Definitions(context.Context, metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	if b.panics {
		panic(secret)
	}
	return nil, errors.New(secret)
}

func TestInternalErrorsStayInside(t *testing.T) {
	for _, panics := range []bool{false, true} {
		d := newFixture(t)
		log := newLog(&d.log)
		d.Handler = api.Guard(log, "", api.New(api.Config{Ops: ops.New(ops.Config{Store: broken{d.store, panics}}), Logger: log}))
		a := d.send("GET", "/api/v1/jobs", "")
		p := a.problem(t)
		if p.Status != 500 || p.Code != "internal" || strings.Contains(string(a.body), "hunter2") {
			t.Errorf("panics %v: %s", panics, a.body)
		}
		if !strings.Contains(d.log.String(), "hunter2") {
			t.Errorf("panics %v: the log does not say why: %s", panics, d.log.String())
		}
	}
}

// What the store says about its own trouble stays inside, too.
type away struct{ metastore.Store }

func (away) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "outcome unknown: dial tcp 10.1.2.3:4222"))
}

func (away) Global(context.Context, jobs.Tenant) (*kernel.Global, error) {
	return nil, kernel.Refuse(jobs.Unavailable, "not done: dial tcp 10.1.2.3:4222")
}

func TestTroubleStaysInside(t *testing.T) {
	d := newFixture(t)
	d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: away{d.store}})})
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"POST", trigger, 504, "outcome_unknown"},
		{"POST", many, 504, "outcome_unknown"},
		{"GET", "/api/v1/settings", 503, "unavailable"},
		{"GET", "/readyz", 503, "not_ready"},
		{"GET", "/leaderz", 503, "not_ready"},
	} {
		body := ""
		if c.path == many {
			body = `{"items":[{"job":"billing.charge"}]}`
		}
		a := d.send(c.method, c.path, body)
		if p := a.problem(t); p.Status != c.status || p.Code != c.code || strings.Contains(string(a.body), "10.1.2.3") {
			t.Errorf("%s: %s", c.path, a.body)
		}
	}
}

// Whatever a client would like to have, it gets JSON.
func TestAnswersAreJSON(t *testing.T) {
	d := newFixture(t)
	for _, accept := range []string{"text/html", "application/json;q=0.1, text/plain", "*/*", ""} {
		h := d.send("GET", "/api/v1/jobs", "", "Accept", accept).Header
		if kind := h.Get("Content-Type"); kind != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("Accept %q: %s, %q", accept, kind, h.Get("X-Content-Type-Options"))
		}
	}
}

// Row 10: names of the server are an allow-list, and what proxies say does not count.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		allowed []string
		want    map[string]int
	}{
		{nil, map[string]int{"localhost:8080": 204, "127.0.0.1:8080": 204, "[::1]:8080": 204, "LOCALHOST": 204, "localhost.": 204, "192.168.7.7:8080": 204,
			"evil.com": 421, "127.0.0.1.evil.com:8080": 421, "": 421, "192.168.1.1": 421}},
		{[]string{"Jobs.Example.com", "10.0.0.7:8080"}, map[string]int{"jobs.example.com:443": 204, "10.0.0.7": 204, "localhost": 204,
			"example.com": 421, "x.jobs.example.com": 421, "10.0.0.8": 421}},
		{[]string{"*"}, map[string]int{"anything": 204}},
	} {
		h := api.Hosts(c.allowed, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
		for host, want := range c.want {
			r := httptest.NewRequest("GET", "/", nil)
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(192, 168, 7, 7)}))
			r.Host = host
			r.Header.Set("X-Forwarded-Host", "localhost")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("allowed %v, host %q: %d, want %d", c.allowed, host, w.Code, want)
			}
		}
	}
}

// Where authentication is off, what came through a proxy is refused, whatever header says so; other headers are not.
func TestDirect(t *testing.T) {
	h := api.Direct(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	for header, want := range map[string]int{"Forwarded": 403, "x-forwarded-for": 403, "X-Forwarded-Host": 403, "X-Forwarded-Proto": 403, "X-Forwarded-Server": 403,
		"X-Real-IP": 403, "Via": 403, "CF-Connecting-IP": 403, "True-Client-IP": 403, "X-Request-Id": 204, "Origin": 204, "Authorization": 204} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(header, "") // an empty one is one
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == 403 && !strings.Contains(w.Body.String(), "auth: on") {
			t.Errorf("%s: %d %s, want %d", header, w.Code, w.Body, want)
		}
	}
}

func TestAllowNamesTheMethods(t *testing.T) {
	d := newFixture(t)
	if allow := d.send("PUT", many, "").Header.Get("Allow"); allow != "GET, POST" {
		t.Errorf("Allow: %s", allow)
	}
}
