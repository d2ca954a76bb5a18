package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// requestsForm is all that an HTTP job does, in a form: boxes of calls with rows of headers. Its buttons add and remove
// them on the server, so that it needs no script.
type requestsForm struct {
	Requests, Notifications []*callForm
	Check                   *callForm
	Async                   string // "", asyncCheck or asyncFeedback
	Rate, Service           string
	Checkpoints             bool // qos 1
	Fault                   string
}

// The values of requestsForm.Async.
const (
	asyncCheck    = "check"
	asyncFeedback = "feedback"
)

// callForm is a call in the form.
type callForm struct {
	Name                 string // of its fields: request.0, check, notification.1
	Kind, Label          string
	Was                  string // its Name in the stored job; "" = it is new
	Method, URL, Service string
	Headers              []headerRow
	Body                 string
	Env                  string // of a request: the name of its response
	State                string // of a notification
	Fault                string
}

type headerRow struct{ Name, Value string }

// Methods lists the methods of a call, the usual first.
func (*callForm) Methods() []string {
	return []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
}

// N returns the position of the call among its kind.
func (c *callForm) N() int {
	_, n, _ := strings.Cut(c.Name, ".")
	i, _ := strconv.Atoi(n)
	return i
}

// label names the calls by their positions.
func (f *requestsForm) label() {
	for kind, list := range map[string][]*callForm{"request": f.Requests, "notification": f.Notifications} {
		for i, c := range list {
			c.Kind, c.Name, c.Label = kind, kind+"."+strconv.Itoa(i), strings.ToUpper(kind[:1])+kind[1:]+" "+strconv.Itoa(i+1)
		}
	}
	f.Check.Kind, f.Check.Name, f.Check.Label, f.Check.Method = "check", "check", "Check", "GET"
}

func (f *requestsForm) calls() []*callForm {
	return append(slices.Concat(f.Requests, f.Notifications), f.Check)
}

// newRequestsForm returns the form of a job with one request.
func newRequestsForm() *requestsForm {
	f := &requestsForm{Requests: []*callForm{{Method: "GET", Headers: []headerRow{{}}}}, Check: &callForm{Headers: []headerRow{{}}}}
	f.label()
	return f
}

// requestsFormOf returns the form of a stored job.
func requestsFormOf(job *httpspec.Job) *requestsForm {
	f := &requestsForm{Service: job.ServiceName, Checkpoints: job.QoS == 1, Check: &callForm{}}
	fill := func(c *httpspec.Call, more callForm) *callForm {
		more.Method, more.URL, more.Service, more.Body = c.Method, c.URL, c.ServiceName, bodyText(c.Body)
		for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
			more.Headers = append(more.Headers, headerRow{name, shownHeader(name, c.Headers[name])})
		}
		return &more
	}
	for i := range job.Request {
		f.Requests = append(f.Requests, fill(&job.Request[i].Call, callForm{Env: job.Request[i].RespEnvName}))
	}
	for i := range job.Notification {
		f.Notifications = append(f.Notifications, fill(&job.Notification[i].Call, callForm{State: job.Notification[i].StateEquals}))
	}
	if job.Async {
		f.Async = asyncFeedback
	}
	if job.CheckURL != nil {
		f.Async, f.Check = asyncCheck, fill(job.CheckURL, callForm{})
	}
	if job.CheckRateSeconds > 0 {
		f.Rate = strconv.Itoa(job.CheckRateSeconds)
	}
	f.label()
	for _, c := range f.calls() {
		c.Was = c.Name
		if len(c.Headers) == 0 {
			c.Headers = []headerRow{{}}
		}
	}
	return f
}

// bodyText is a body in the form: JSON, or the text that is sent.
func bodyText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && !json.Valid([]byte(text)) && normal(text) == text && text != "" {
		return text
	}
	indented, err := fastjson.Indented(raw)
	if err != nil {
		return string(raw)
	}
	return string(indented)
}

