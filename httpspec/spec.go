// Package httpspec reads the definition of an HTTP job: a chain of requests, the check of its outcome, and
// notifications.
//
// It is not promised to programs outside this module.
//
// Where to start: [Parse]. It checks the definition once, when a job is saved, and returns a [Plan] whose calls only
// need values to become requests.
//
// Sharp edges: nothing here opens a connection, and no value can become part of a scheme, a host or the name of a
// header. The field names are those of seed 002.
package httpspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Job is the definition of an HTTP job, as users write it.
type Job struct {
	Request          []Request      `json:"request"`
	Async            bool           `json:"async,omitempty"`            // the last request only starts the work: a check or a callback reports its outcome
	CheckURL         *Call          `json:"checkUrl,omitempty"`         // polled for the outcome; without it the other system calls back
	CheckRateSeconds int            `json:"checkRateSeconds,omitempty"` // between two checks; 0 = 1
	QoS              int            `json:"qos,omitempty"`              // 1 = each step's response is stored as a checkpoint
	Notification     []Notification `json:"notification,omitempty"`
	ServiceName      string         `json:"serviceName,omitempty"` // the job's own service, for URLs with service:/path
}

// Call is a request with templates: a URL, headers and a body.
type Call struct {
	Method      string            `json:"method,omitempty"` // "" = GET
	URL         string            `json:"url"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        json.RawMessage   `json:"body,omitempty"` // JSON with templates in its strings; a string alone is sent as text
	ServiceName string            `json:"serviceName,omitempty"`
}

// Request is one step of the chain.
type Request struct {
	Call
	RespEnvName string `json:"respEnvName,omitempty"` // name of the response for later steps, checks and notifications
}

// Notification is a call when a run enters a state.
type Notification struct {
	Call
	StateEquals string `json:"stateEquals,omitempty"` // "" = of every state
}

// UnmarshalJSON reads a call, or only its URL.
func (c *Call) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &c.URL)
	}
	type plain Call
	return strictly(b, (*plain)(c))
}

// UnmarshalJSON keeps the embedded Call's from reading all of it.
func (r *Request) UnmarshalJSON(b []byte) error {
	return strictly(b, &struct {
		*plainCall
		RespEnvName *string `json:"respEnvName"`
	}{(*plainCall)(&r.Call), &r.RespEnvName})
}

// UnmarshalJSON keeps the embedded Call's from reading all of it.
func (n *Notification) UnmarshalJSON(b []byte) error {
	return strictly(b, &struct {
		*plainCall
		StateEquals *string `json:"stateEquals"`
	}{(*plainCall)(&n.Call), &n.StateEquals})
}

type plainCall Call

func strictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	return exactly(b, reflect.TypeOf(v).Elem())
}

// exactly refuses fields in another case, which package json accepts: with url and URL in one object, readers in two
// languages would see two values.
func exactly(b []byte, t reflect.Type) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		return err
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(names, key) {
			continue
		}
		i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
		return fmt.Errorf("unknown field %q: write %s", key, names[max(i, 0)])
	}
	return nil
}

// The limits of a job.
const (
	MaxBytes         = 64 << 10 // of the whole definition
	MaxRequests      = 32
	MaxNotifications = 16
	MaxURL           = 8 << 10
	MaxCheckRate     = 3600 // seconds
)

// Plan is a checked job. It is immutable and safe for concurrent use.
type Plan struct {
	Job
	Steps  []*Template
	Check  *Template   // nil = none
	Notify []*Template // one for each notification
	Needs  []Need      // names that neither the system nor a step defines: variables that the worker must have
}

// Need is a name that a worker must have as a variable, and the place that needs it.
type Need struct{ name, where string }

// all returns its calls.
func (p *Plan) all() []*Template {
	list := slices.Concat(p.Steps, p.Notify)
	if p.Check != nil {
		list = append(list, p.Check)
	}
	return list
}

// Fits returns which service, secret or variable of the job is missing, or nil.
func (p *Plan) Fits(services Services, secrets Secrets, variables map[string]string) error {
	for _, t := range p.all() {
		to, err := services.find(t.fixed, t.own)
		if err == nil {
			err = secrets.mayGo(t.secrets, to)
		}
		if err != nil {
			return kernel.Invalid("%s.url: %v", t.where, err)
		}
	}
	for _, need := range p.Needs {
		if _, ok := variables[need.name]; !ok {
			return kernel.Invalid("%s: unknown name ${%s}: want one of the system, the respEnvName of an earlier request, or a variable of http-jobs.variables", need.where, need.name)
		}
	}
	return nil
}

// Hidden returns the values of the job's secrets.
func (p *Plan) Hidden(secrets Secrets) (values []string) {
	for _, t := range p.all() {
		values = append(values, secrets.values(t.secrets)...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// Parse reads a job and checks all that can be checked before it runs. The error names the place: request[1].url.
func Parse(raw []byte) (*Plan, error) {
	if len(raw) > MaxBytes {
		return nil, kernel.Invalid("an HTTP job may have at most %d bytes: it has %d", MaxBytes, len(raw))
	}
	p := &Plan{}
	if err := strictly(raw, &p.Job); err != nil {
		return nil, kernel.Invalid("HTTP job: %v", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch {
	case len(p.Request) == 0:
		return nil, kernel.Invalid("an HTTP job needs a request")
	case len(p.Request) > MaxRequests:
		return nil, kernel.Invalid("request: %d requests, at most %d are allowed", len(p.Request), MaxRequests)
	case len(p.Notification) > MaxNotifications:
		return nil, kernel.Invalid("notification: %d notifications, at most %d are allowed", len(p.Notification), MaxNotifications)
	case p.QoS != 0 && p.QoS != 1:
		return nil, kernel.Invalid("qos: invalid value %d: want 0 or 1", p.QoS)
	case p.CheckRateSeconds < 0 || p.CheckRateSeconds > MaxCheckRate:
		return nil, kernel.Invalid("checkRateSeconds: invalid value %d: want 1 to %d", p.CheckRateSeconds, MaxCheckRate)
	case p.CheckURL != nil && !p.Async:
		return nil, kernel.Invalid("checkUrl needs async: set it, or leave checkUrl out")
	case p.CheckURL != nil && p.CheckURL.Method != "" && p.CheckURL.Method != "GET":
		return nil, kernel.Invalid("checkUrl: invalid method %.20q: want GET", p.CheckURL.Method)
	}
	if err := p.compile(); err != nil {
		return nil, err
	}
	return p, nil
}

// places matches the start of errors of Parse that are about a part of a job.
var places = regexp.MustCompile(`^(request\[\d+\]|notification\[\d+\]|checkUrl|checkRateSeconds|qos|request|notification)(\.[A-Za-z]+)?(\.[A-Za-z0-9_-]+|\[\d+\])*`)

// Check validates a job and returns the place of an error: request[1].url, or "" for all of it.
func Check(raw []byte) (place string, err error) {
	_, err = Parse(raw)
	return placeOf(err), err
}

// CheckFor is Check for a job that will run with these services, secrets and variables.
func CheckFor(raw []byte, services Services, secrets Secrets, variables map[string]string) (place string, err error) {
	p, err := Parse(raw)
	if err == nil {
		err = p.Fits(services, secrets, variables)
	}
	return placeOf(err), err
}

func placeOf(err error) string {
	if err == nil {
		return ""
	}
	return places.FindString(err.Error())
}

// compile compiles the calls to templates. Each knows the names that earlier steps define.
func (p *Plan) compile() error {
	c := compiler{plan: p}
	for i := range p.Request {
		r := &p.Request[i]
		where := place("request", i)
		c.responses = i
		t, err := c.call(where, &r.Call)
		if err != nil {
			return err
		}
		p.Steps = append(p.Steps, t)
		if r.RespEnvName == "" {
			continue
		}
		switch {
		case !name.MatchString(r.RespEnvName):
			return kernel.Invalid("%s.respEnvName: invalid name %.40q: want letters, digits and _, not starting with a digit", where, r.RespEnvName)
		case slices.Contains(system, r.RespEnvName):
			return kernel.Invalid("%s.respEnvName %s is a name of the system: choose another", where, r.RespEnvName)
		case slices.Contains(c.named, r.RespEnvName):
			return kernel.Invalid("%s.respEnvName %s is used twice: choose another", where, r.RespEnvName)
		}
		c.named = append(c.named, r.RespEnvName)
	}
	c.responses = len(p.Request)
	if p.CheckURL != nil {
		var err error
		if p.Check, err = c.call("checkUrl", p.CheckURL); err != nil {
			return err
		}
	}
	if p.Async { // the data of the report that ends the work is the last response
		c.responses++
	}
	for i := range p.Notification {
		t, err := c.call(place("notification", i), &p.Notification[i].Call)
		if err != nil {
			return err
		}
		p.Notify = append(p.Notify, t)
	}
	return nil
}
