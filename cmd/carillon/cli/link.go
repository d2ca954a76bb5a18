package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// link is the connection to one scheduler.
type link struct {
	base    string // without a slash at the end
	token   string
	http    *http.Client
	timeout time.Duration
}

// maxAnswer bounds the size of a response.
const maxAnswer = 64 << 20

// open resolves the server, its certificates and the token. It sends nothing.
func (a *asker) open() error {
	if a.token != "" {
		return kernel.Invalid("--token is refused: other users can read command lines, and the shell's history keeps them; "+
			"put the token into $%s, or into a file and use --token-file", envToken)
	}
	base := a.server
	if base == "" {
		base = a.Getenv(envServer)
	}
	if base == "" {
		base = defaultServer
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return kernel.Invalid("invalid server %.100q: want a URL such as %s", redacted(base), defaultServer)
	}
	token, err := a.readToken()
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if a.caFile != "" {
		pem, err := os.ReadFile(a.caFile)
		if err != nil {
			return kernel.Invalid("--ca-file: %v", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return kernel.Invalid("--ca-file %s has no PEM certificate", a.caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	a.link = &link{base: strings.TrimRight(base, "/"), token: token, timeout: a.timeout,
		// Redirects are not followed: they would send the token elsewhere.
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	return nil
}

// inTheClear reports whether the token would cross a network without TLS.
func (l *link) inTheClear() bool {
	u, err := url.Parse(l.base)
	if err != nil || l.token == "" || u.Scheme != "http" || u.Hostname() == "localhost" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip == nil || !ip.IsLoopback()
}

// redacted returns a URL without its user.
func redacted(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "..." + text[at:]
	}
	return text
}

// readToken returns the token to authenticate with, or "".
func (a *asker) readToken() (string, error) {
	path, from := a.tokenFile, "--token-file"
	if path == "" {
		if token := strings.TrimSpace(a.Getenv(envToken)); token != "" {
			return token, checkToken(token, "$"+envToken)
		}
		path, from = a.Getenv(envTokenFile), "$"+envTokenFile
	}
	if path == "" {
		return "", nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", kernel.Invalid("%s: %v", from, err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", kernel.Invalid("%s: %s is empty", from, path)
	}
	return token, checkToken(token, from)
}

func checkToken(token, from string) error {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return kernel.Invalid("%s is not a token: it has spaces, control characters or non-ASCII characters", from)
	}
	return nil
}

// request is one API request.
type request struct {
	method string
	path   string // below api.Prefix
	query  url.Values
	match  string // If-Match
	key    string // Idempotency-Key
	reason string
	body   any // nil = none
}

// answer is a response: the body unchanged, and the ETag.
type answer struct {
	raw  []byte
	etag string
}

// into decodes the body.
func (r answer) into(v any) error { return decode(r.raw, v) }

// decode decodes a part of a response. Numbers of values without a type keep their digits.
func decode(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode the server's response: %w", err)
	}
	return nil
}

func (l *link) get(ctx context.Context, path string, query url.Values) (answer, error) {
	return l.do(ctx, request{method: http.MethodGet, path: path, query: query})
}

// do sends a request once. It returns jobs.Unknown if a change may have been made without a response.
func (l *link) do(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	q, err := l.compose(ctx, r)
	if err != nil {
		return answer{}, err
	}
	response, err := l.http.Do(q)
	if err != nil {
		return answer{}, l.silence(ctx, r, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, l.silence(ctx, r, err)
	}
	if response.StatusCode >= 300 {
		return answer{}, l.refusal(r, response, raw)
	}
	return answer{raw: raw, etag: response.Header.Get("ETag")}, nil
}

// download streams a response, without a timeout.
func (l *link) download(ctx context.Context, path string, query url.Values, to io.Writer) error {
	r := request{method: http.MethodGet, path: path, query: query}
	q, err := l.compose(ctx, r)
	if err != nil {
		return err
	}
	response, err := l.http.Do(q)
	if err != nil {
		return l.silence(ctx, r, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return l.silence(ctx, r, err)
		}
		return l.refusal(r, response, raw)
	}
	if _, err := io.Copy(to, response.Body); err != nil {
		return fmt.Errorf("the response of %s broke off: %w", l.base, err)
	}
	return nil
}

// compose makes an HTTP request.
func (l *link) compose(ctx context.Context, r request) (*http.Request, error) {
	target := l.base + api.Prefix + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	q, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for name, text := range map[string]string{"If-Match": r.match, "Idempotency-Key": r.key, "Carillon-Reason": r.reason} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, kernel.Invalid("%s %.40q has a character that cannot be sent, such as a line break", name, text)
		}
		if text != "" {
			q.Header.Set(name, text)
		}
	}
	if l.token != "" {
		q.Header.Set("Authorization", "Bearer "+l.token)
	}
	q.Header.Set("User-Agent", "carillon")
	return q, nil
}

// silence returns the error for a missing response.
func (l *link) silence(ctx context.Context, r request, err error) error {
	if parent := context.Cause(ctx); parent == context.Canceled {
		return parent
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return kernel.Refuse(jobs.Unavailable, "no server at %s (%v): start one (carillon dev), or name another with --server or $%s", l.base, cause(err), envServer)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return kernel.Refuse(jobs.Unavailable, "cannot verify the certificate of %s (%v): name its certificate authority with --ca-file", l.base, cause(err))
	}
	if wrong, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return kernel.Refuse(jobs.Unavailable, "%s does not support TLS (%v): use http instead of https?", l.base, wrong.Msg)
	}
	what := fmt.Sprintf("no answer from %s (%v)", l.base, cause(err))
	if ctx.Err() != nil {
		what = fmt.Sprintf("no answer from %s within %v (--request-timeout)", l.base, l.timeout)
	}
	if r.method == http.MethodGet {
		return kernel.Refuse(jobs.Unavailable, "%s", what)
	}
	return kernel.Refuse(jobs.Unknown, "%s: unknown outcome; check before you repeat it", what)
}

