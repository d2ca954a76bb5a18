package httpspec_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A secret is sent to the hosts that it names, whatever a job says.
func TestSecretsNameTheirHosts(t *testing.T) {
	table := httpspec.Services{"billing": "http://10.1.0.7:8080/api", "evil": "http://evil.example"}
	for _, c := range []struct {
		hosts, url string
		may        bool
	}{
		{"api.example.com", "https://api.example.com/x", true},
		{"api.example.com", "https://API.example.COM:8443/x", true},
		{"api.example.com", "https://evil.example/x", false},
		{"api.example.com", "https://api.example.com.evil.example/x", false},
		{"api.example.com", "https://example.com/x", false},
		{"api.example.com", "https://x.api.example.com/x", false},
		{"api.example.com:443", "https://api.example.com/x", true},
		{"api.example.com:443", "http://api.example.com/x", false},
		{"api.example.com:8443", "https://api.example.com/x", false},
		{"other.example api.example.com", "https://api.example.com/x", true},
		{"[::1]", "http://[::1]:8080/x", true},
		{"[::1]:8081", "http://[::1]:8080/x", false},
		{"10.1.0.7:8080", "service://billing/x", true},
		{"10.1.0.7:8080", "service://evil/x", false},
		{"billing", "service://billing/x", false},
	} {
		secrets := httpspec.Secrets{"TOKEN": {Value: "s3cr3t", Hosts: strings.Fields(c.hosts)}}
		if err := secrets.Check(); err != nil {
			t.Fatal(err)
		}
		for what, where := range map[string]string{"header": `"headers":{"X":"${secret:TOKEN}"}`, "body": `"method":"POST","body":{"a":["${secret:TOKEN}"]}`, "spliced": `"body":{"a":"${secret:TOKEN}|json"}`} {
			spec := `{"request":[{"url":"` + c.url + `",` + where + `}]}`
			p, err := httpspec.Parse([]byte(spec))
			if err != nil {
				t.Fatal(err)
			}
			f, err := p.Steps[0].Fill(httpspec.Values{Secrets: httpspec.Secrets{"TOKEN": {Value: `"s3cr3t"`}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := table.Resolve(f, secrets); (err == nil) != c.may || err != nil && (!errors.Is(err, jobs.Forbidden) || strings.Contains(err.Error(), "s3cr3t")) {
				t.Errorf("%s of %s for %s: %v", what, c.url, c.hosts, err)
			}
			if place, err := httpspec.CheckFor([]byte(spec), table, secrets, nil); (err == nil) != c.may || err != nil && place != "request[0].url" {
				t.Errorf("%s of %s for %s is stored: %q %v", what, c.url, c.hosts, place, err)
			}
		}
	}
	for what, s := range map[string]httpspec.Secret{"no host": {Value: "x"}, "an empty host": {Value: "x", Hosts: []string{""}}, "a URL": {Value: "x", Hosts: []string{"https://a"}},
		"a pattern": {Value: "x", Hosts: []string{"*.example.com"}}, "no value": {Hosts: []string{"a"}}, "port 22": {Value: "x", Hosts: []string{"a:22"}}} {
		if err := (httpspec.Secrets{"TOKEN": s}).Check(); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "TOKEN") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What is missing where a job runs is said when it is stored.
func TestWhatAJobNeeds(t *testing.T) {
	for spec, want := range map[string]string{
		`{"request":[{"url":"service://missing/x"}]}`:                                                                           "request[0].url",
		`{"request":[{"url":"http://x/"},{"url":"http://x/","headers":{"X":"${secret:NONE}"}}]}`:                                "request[1].url",
		`{"request":[{"url":"http://x/"}],"async":true,"checkUrl":"service://missing/x"}`:                                       "checkUrl.url",
		`{"request":[{"url":"http://x/"}],"notification":[{"url":"service://oa/x"},{"url":"service://{serviceGateway}/oa/x"}]}`: "notification[1].url",
		`{"request":[{"url":"service://oa/x"}]}`:                                                                                "",
	} {
		place, err := httpspec.CheckFor([]byte(spec), httpspec.Services{"oa": "http://oa"}, nil, nil)
		if place != want || (err == nil) != (want == "") {
			t.Errorf("%s: %q, %v", spec, place, err)
		}
	}
}

// The called system may repeat a secret in any of these encodings. All of them are hidden.
func TestMask(t *testing.T) {
	for _, secret := range []string{"s3cr3t/value+1", "pass word=%&?<x>\"y\"", "0123456789abcdef", "correct horse battery staple", "ключ-к-дверям"} {
		m := httpspec.NewMask("other", secret, "")
		forms := map[string]string{"plain": secret, "query": url.QueryEscape(secret), "path": url.PathEscape(secret), "small escapes": strings.ToLower(url.QueryEscape(secret)),
			"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret)))}
		if secret != strings.ToLower(secret) {
			t.Fatal("the secrets of this test have small letters only")
		}
		raw, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		forms["JSON"] = string(raw)
		for name, e := range map[string]*base64.Encoding{"std": base64.StdEncoding, "raw": base64.RawStdEncoding, "url": base64.URLEncoding, "raw url": base64.RawURLEncoding} {
			forms[name] = e.EncodeToString([]byte(secret))
			for _, before := range []string{"u", "us", "user:"} {
				for _, after := range []string{"", "\n", ":x"} {
					forms[name+" "+before+after] = e.EncodeToString([]byte(before + secret + after))
				}
			}
		}
		for what, form := range forms {
			got := m.Text("before " + form + " after")
			if !strings.Contains(got, "***") || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("%q as %s: %q became %q", secret, what, form, got)
			}
			left := strings.NewReplacer("before ", "", " after", "", "***", " ").Replace(got)
			for part := range strings.FieldsSeq(left) {
				// Of base64, what stands at the edges is not the secret's alone. Nothing longer stays.
				if len(part) > 10 || strings.Contains(part, secret) {
					t.Errorf("%q as %s leaves %q", secret, what, part)
				}
			}
		}
		if got := m.Text("nothing to hide, in 61626364 or YWJjZA=="); strings.Contains(got, "***") {
			t.Errorf("%q hides %q", secret, got)
		}
	}
}
