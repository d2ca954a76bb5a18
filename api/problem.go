package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/ops"
)

// Problem is the response to a request that is refused or fails: RFC 9457, with a code whose meaning is stable.
// Programs look at the code; the detail is for people.
type Problem struct {
	Type   string  `json:"type" doc:"Always about:blank; the code identifies the problem."`
	Title  string  `json:"title" doc:"Text of the HTTP status."`
	Status int     `json:"status" doc:"The HTTP status."`
	Code   string  `json:"code" doc:"What went wrong; stable." example:"not_found"`
	Detail string  `json:"detail" doc:"What went wrong, for users."`
	Errors []Fault `json:"errors,omitempty" doc:"Invalid parts of the request."`

	header map[string]string
}

// Fault is one invalid part of a request.
type Fault struct {
	Location string `json:"location,omitempty" doc:"Where, such as body.items[3].args or query.limit."`
	Message  string `json:"message"`
	Offset   *int   `json:"offset,omitempty" doc:"Byte offset in the text there, if known."`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status. The name is huma's.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns the problem's headers. The name is huma's.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	for name, value := range p.header {
		h.Set(name, value)
	}
	return h
}

// ContentType returns the media type of problems. The name is huma's.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// The codes that do not come from the store.
const (
	codeInternal    = "internal"
	codeInvalid     = "invalid"
	codeMalformed   = "malformed"
	codeTooLarge    = "too_large"
	codeMediaType   = "unsupported_media_type"
	codeSlow        = "request_timeout"
	codeNoRoute     = "no_such_route"
	codeMethod      = "method_not_allowed"
	codeCrossOrigin = "cross_origin"
	codeHost        = "unknown_host"
	codeProxied     = "proxied"
	codeNotReady    = "not_ready"
	codeAccept      = "not_acceptable"

	codeUnauthorized = "unauthorized"
	codeForbidden    = "forbidden"
	codeTooMany      = "too_many"
	codeExhausted    = "exhausted"
	codeNoMatch      = "precondition_required"
	codeCursor       = "bad_cursor"
)

// refusals maps the store's refusals to problems. Those about the request carry their own text; errors of a store or
// the bus only go to the log.
var refusals = map[jobs.Code]struct {
	status int
	code   string
	says   string // "" = the refusal's own text
}{
	jobs.NotFound:    {http.StatusNotFound, "not_found", ""},
	jobs.Conflict:    {http.StatusConflict, "conflict", ""},
	jobs.Stale:       {http.StatusPreconditionFailed, "stale", ""}, // only edits under If-Match can be
	jobs.BadInput:    {http.StatusUnprocessableEntity, codeInvalid, ""},
	jobs.Forbidden:   {http.StatusForbidden, codeForbidden, ""},
	jobs.Exhausted:   {http.StatusTooManyRequests, codeExhausted, ""},
	jobs.Unknown:     {http.StatusGatewayTimeout, "outcome_unknown", "unknown outcome: all, a part or none of it may be done: check, or send it again with the same Idempotency-Key"},
	jobs.Unavailable: {http.StatusServiceUnavailable, "unavailable", "not done: the scheduler cannot answer now; try again"},
}

// statuses maps the statuses of huma's own problems to codes.
var statuses = map[int]string{
	http.StatusBadRequest:            codeMalformed,
	http.StatusNotAcceptable:         codeAccept,
	http.StatusRequestTimeout:        codeSlow,
	http.StatusRequestEntityTooLarge: codeTooLarge,
	http.StatusUnsupportedMediaType:  codeMediaType,
	http.StatusUnprocessableEntity:   codeInvalid,
}

func problem(status int, code, detail string, faults ...Fault) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Errors: faults}
}

// internal returns the problem of an internal error, without its text.
func internal() *Problem {
	return problem(http.StatusInternalServerError, codeInternal, "internal error; details are in the server's log")
}

// statusClientClosed is the status of a request whose client did not wait for the response, as proxies log it. It
// is in the log and the metrics only.
const statusClientClosed = 499

func clientClosed() *Problem {
	p := problem(statusClientClosed, "client_closed", "the client closed the request")
	p.Title = "Client Closed Request"
	return p
}

