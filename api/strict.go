package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
)

// Ambiguous JSON is how requests are smuggled past a proxy: a repeated key, invalid UTF-8, a second document after the
// first. All of it is refused here, before any other reader, by the function that the kernel has for arguments.

// Size limits of bodies. The larger one is for jobs that are applied in one commit; for bulks, see maxBulkBody.
const (
	maxBody = 512 << 10
	// MaxApply is the size limit of jobs and calendars that are applied at once.
	MaxApply = 4 << 20
)

// bodyTime is how long a body may take to arrive.
const bodyTime = 10 * time.Second

// maxDepth is the limit of nesting in JSON: that of arguments, which the kernel checks, within what a body has around
// them.
const maxDepth = fastjson.MaxLevels + 8

// strict only passes requests on whose body is unambiguous JSON. arrived returns why a request must not be served after
// its body took so long to arrive, or nil.
func strict(next http.Handler, arrived func(*http.Request, time.Duration) *Problem) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := checkQuery(r.URL.RawQuery); p != nil {
			p.write(w)
			return
		}
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		began := time.Now()
		body, p := readBody(w, r)
		if p == nil {
			p = arrived(r, time.Since(began))
		}
		if p != nil {
			w.Header().Set("Connection", "close") // the rest of the body is not worth reading
			p.write(w)
			return
		}
		if len(body) > 0 {
			if p := checkBody(r, body); p != nil {
				p.write(w)
				return
			}
		}
		if c, ok := r.Body.(*counted); ok && isBulk(r) { // huma must not read it
			c.bulk, body = body, nil
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// lists are the query parameters that may be repeated.
var lists = []string{"arg"}

// checkQuery returns what is wrong with a query, or nil.
func checkQuery(raw string) *Problem {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return problem(http.StatusBadRequest, codeMalformed, "the query is malformed: percent-encode special characters")
	}
	for name, values := range query {
		if len(values) > 1 && !slices.Contains(lists, name) {
			return problem(http.StatusUnprocessableEntity, codeInvalid, fmt.Sprintf("query parameter %.40q is repeated: send it once", name))
		}
	}
	return nil
}

// readBody reads a body within its limits of size and time.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Problem) {
	limit := int64(maxBody)
	switch {
	case isBulk(r):
		limit = maxBulkBody
	case r.Method == http.MethodPost && r.URL.Path == Prefix+"/apply":
		limit = MaxApply
	}
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(bodyTime)) // not supported by recorders in tests
	body, err := readAll(http.MaxBytesReader(w, r.Body, limit), r.ContentLength)
	if err == nil { // otherwise the deadline stays: the server must not wait for the rest
		_ = deadline.SetReadDeadline(time.Time{})
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return nil, p
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem(http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit))
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		return nil, problem(http.StatusRequestTimeout, codeSlow, fmt.Sprintf("the body did not arrive within %v", bodyTime))
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, codeMalformed, "cannot read the body")
	}
	return body, nil
}

// readAll reads a body of a known length, or of -1. It allocates as bytes arrive, not by the declared length.
func readAll(from io.Reader, length int64) ([]byte, error) {
	const first = 4 << 10
	body := make([]byte, 0, first)
	if length >= 0 {
		body = make([]byte, 0, min(first, length+1))
	}
	for {
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		case len(body) == cap(body):
			size := 2 * int64(cap(body))
			if length >= int64(len(body)) {
				size = min(size, length+1) // the last byte detects the end
			}
			body = append(make([]byte, 0, size), body...)
		}
	}
}

// checkBody returns what is wrong with a body, or nil.
func checkBody(r *http.Request, body []byte) *Problem {
	if r.Header.Get("Content-Encoding") != "" {
		return problem(http.StatusUnsupportedMediaType, codeMediaType, "Content-Encoding is not supported: send the body uncompressed")
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return problem(http.StatusUnsupportedMediaType, codeMediaType, "send Content-Type: application/json")
	}
	if deepest := fastjson.Levels(body); deepest > maxDepth { // before anything parses it
		return problem(http.StatusBadRequest, codeMalformed, fmt.Sprintf("the body is nested %d levels deep, at most %d are allowed", deepest, maxDepth))
	}
	why := fastjson.Fault(body, maxDepth)
	if why != "" && !json.Valid(body) {
		return problem(http.StatusBadRequest, codeMalformed, "the body is not one JSON document")
	}
	if why == "" && bytes.Contains(body, []byte("null")) {
		why = null(body)
	}
	if why != "" {
		return problem(http.StatusUnprocessableEntity, codeInvalid, "the body: "+why, Fault{Location: "body", Message: why})
	}
	return nil
}

// free are the keys whose values may be any JSON: arguments, results and checkpoints of runs, and requests and commands of jobs.
var free = map[string]bool{"args": true, "result": true, "data": true, "http": true, "exec": true}

// null returns what is wrong with the nulls of valid JSON, or "". One outside of free values is refused: some clients
// mean "not set" by it, others "empty".
func null(body []byte) string {
	type level struct {
		object bool
		key    bool // a key comes next
		free   bool // within arguments, where anything may be
		args   bool // the value that comes next is the arguments
	}
	var open []level
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return "" // the end: the body is valid
		}
		top := len(open) - 1
		if s, ok := token.(string); ok && top >= 0 && open[top].key {
			open[top].key, open[top].args = false, free[s]
			continue
		}
		within := top >= 0 && (open[top].free || open[top].args)
		switch token {
		case nil:
			if top < 0 || !open[top].free {
				return "a field is null: leave it out"
			}
		case json.Delim('{'):
			open = append(open, level{object: true, key: true, free: within})
			continue
		case json.Delim('['):
			open = append(open, level{free: within})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
			top--
		}
		if top >= 0 {
			open[top].key = open[top].object // a value is complete
		}
	}
}