// cause returns the innermost reason of a network error, without the URL.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err
	}
	return err
}

// refused is a problem response of the server.
type refused struct {
	api.Problem
	code jobs.Code
	text string
}

func (r *refused) Error() string { return r.text }

// Unwrap makes errors.Is(err, jobs.NotFound) work.
func (r *refused) Unwrap() error { return r.code }

// codes maps problem codes to jobs.Code; for others the HTTP status decides.
var codes = map[string]jobs.Code{
	"not_found": jobs.NotFound, "conflict": jobs.Conflict, "stale": jobs.Stale, "invalid": jobs.BadInput, "malformed": jobs.BadInput,
	"too_large": jobs.BadInput, "forbidden": jobs.Forbidden, "outcome_unknown": jobs.Unknown, "unavailable": jobs.Unavailable,
	"not_ready": jobs.Unavailable, "exhausted": jobs.Conflict, "no_such_route": "",
}

var statusCodes = map[int]jobs.Code{
	http.StatusUnauthorized: jobs.Forbidden, http.StatusForbidden: jobs.Forbidden, http.StatusNotFound: jobs.NotFound, http.StatusConflict: jobs.Conflict,
	http.StatusPreconditionFailed: jobs.Stale, http.StatusTooManyRequests: jobs.Unavailable, http.StatusServiceUnavailable: jobs.Unavailable,
	http.StatusBadRequest: jobs.BadInput, http.StatusUnprocessableEntity: jobs.BadInput, http.StatusMisdirectedRequest: jobs.Forbidden,
	http.StatusBadGateway: jobs.Unknown, http.StatusGatewayTimeout: jobs.Unknown,
}

// refusal returns the error for an unsuccessful response.
func (l *link) refusal(r request, response *http.Response, raw []byte) error {
	e := &refused{code: statusCodes[response.StatusCode]}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(raw, &e.Problem) != nil || e.Code == "" {
		if e.code == jobs.Unknown && r.method == http.MethodGet {
			e.code = jobs.Unavailable
		}
		if e.code == jobs.NotFound || e.code == jobs.BadInput { // from a server that is not Carillon
			e.code = ""
		}
		e.text = fmt.Sprintf("%s responds %q, but not like Carillon: is --server right?", l.base, response.Status)
		if at := response.Header.Get("Location"); at != "" && response.StatusCode < 400 {
			e.text = fmt.Sprintf("%s redirects to %s: if you trust that address, use it as --server", l.base, clean(at))
		}
		return e
	}
	if code, known := codes[e.Code]; known {
		e.code = code
	}
	e.text = clean(strings.TrimPrefix(strings.TrimPrefix(e.Detail, "body."), "query."))
	switch {
	case e.Code == "no_such_route":
		e.text = fmt.Sprintf("%s does not support %s %s: it runs another version of Carillon", l.base, r.method, api.Prefix+r.path)
	case response.StatusCode == http.StatusUnauthorized && l.token == "":
		e.text = fmt.Sprintf("%s requires authentication: put a token into $%s, or name its file with --token-file (a server writes its first one, admin.token, to its data directory)", l.base, envToken)
	case response.StatusCode == http.StatusUnauthorized:
		e.text = fmt.Sprintf("%s rejects this token: it is unknown, revoked or expired", l.base)
	case e.code == jobs.BadInput:
		for _, f := range e.Errors[min(1, len(e.Errors)):] { // the first is in the detail
			e.text += "; " + clean(strings.TrimPrefix(strings.TrimPrefix(f.Location, "body.")+": "+f.Message, ": "))
		}
	}
	return e
}

// Pauses between the attempts of an idempotent request.
var tries = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond}

// repeat sends a request until its outcome is known: its Idempotency-Key makes that safe. It does not wait for a
// server that is down.
func (l *link) repeat(ctx context.Context, r request) (answer, error) {
	unknown := false // whether an earlier attempt may have succeeded
	for try := 0; ; try++ {
		got, err := l.do(ctx, r)
		unclear := errors.Is(err, jobs.Unknown)
		unknown = unknown || unclear
		if !unclear && !(unknown && errors.Is(err, jobs.Unavailable)) {
			return got, err
		}
		if try == len(tries) {
			return got, kernel.Refuse(jobs.Unknown, "%v; repeating it with --idempotency-key %s is safe", err, r.key)
		}
		select {
		case <-ctx.Done():
			return got, ctx.Err()
		case <-time.After(tries[try]):
		}
	}
}
