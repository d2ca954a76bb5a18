package httpspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/jobs"
)

// values are what the templates of these tests are filled with.
func values() httpspec.Values {
	return httpspec.Values{
		System:    map[string]any{httpspec.JobID: "20220125", httpspec.ExecuteNumber: 7, httpspec.FeedbackURL: "https://here/f?a=1&b=2", httpspec.NotifyBody: map[string]any{"httpStatus": "200"}},
		Variables: map[string]string{"REGION": "eu west/1"},
		Named:     map[string]any{"FIRST": map[string]any{"n": json.Number("1"), "t": `a "quoted" <text>`}, "TEXT": `{"inner":[1,2]}`, "WORDS": "no JSON"},
		Responses: []any{map[string]any{"student": []any{"ann", "bob"}, "aaa": "from the answer"}},
		Args:      map[string]any{"aaa": "from the arguments", "bbb": "b&c=d/e?f#g", "up": "..", "line": "a\r\nX-Evil: 1", "closes": `"},"admin":true,{"`, "away": "@evil.example/", "deep": map[string]any{"n": json.Number("3")}},
		Secrets:   httpspec.Secrets{"TOKEN": {Value: "s3cr3t/value", Hosts: []string{"h"}}},
	}
}

func call(url, body string) string {
	b := ""
	if body != "" {
		b = `,"body":` + body
	}
	return fmt.Sprintf(`{"request":[{"url":"http://x/","respEnvName":"FIRST"},{"url":"http://x/","respEnvName":"TEXT"},{"url":"http://x/","respEnvName":"WORDS"},{"method":"POST","url":%q%s}]}`, url, b)
}

func fill(t *testing.T, spec string) (*httpspec.Filled, error) {
	t.Helper()
	p, err := httpspec.Parse([]byte(spec))
	if err != nil {
		t.Fatalf("%v: %s", err, spec)
	}
	return p.Steps[len(p.Steps)-1].Fill(values())
}

func TestS2_41PathsAndEscapes(t *testing.T) {
	for _, c := range []struct{ url, body, wantURL, wantBody string }{
		{"http://h/a", `{"a":1,"b":[true,null,"x"]}`, "http://h/a", `{"a":1,"b":[true,null,"x"]}`},
		{"http://h/${jobId}?n=${executeNumber}", `"plain ${jobId}"`, "http://h/20220125?n=7", "plain 20220125"},
		{"http://h/${$.bbb}?q=${$.bbb}", "", "http://h/b&c=d%2Fe%3Ff%23g?q=b%26c%3Dd%2Fe%3Ff%23g", ""},
		{"http://h/${$.up}/x", "", "http://h/%2E%2E/x", ""},
		{"http://h/${REGION}", `{"at":"${REGION}"}`, "http://h/eu%20west%2F1", `{"at":"eu west/1"}`},
		{"http://h/?callback=${schedulingFeedbackUrl}", "", "http://h/?callback=https%3A%2F%2Fhere%2Ff%3Fa%3D1%26b%3D2", ""},
		{"http://h/?a=${$.aaa}&b=${responses[0].student[1]}", "", "http://h/?a=from+the+answer&b=bob", ""},
		{"http://h/", `{"school":"${$.student}|json","n":"${$.deep.n}|json","t":"${$.deep.n}"}`, "http://h/", `{"school":["ann","bob"],"n":3,"t":"3"}`},
		{"http://h/", `{"all":"${$.responses}|json"}`, "http://h/", `{"all":[{"aaa":"from the answer","student":["ann","bob"]}]}`},
		{"http://h/", `{"z":"${FIRST}","a":"${FIRST}|json"}`, "http://h/", `{"z":"{\"n\":1,\"t\":\"a \\\"quoted\\\" <text>\"}","a":{"n":1,"t":"a \"quoted\" <text>"}}`},
		{"http://h/", `{"t":"${$.closes}"}`, "http://h/", `{"t":"\"},\"admin\":true,{\""}`},
		{"http://h/${$.away}", "", "http://h/@evil.example%2F", ""},
		{"http://h/", `{"inner":"${TEXT}|json"}`, "http://h/", `{"inner":{"inner":[1,2]}}`},
		{"http://h/", `"${schedulingNotifyBody}|json"`, "http://h/", `{"httpStatus":"200"}`},
		{"http://h", "", "http://h", ""},
		{"http://h/${responses[0].student[0] responses[0].aaa}?q=${$.bbb $.deep.n}", `{"t":"${responses[0].student[1]  $.deep.n}"}`, "http://h/ann%20from%20the%20answer?q=b%26c%3Dd%2Fe%3Ff%23g+3", `{"t":"bob 3"}`},
		{"http://h?x#fragment", "", "http://h?x", ""},
	} {
		f, err := fill(t, call(c.url, c.body))
		if err != nil || f.URL != c.wantURL || string(f.Body) != c.wantBody {
			t.Errorf("%s %s: %+v, %v\nwant %s %s", c.url, c.body, f, err, c.wantURL, c.wantBody)
			continue
		}
		if _, err := url.Parse(f.URL); err != nil {
			t.Errorf("%s became no URL: %v", c.url, err)
		}
		if f.IsJSON && !json.Valid(f.Body) {
			t.Errorf("%s is not JSON", f.Body)
		}
	}
}

