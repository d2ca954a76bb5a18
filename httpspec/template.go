package httpspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ohler55/ojg/jp"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// The names that the system defines.
const (
	FeedbackURL = "schedulingFeedbackUrl" // where the other system reports progress
	// InnerFeedbackURL is the same for internal systems, if that differs.
	InnerFeedbackURL = "schedulingInnerFeedbackUrl"
	JobID            = "schedulingJobId"         // the job's key
	ExecuteNumber    = "schedulingExecuteNumber" // number of the job's execution
	RequestCounts    = "schedulingRequestCounts" // number of the execution's request, from 1
	NotifyBody       = "schedulingNotifyBody"    // content of a notification, as JSON
)

// system are the names that the system defines, and their short forms.
var system = []string{FeedbackURL, InnerFeedbackURL, JobID, ExecuteNumber, RequestCounts, NotifyBody, "jobId", "executeNumber"}

// systemPrefix is what the system's names begin with.
const systemPrefix = "scheduling"

// Values are the values for templates.
type Values struct {
	System    map[string]any    // by the names above; the short forms are derived
	Variables map[string]string // that the worker has, by name
	Named     map[string]any    // responses by respEnvName
	Responses []any             // responses in order
	Args      map[string]any    // of the run
	Secrets   Secrets
	// Lenient makes null of a path without a value: a notification about a failure is sent whatever the responses lack.
	Lenient bool
}

// Filled is a call with its values; its URL still names the service.
type Filled struct {
	Method  string
	URL     string // http, https or service
	Own     string // the service of service:/path
	Headers map[string]string
	Body    []byte // nil = none
	IsJSON  bool   // the body is JSON

	secrets []string // names of the secrets in it
}

// Template is a compiled call without values.
type Template struct {
	where   string
	method  string
	fixed   string // scheme and host, or the service, as written
	own     string
	path    text
	query   text // with its "?"; empty if there is none
	headers map[string]text
	body    node
	hasBody bool
	plain   bool     // the body is a text
	secrets []string // names of the secrets that it needs
	named   []string // names of responses that it needs
	paths   bool     // it needs arguments or responses by path
}

// Named returns the names of the responses that the call needs.
func (t *Template) Named() []string { return t.named }

// Paths reports whether the call needs arguments or responses by path.
func (t *Template) Paths() bool { return t.paths }

// text is literal pieces and references between them.
type text []piece

type piece struct {
	literal string
	ref     *ref
}

// ref is one ${...}.
type ref struct {
	source string // as written, for errors
	name   string // a name; "" = paths or a secret
	secret string
	paths  []jp.Expr // more than one: their values as text, with a space between them
}

// node is a value of a body, whose strings are templates.
type node struct {
	literal any
	text    text
	splice  *ref // ${...}|json: the value itself
	fields  []field
	items   []node
	kind    byte // 'v' literal, 't' text, 's' splice, 'o' object, 'a' array
}

type field struct {
	name string
	node node
}

type compiler struct {
	plan      *Plan
	named     []string
	responses int // the most that precede the current call
	current   *Template
}

func place(what string, i int) string { return fmt.Sprintf("%s[%d]", what, i) }

var (
	methods    = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$")
	// reserved are headers that the connection sets itself, with all that begin with proxy-. Proxy is included because
	// CGI programs read it as their setting HTTP_PROXY.
	reserved = []string{"host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "proxy"}
	// placeholders are services that are resolved at the call; no value of a run can be one.
	placeholders = []string{"{serviceName}", "{serviceGateway}"}
)

func (c *compiler) call(where string, k *Call) (*Template, error) {
	t := &Template{where: where, method: k.Method, own: k.ServiceName, headers: map[string]text{}}
	if t.method == "" {
		t.method = "GET"
	}
	c.current = t
	if !slices.Contains(methods, t.method) {
		return nil, kernel.Invalid("%s.method: invalid method %.20q: want one of %s", where, k.Method, strings.Join(methods, ", "))
	}
	if t.own == "" {
		t.own = c.plan.ServiceName
	}
	if err := c.url(where+".url", t, k.URL); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(k.Headers)) {
		at := where + ".headers." + name
		switch {
		case !headerName.MatchString(name):
			return nil, kernel.Invalid("%s.headers: invalid header name %.40q", where, name)
		case slices.Contains(reserved, strings.ToLower(name)), strings.HasPrefix(strings.ToLower(name), "proxy-"):
			return nil, kernel.Invalid("%s: the connection sets this header: remove it", at)
		}
		v, err := c.text(at, k.Headers[name])
		if err != nil {
			return nil, err
		}
		for _, p := range v {
			if strings.ContainsFunc(p.literal, notInHeader) {
				return nil, kernel.Invalid("%s: the value has a line break, or another character that is invalid in a header", at)
			}
		}
		t.headers[name] = v
	}
	if err := c.body(where+".body", t, k.Body); err != nil {
		return nil, err
	}
	slices.Sort(t.secrets)
	t.secrets = slices.Compact(t.secrets)
	return t, nil
}