// sentRequests reads the form as it was sent.
func sentRequests(r *http.Request) *requestsForm {
	text := func(name string) string { return normal(r.PostFormValue(name)) }
	call := func(name string) *callForm {
		c := &callForm{Was: text(name + ".was"), Method: text(name + ".method"), URL: text(name + ".url"), Service: text(name + ".service"), Body: text(name + ".body"),
			Env: text(name + ".env"), State: text(name + ".state")}
		values := r.PostForm[name+".value"]
		for i, header := range r.PostForm[name+".header"] {
			if i < len(values) {
				c.Headers = append(c.Headers, headerRow{strings.TrimSpace(header), strings.TrimSpace(values[i])})
			}
		}
		return c
	}
	list := func(kind string, most int) (all []*callForm) {
		for i := 0; i < most && r.PostForm.Has(kind+"."+strconv.Itoa(i)+".url"); i++ {
			all = append(all, call(kind+"."+strconv.Itoa(i)))
		}
		return all
	}
	f := &requestsForm{Requests: list("request", httpspec.MaxRequests), Notifications: list("notification", httpspec.MaxNotifications), Check: call("check"),
		Async: text("async"), Rate: text("rate"), Service: text("service"), Checkpoints: text("qos") != ""}
	f.label()
	return f
}

// press does what a button of the form says, and reports whether it was one that only changes the form.
func (f *requestsForm) press(do string) bool {
	action, target, is := strings.Cut(do, ":")
	if !is {
		return false
	}
	one := &callForm{Method: "POST", Headers: []headerRow{{}}}
	for _, list := range []*[]*callForm{&f.Requests, &f.Notifications} {
		i := slices.IndexFunc(*list, func(c *callForm) bool { return c.Name == target })
		switch {
		case i < 0:
		case action == "remove" && (list != &f.Requests || len(*list) > 1):
			*list = slices.Delete(*list, i, i+1)
		case action == "up" && i > 0:
			(*list)[i-1], (*list)[i] = (*list)[i], (*list)[i-1]
		}
	}
	for _, c := range f.calls() {
		if action == "header" && c.Name == target {
			c.Headers = append(c.Headers, headerRow{})
		}
	}
	switch {
	case do == "add:request" && len(f.Requests) < httpspec.MaxRequests:
		f.Requests = append(f.Requests, one)
	case do == "add:notification" && len(f.Notifications) < httpspec.MaxNotifications:
		one.Body = "${" + httpspec.NotifyBody + "}|json"
		f.Notifications = append(f.Notifications, one)
	}
	f.label()
	return true
}

// spec returns the requests as JSON. Masked values are those of the stored job. An error about a call is set on it, and
// then ok is false.
func (f *requestsForm) spec(stored *httpspec.Job) (raw json.RawMessage, ok bool) {
	job := httpspec.Job{ServiceName: f.Service, Async: f.Async != ""}
	if f.Checkpoints {
		job.QoS = 1
	}
	ok = true
	call := func(c *callForm) httpspec.Call {
		made, err := c.call(stored)
		if err != nil {
			c.Fault, ok = said(err), false
		}
		return made
	}
	for _, c := range f.Requests {
		job.Request = append(job.Request, httpspec.Request{Call: call(c), RespEnvName: c.Env})
	}
	for _, c := range f.Notifications {
		job.Notification = append(job.Notification, httpspec.Notification{Call: call(c), StateEquals: c.State})
	}
	if f.Async == asyncCheck {
		job.CheckURL = new(call(f.Check))
	}
	if f.Rate != "" {
		var err error
		if job.CheckRateSeconds, err = strconv.Atoi(f.Rate); err != nil {
			f.Fault, ok = fmt.Sprintf("Invalid check interval %.20q: want a number of seconds.", f.Rate), false
		}
	}
	if !ok {
		return nil, false
	}
	raw, err := json.Marshal(job)
	if err != nil {
		f.Fault = said(err)
		return nil, false
	}
	if place, err := httpspec.Check(raw); err != nil {
		f.blame(place, said(err))
		return nil, false
	}
	return raw, true
}