func TestValuesThatAreNotThere(t *testing.T) {
	for _, c := range []struct{ url, body, want string }{
		{"http://h/${MISSING}", "", "${MISSING}"},
		{"http://h/${$.nothing}", "", "${$.nothing}"},
		{"http://h/${responses[2].a}", "", "${responses[2].a}"},
		{"http://h/${$.aaa responses[1].a}", "", "${$.aaa responses[1].a}"},
		{"http://h/${secret:OTHER}", "", "secret OTHER"},
		{"http://h/${env.DB_PASSWORD}", "", "${env.DB_PASSWORD}"},
		{"http://h/${$.a.b[999999]}", "", "${$.a.b[999999]}"},
		{"http://h/${responses[-1].student[999999]}", "", "${responses[-1].student[999999]}"},
		{"http://h/", `{"a":"${WORDS}|json"}`, "not JSON"},
	} {
		if f, err := fill(t, call(c.url, c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s became %+v, %v; want ...%s...", c.url, c.body, f, err, c.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	f, err := fill(t, `{"request":[{"url":"http://h/","headers":{"Authorization":"Bearer ${secret:TOKEN}","X-Name":"${jobId}"}}]}`)
	if err != nil || f.Headers["Authorization"] != "Bearer s3cr3t/value" || f.Headers["X-Name"] != "20220125" {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := fill(t, `{"request":[{"url":"http://h/","headers":{"X-Line":"${$.line}"}}]}`); err == nil || strings.Contains(err.Error(), "Evil") {
		t.Errorf("a header with a line break: %v", err)
	}
}

func TestRefused(t *testing.T) {
	one := func(fields string) string { return `{"request":[{` + fields + `}]}` }
	for spec, want := range map[string]string{
		`{}`:                                     "needs a request",
		`{"request":[]}`:                         "needs a request",
		`{"requests":[]}`:                        "unknown field",
		`[]`:                                     "cannot unmarshal",
		one(``):                                  "request[0].url is missing",
		one(`"uri":"http://x"`):                  "unknown field",
		`{"Request":[{"url":"http://x"}]}`:       `unknown field "Request": write request`,
		one(`"URL":"http://x"`):                  `unknown field "URL": write url`,
		one(`"url":"http://x","Url":"http://y"`): `unknown field "Url": write url`,
		one(`"url":"http://x","respenvname":"a"`):                                          `unknown field "respenvname": write respEnvName`,
		`{"request":[{"url":"http://x"}],"notification":[{"uRL":"http://x"}]}`:             `unknown field "uRL": write url`,
		`{"request":[{"url":"http://x"}],"async":true,"checkUrl":{"\u0055rl":"http://x"}}`: `unknown field "Url": write url`,
		one(`"url":"ftp://x/"`):                                        "must begin with",
		one(`"url":"x/y"`):                                             "must begin with",
		one(`"url":"file:///etc/passwd"`):                              "must begin with",
		one(`"url":"gopher://x/"`):                                     "must begin with",
		one(`"url":"unix:///run/x.sock"`):                              "must begin with",
		one(`"url":"http+unix://x/"`):                                  "must begin with",
		one(`"url":"${$.scheme}://x/"`):                                "must begin with",
		one(`"url":"http://${$.host}/"`):                               "may not contain values",
		one(`"url":"http://a${$.host}.example.com/"`):                  "may not contain values",
		one(`"url":"service://${$.name}/x"`):                           "may not contain values",
		one(`"url":"http://x:${$.port}/"`):                             "may not contain values",
		one(`"url":"http://user:pw@x/"`):                               "user or a password",
		one(`"url":"http://x:99999/"`):                                 "want 1 to 65535",
		one(`"url":"http://x:0/"`):                                     "want 1 to 65535",
		one(`"url":"http://x:22/"`):                                    "another protocol",
		one(`"url":"http://x:6379/"`):                                  "another protocol",
		one(`"url":"http://x:25/"`):                                    "another protocol",
		one(`"url":"http://x:/"`):                                      "port is not a number",
		one(`"url":"http://h;evil/"`):                                  "invalid host",
		one(`"url":"http://h%2eevil/"`):                                "invalid host",
		one(`"url":"http://h\\evil/"`):                                 "invalid host",
		one(`"url":"http://-h/"`):                                      "invalid host",
		one(`"url":"http://[::1/"`):                                    "invalid host",
		one(`"url":"http://[1.2.3.4]/"`):                               "invalid host",
		one(`"url":"http://[fe80::1%25eth0]/"`):                        "invalid host",
		one(`"url":"http://x/","headers":{"X":"a\r\nY: b"}`):           "request[0].headers.X: the value has a line break",
		one(`"url":"http://x/","headers":{"X":"a\u0000"}`):             "request[0].headers.X: the value has a line break",
		one(`"url":"http://x/","body":"${schedulingNotifyBody|json}"`): `write "${schedulingNotifyBody}|json"`,
		one(`"url":"http://bücher.example/x"`):                         "xn--",
		one(`"url":"http:///x"`):                                       "no host",
		one(`"url":"http:x"`):                                          "no host",
		one(`"url":"http://x/a b"`):                                    "a space",
		one(`"url":"http://x/\u0000"`):                                 "a space",
		one(`"url":"service:/x"`):                                      "own service",
		one(`"url":"service://{serviceName}/x"`):                       "own service",
		one(`"url":"http://x/${"`):                                     "has no }",
		one(`"url":"http://x/${a b}"`):                                 "a name stands alone",
		one(`"url":"http://x/${}"`):                                    "names no value",
		one(`"url":"http://x/${responses[0].a}"`):                      "at most 0 responses before this call",
		one(`"url":"http://x/","body":"${schedulingBody}|json"`):       "names that begin with scheduling belong to the system",
		one(`"url":"http://x/","body":{"a":"${$.a $.b}|json"}`):        "the reference must have one path",
		`{"request":[{"url":"http://x/"}],"notification":[{"url":"http://x/","body":"${schedulingNotifyBdoy}|json"}]}`: "notification[0].body: ${schedulingNotifyBdoy}",
		`{"request":[{"url":"http://x/"}],"notification":[{"url":"http://x/","body":"${responses[1].a}"}]}`:            "notification[0].body: ${responses[1].a}: there are at most 1",
		one(`"url":"http://x/${${x}}"`):                                                                 "neither a name nor a path",
		one(`"url":"http://x/${$..a}"`):                                                                 "a path to one value",
		one(`"url":"http://x/${$.a[*]}"`):                                                               "a path to one value",
		one(`"url":"http://x/${$.a[?(@.b==1)]}"`):                                                       "a path to one value",
		one(`"url":"http://x/${secret:a.b}"`):                                                           "in a secret's name",
		one(`"url":"http://x/","method":"TRACE"`):                                                       "method",
		one(`"url":"http://x/","headers":{"a b":"c"}`):                                                  "invalid header name",
		one(`"url":"http://x/","headers":{"Host":"c"}`):                                                 "connection sets this header",
		one(`"url":"http://x/","headers":{"content-length":"7"}`):                                       "request[0].headers.content-length: the connection sets this header",
		one(`"url":"http://x/","headers":{"Transfer-Encoding":"chunked"}`):                              "connection sets this header",
		one(`"url":"http://x/","headers":{"Proxy-Authorization":"c"}`):                                  "connection sets this header",
		one(`"url":"http://x/","headers":{"Proxy-Whatever":"c"}`):                                       "connection sets this header",
		one(`"url":"http://x/","headers":{"Proxy":"http://evil.example"}`):                              "connection sets this header",
		one(`"url":"http://x/","body":{"a":"${X}|json${Y}|json"}`):                                      "only one |json",
		one(`"url":"http://x/","body":{"a":["x ${X}|json"]}`):                                           "request[0].body.a[0]",
		one(`"url":"http://x/","respEnvName":"a b"`):                                                    "respEnvName",
		one(`"url":"http://x/","respEnvName":"jobId"`):                                                  "name of the system",
		`{"request":[{"url":"http://x/","respEnvName":"A"},{"url":"http://x/","respEnvName":"A"}]}`:     "used twice",
		`{"request":[{"url":"http://x/"}],"checkUrl":"http://x/"}`:                                      "needs async",
		`{"request":[{"url":"http://x/"}],"async":true,"checkUrl":{"method":"POST","url":"http://x/"}}`: "want GET",
		`{"request":[{"url":"http://x/"}],"qos":2}`:                                                     "qos: invalid value 2",
		`{"request":[{"url":"http://x/"}],"checkRateSeconds":-1}`:                                       "checkRateSeconds",
		`{"request":[{"url":"http://x/"}],"notification":[{}]}`:                                         "notification[0].url is missing",
		`{"request":[` + strings.Repeat(`{"url":"http://x/"},`, 32) + `{"url":"http://x/"}]}`:           "at most 32",
		`{"request":[{"url":"http://x/` + strings.Repeat("a", 9<<10) + `"}]}`:                           "at most 8192",
		strings.Repeat(" ", 65<<10):                                                                     "at most 65536",
	} {
		if _, err := httpspec.Parse([]byte(spec)); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want ...%s...", spec, err, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	p, err := httpspec.Parse([]byte(`{"request":[{"url":"http://x/${B}/${A}","respEnvName":"OUT"},{"url":"http://x/${OUT}?${A}"}],"async":true,"checkUrl":"http://x/${jobId}",
		"notification":[{"url":"http://x/","stateEquals":"timeout"}]}`))
	if err != nil || fmt.Sprint(p.Needs) != "[{B request[0].url} {A request[0].url} {A request[1].url}]" || p.Check == nil || len(p.Notify) != 1 || p.CheckURL.URL != "http://x/${jobId}" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestS2_51Services(t *testing.T) {
	table := httpspec.Services{"oa": "http://oa:8080/", "mine": "https://mine/base", "serviceGateway": "http://kong"}
	if err := table.Check(); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"service://oa/main/api":                  "http://oa:8080/main/api",
		"service://{serviceName}/main/api":       "https://mine/base/main/api",
		"service:/main/api":                      "https://mine/base/main/api",
		"service://{serviceGateway}/oa/main/api": "http://kong/oa/main/api",
		"service://oa?x=${$.bbb}":                "http://oa:8080?x=b%26c%3Dd%2Fe%3Ff%23g",
		"http://www.example.com/main/api":        "http://www.example.com/main/api",
	} {
		f, err := fill(t, `{"serviceName":"mine","request":[{"url":"`+url+`"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := table.Resolve(f, nil); err != nil || got != want {
			t.Errorf("%s is at %s, %v; want %s", url, got, err, want)
		}
	}
	f, err := fill(t, `{"request":[{"url":"service://missing/x"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Resolve(f, nil); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a service that is not there: %v", err)
	}
	for _, base := range []string{"", "oa:8080", "ftp://oa", "http://", "http://u:p@oa", "http://oa?x=1"} {
		if (httpspec.Services{"oa": base}).Check() == nil {
			t.Errorf("%q was taken for a service's URL", base)
		}
	}
}

// Whatever is written and whatever the values are: no panic, and where a call is made, its host is the one that was
// written.
func FuzzTemplates(f *testing.F) {
	f.Add("http://host/a/${$.v}?q=${$.v}", `{"a":"${$.v}|json"}`, "x")
	f.Add("http://host/${$.v}", `"${$.v}"`, "//evil.example.com/")
	f.Add("service://host${$.v}/", `[]`, "@evil")
	f.Fuzz(func(t *testing.T, at, body, value string) {
		at = strings.ToValidUTF8(at, "?") // as JSON carries it
		spec, err := json.Marshal(map[string]any{"request": []any{map[string]any{"url": at, "body": json.RawMessage(or(body))}}})
		if err != nil {
			return
		}
		p, err := httpspec.Parse(spec)
		if err != nil {
			return
		}
		written, err := url.Parse(strings.NewReplacer("${", "", "}", "").Replace(at))
		filled, fillErr := p.Steps[0].Fill(httpspec.Values{Args: map[string]any{"v": value}})
		if fillErr != nil || err != nil {
			return
		}
		u, err := url.Parse(filled.URL)
		if err == nil && !strings.HasPrefix(at, "service") && u.Host != written.Host {
			t.Errorf("%q with %q leads to host %q", at, value, u.Host)
		}
		if filled.IsJSON && !json.Valid(filled.Body) {
			t.Errorf("%q with %q became %q, which is not JSON", body, value, filled.Body)
		}
	})
}

func or(body string) string {
	if json.Valid([]byte(body)) {
		return body
	}
	return "null"
}