// notInHeader reports whether a character is invalid in a header's value.
func notInHeader(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// severalPaths matches a reference with spaces between paths.
var severalPaths = regexp.MustCompile(`\$\{[^{}\x00-\x1f\x7f]*\}`)

// url parses a URL. No reference may be before its path: scheme and host never come from data.
func (c *compiler) url(where string, t *Template, raw string) error {
	scheme, rest, ok := strings.Cut(raw, ":")
	switch {
	case raw == "":
		return kernel.Invalid("%s is missing", where)
	case len(raw) > MaxURL:
		return kernel.Invalid("%s has %d bytes, at most %d are allowed", where, len(raw), MaxURL)
	case strings.ContainsFunc(severalPaths.ReplaceAllString(raw, "${}"), func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return kernel.Invalid("%s %.80q has a space or a character that is invalid in a URL", where, raw)
	case !ok || scheme != "http" && scheme != "https" && scheme != "service":
		return kernel.Invalid("%s %.80q must begin with http://, https:// or service:, which no value can give", where, raw)
	}
	rest, _, _ = strings.Cut(rest, "#") // a fragment is never sent
	host := ""
	switch authority, is := strings.CutPrefix(rest, "//"); {
	case is:
		end := strings.IndexAny(authority, "/?")
		if end < 0 {
			end = len(authority)
		}
		host, rest = authority[:end], authority[end:]
		if scheme == "service" && slices.Contains(placeholders, host) {
			break
		}
		if strings.ContainsAny(host, "${}") {
			return kernel.Invalid("%s: the host %.80q may not contain values: write it out, or use service://name", where, host)
		}
		switch err := checkHost(host); {
		case host == "":
			return kernel.Invalid("%s %.80q has no host", where, raw)
		case strings.Contains(host, "@"):
			return kernel.Invalid("%s: %.80q has a user or a password: use a header", where, host)
		case strings.ContainsFunc(host, func(r rune) bool { return r > '~' }):
			return kernel.Invalid("%s: the host %.80q has letters that are invalid in a host: write it in its xn-- form", where, host)
		case err != nil:
			return kernel.Invalid("%s: %v", where, err)
		}
	case scheme != "service" || !strings.HasPrefix(rest, "/"):
		return kernel.Invalid("%s %.80q has no host", where, raw)
	}
	t.fixed = scheme + "://" + host
	if host == "" {
		t.fixed = "service:"
	}
	if (host == "" || host == "{serviceName}") && t.own == "" {
		return kernel.Invalid("%s names the job's own service: set serviceName", where)
	}
	path, query, has := cutQuery(rest)
	var err error
	if t.path, err = c.text(where, path); err != nil {
		return err
	}
	if has {
		t.query, err = c.text(where, "?"+query)
	}
	return err
}

// cutQuery cuts at the first ? outside of references.
func cutQuery(s string) (path, query string, has bool) {
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], "${") {
			if end := strings.IndexByte(s[i:], '}'); end > 0 {
				i += end
				continue
			}
		}
		if s[i] == '?' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// text parses a text with references.
func (c *compiler) text(where, s string) (text, error) {
	var t text
	for s != "" {
		i := strings.Index(s, "${")
		if i < 0 {
			return append(t, piece{literal: s}), nil
		}
		if i > 0 {
			t = append(t, piece{literal: s[:i]})
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, kernel.Invalid("%s: %.40q has no }", where, s[i:])
		}
		r, err := c.ref(where, s[i+2:i+end])
		if err != nil {
			return nil, err
		}
		t, s = append(t, piece{ref: r}), s[i+end+1:]
	}
	return t, nil
}

// ref parses the text between ${ and }.
func (c *compiler) ref(where, s string) (*ref, error) {
	r := &ref{source: "${" + s + "}"}
	if secret, is := strings.CutPrefix(s, "secret:"); is {
		if r.secret = secret; !name.MatchString(secret) {
			return nil, kernel.Invalid("%s: %.60s: want letters, digits and _ in a secret's name", where, r.source)
		}
		c.current.secrets = append(c.current.secrets, secret)
		return r, nil
	}
	if name.MatchString(s) && s != "responses" {
		if strings.HasPrefix(s, systemPrefix) && !slices.Contains(system, s) {
			return nil, kernel.Invalid("%s: %.60s: names that begin with %s belong to the system: want one of %s", where, r.source, systemPrefix, strings.Join(system, ", "))
		}
		switch r.name = s; {
		case slices.Contains(c.named, s):
			c.current.named = append(c.current.named, s)
		case !slices.Contains(system, s):
			c.plan.Needs = append(c.plan.Needs, Need{s, where})
		}
		return r, nil
	}
	if inner, is := strings.CutSuffix(s, splice); is {
		return nil, kernel.Invalid("%s: %.60s: write \"${%s}%s\", with %s behind the brace", where, r.source, inner, splice, splice)
	}
	for _, path := range strings.Fields(s) {
		if name.MatchString(path) && path != "responses" {
			return nil, kernel.Invalid("%s: %.60s: a name stands alone; of several paths, each begins with $ or responses", where, r.source)
		}
		x, err := c.path(where, r.source, path)
		if err != nil {
			return nil, err
		}
		r.paths, c.current.paths = append(r.paths, x), true
	}
	if len(r.paths) == 0 {
		return nil, kernel.Invalid("%s: ${} names no value: want a name or a path such as $.a.b or responses[0].a", where)
	}
	return r, nil
}

// path parses a path to one value.
func (c *compiler) path(where, source, path string) (jp.Expr, error) {
	if !strings.HasPrefix(path, "$") {
		path = "$." + path
	}
	x, err := jp.ParseString(path)
	if err != nil {
		return nil, kernel.Invalid("%s: %.60s is neither a name nor a path such as $.a.b or responses[0].a: %v", where, source, err)
	}
	for _, part := range x {
		switch part.(type) {
		case jp.Root, jp.Child, jp.Nth:
		default:
			return nil, kernel.Invalid("%s: %.60s: want a path to one value, of names and numbers: $.a.b[0]", where, source)
		}
	}
	if len(x) > 2 && x[1] == jp.Child("responses") {
		if n, is := x[2].(jp.Nth); is && int(n) >= c.responses {
			return nil, kernel.Invalid("%s: %.60s: there are at most %d responses before this call, numbered from 0", where, source, c.responses)
		}
	}
	return x, nil
}

// splice is the suffix of a text that is JSON.
const splice = "|json"

func (c *compiler) body(where string, t *Template, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var err error
	t.body, err = c.node(where, d)
	t.hasBody, t.plain = true, t.body.kind == 't'
	return err
}

// node parses the next value of a body, in the order in which it is written.
func (c *compiler) node(where string, d *json.Decoder) (node, error) {
	tok, err := d.Token()
	if err != nil {
		return node{}, kernel.Invalid("%s: %v", where, err)
	}
	switch v := tok.(type) {
	case json.Delim:
		n := node{kind: 'a'}
		if v == '{' {
			n.kind = 'o'
		}
		for d.More() {
			at := place(where, len(n.items))
			name := ""
			if n.kind == 'o' {
				key, err := d.Token()
				if err != nil {
					return n, kernel.Invalid("%s: %v", where, err)
				}
				name, _ = key.(string)
				at = where + "." + name
			}
			child, err := c.node(at, d)
			if err != nil {
				return n, err
			}
			if n.kind == 'o' {
				n.fields = append(n.fields, field{name, child})
			} else {
				n.items = append(n.items, child)
			}
		}
		_, err := d.Token() // the end
		return n, err
	case string:
		return c.leaf(where, v)
	}
	return node{kind: 'v', literal: tok}, nil
}

func (c *compiler) leaf(where, s string) (node, error) {
	spliced := strings.Count(s, "}"+splice)
	t, err := c.text(where, strings.TrimSuffix(s, splice))
	switch {
	case err != nil:
		return node{}, err
	case spliced == 0:
		t, err = c.text(where, s)
		return node{kind: 't', text: t}, err
	case spliced > 1:
		return node{}, kernel.Invalid("%s: %.60q: a value may have only one %s", where, s, splice)
	case len(t) == 1 && t[0].ref != nil && len(t[0].ref.paths) > 1:
		return node{}, kernel.Invalid("%s: %.60q: with %s, the reference must have one path", where, s, splice)
	case len(t) != 1 || t[0].ref == nil:
		return node{}, kernel.Invalid("%s: %.60q: with %s, the reference must be the whole string: \"${X}%s\"", where, s, splice, splice)
	}
	return node{kind: 's', splice: t[0].ref}, nil
}