// problemOf turns the error of a verb into a problem. Only the texts of refusals are sent; any other error is logged,
// and its text stays here.
func problemOf(ctx context.Context, episodes *episode.Log, err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if often, ok := errors.AsType[*TooMany](err); ok {
		return tooMany(often.After)
	}
	var faults []Fault
	location := "body"
	item, many := errors.AsType[*ops.ItemError](err)
	if many {
		location = itemLocation(item.Index)
		faults = append(faults, Fault{Location: location, Message: text(item.Err)})
	}
	if args, ok := errors.AsType[*argschema.Error](err); ok {
		faults = []Fault{{Location: location + "." + args.Path(), Message: text(args.Err)}}
		return problem(http.StatusUnprocessableEntity, codeInvalid, args.Error(), faults...)
	}
	if h, ok := errors.AsType[*ops.WorkError](err); ok {
		faults = []Fault{{Location: location + "." + h.Path(), Message: text(h.Err)}}
		return problem(http.StatusUnprocessableEntity, codeInvalid, h.Error(), faults...)
	}
	if at, ok := errors.AsType[*schedule.Error](err); ok {
		return badSchedule("body", err, at)
	}
	refusal, refused := errors.AsType[*kernel.Refusal](err)
	if gone := refused && refusals[refusal.Code].says != "" || !refused; gone && context.Cause(ctx) == context.Canceled {
		return clientClosed()
	}
	if refused {
		if r, known := refusals[refusal.Code]; known {
			if r.says == "" {
				r.says = refusal.Text
			} else {
				episodes.Failed(slog.LevelWarn, "", "request failed: the store or the bus did not answer", "request", requestOf(ctx), "err", err)
			}
			return problem(r.status, r.code, r.says, faults...)
		}
	}
	if p, ok := errors.AsType[*Problem](context.Cause(ctx)); ok { // the token has expired meanwhile
		return p
	}
	if ctx.Err() != nil { // the server is stopping
		return problem(http.StatusServiceUnavailable, "unavailable", "the request was aborted")
	}
	episodes.Failed(slog.LevelError, err.Error(), "request failed", "request", requestOf(ctx), "err", err)
	return internal()
}

// badSchedule returns the problem of an invalid schedule, with its place in the request. A cron field is an offset in
// the text of the schedule.
func badSchedule(in string, err error, at *schedule.Error) *Problem {
	fault := Fault{Location: in + ".schedule", Message: at.Field + ": " + at.Reason, Offset: &at.Offset}
	switch at.Field {
	case "expression":
		fault.Message = at.Reason
	case "zone", "start", "end":
		fault.Location, fault.Message = in+"."+at.Field, at.Reason
	}
	return problem(http.StatusUnprocessableEntity, codeInvalid, err.Error(), fault)
}

// text returns the public text of an error in a list of faults.
func text(err error) string {
	if refusal, ok := errors.AsType[*kernel.Refusal](err); ok && refusals[refusal.Code].says == "" {
		return refusal.Text
	}
	return "failed"
}

// maxFaults limits the faults in a response.
const maxFaults = 20

// problemFromHuma returns a problem for an error of huma: mostly a request that does not fit the schema. Huma's texts
// about values are left out, because they would echo the request.
func problemFromHuma(status int, detail string, errs ...error) huma.StatusError {
	if status >= http.StatusInternalServerError {
		return internal()
	}
	code, known := statuses[status]
	if !known {
		code = codeMalformed
	}
	var faults []Fault
	for _, err := range errs {
		d, ok := err.(huma.ErrorDetailer)
		if !ok || len(faults) == maxFaults {
			continue
		}
		fault := Fault{Location: d.ErrorDetail().Location, Message: d.ErrorDetail().Message}
		fault.Message = withoutTypes(fault.Message)
		faults = append(faults, fault)
	}
	if len(faults) > 0 && detail == "validation failed" {
		detail = strings.TrimPrefix(faults[0].Location+": "+faults[0].Message, ": ")
	}
	return problem(status, code, detail, faults...)
}

// withoutTypes removes the names of Go types from an error of package json.
func withoutTypes(message string) string {
	switch {
	case strings.Contains(message, "json: cannot unmarshal number"): // the schema takes 1.0 and 1e1 for whole numbers
		return "want a whole number of at most 64 bits, in digits, without a point or an exponent"
	case strings.Contains(message, "json: "):
		return "does not fit the schema"
	}
	return message
}

// teachHuma makes huma report errors as Problems. Its hooks are process-wide: a program that embeds this package and
// uses huma itself gets this form, too.
var teachHuma = sync.OnceFunc(func() {
	huma.NewError = problemFromHuma
	huma.NewErrorWithContext = func(_ huma.Context, status int, detail string, errs ...error) huma.StatusError {
		return problemFromHuma(status, detail, errs...)
	}
	huma.ValidateStrictCasing = true
})

// write sends a problem outside of huma.
func (p *Problem) write(w http.ResponseWriter) {
	for name, value := range p.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may have gone
}