// call returns the call of a box.
func (c *callForm) call(stored *httpspec.Job) (httpspec.Call, error) {
	out := httpspec.Call{Method: c.Method, URL: c.URL, ServiceName: c.Service}
	for _, h := range c.Headers {
		if h.Name == "" && h.Value == "" {
			continue
		}
		if _, twice := out.Headers[h.Name]; twice {
			return out, kernel.Invalid("header %.60s is there twice", h.Name)
		}
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		if h.Value == maskedHeader {
			before := storedCall(stored, c.Was)
			value, has := "", false
			if before != nil {
				value, has = before.Headers[h.Name]
			}
			switch {
			case !has:
				return out, kernel.Invalid("header %.60s: enter its value: none is stored", h.Name)
			case targetOf(before.URL) != targetOf(c.URL):
				return out, kernel.Invalid("header %.60s: enter its value again: the host of the URL has changed", h.Name)
			}
			h.Value = value
		}
		out.Headers[h.Name] = h.Value
	}
	if c.Body != "" {
		out.Body = json.RawMessage(c.Body)
		if !json.Valid(out.Body) {
			text, err := json.Marshal(c.Body) // sent as it is
			if err != nil {
				return out, err
			}
			out.Body = text
		}
	}
	return out, nil
}

// storedCall returns a call of a job by its name in the form, or nil.
func storedCall(job *httpspec.Job, name string) *httpspec.Call {
	if job == nil {
		return nil
	}
	kind, number, _ := strings.Cut(name, ".")
	i, err := strconv.Atoi(number)
	switch {
	case kind == "check":
		return job.CheckURL
	case err != nil || i < 0:
	case kind == "request" && i < len(job.Request):
		return &job.Request[i].Call
	case kind == "notification" && i < len(job.Notification):
		return &job.Notification[i].Call
	}
	return nil
}

// targetOf returns the scheme and the host of a URL with templates.
func targetOf(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	return scheme + "://" + strings.ToLower(host)
}

// blame sets a refusal on its call.
func (f *requestsForm) blame(place, text string) {
	for _, c := range f.calls() {
		at := "checkUrl"
		if c.Kind != "check" {
			at = fmt.Sprintf("%s[%d]", c.Kind, c.N())
		}
		if strings.HasPrefix(place, at) {
			c.Fault = text
			return
		}
	}
	f.Fault = text
}

// maskedHeader stands for the value of a header that is not shown.
const maskedHeader = "***"

// shownHeader returns a header's value for pages: that of one that usually has a secret is masked, unless the secret
// is a reference.
func shownHeader(name, value string) string {
	name = strings.ToLower(name)
	secret := slices.ContainsFunc([]string{"authorization", "cookie", "token", "secret", "key", "password"}, func(part string) bool { return strings.Contains(name, part) })
	if !secret || value == "" || strings.Contains(value, "${") {
		return value
	}
	return maskedHeader
}

// shownJob returns a job's requests as pages show them.
func shownJob(raw json.RawMessage) json.RawMessage {
	var job httpspec.Job
	if json.Unmarshal(raw, &job) != nil {
		return raw
	}
	masked := false
	mask := func(c *httpspec.Call) {
		for name, value := range c.Headers {
			shown := shownHeader(name, value)
			masked = masked || shown != value
			c.Headers[name] = shown
		}
	}
	for i := range job.Request {
		mask(&job.Request[i].Call)
	}
	for i := range job.Notification {
		mask(&job.Notification[i].Call)
	}
	if job.CheckURL != nil {
		mask(job.CheckURL)
	}
	if !masked {
		return raw
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(job) != nil {
		return nil // it was read as JSON, and can be written
	}
	return b.Bytes()
}
