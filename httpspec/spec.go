// Package httpspec reads what an HTTP job is to do: a chain of requests, how its outcome is asked for, and who is told.
//
// [Parse] checks all of it once, when a job is saved, and makes a [Plan] whose calls only need values to become
// requests. Nothing here opens a connection, and nothing that a value holds can become part of a scheme, a host or the
// name of a header. The field names are those of the second seed.
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

// Job is what an HTTP job is to do, as people write it.
type Job struct {
	Request          []Request      `json:"request"`
	Async            bool           `json:"async,omitempty"`            // the last request only begins the work: its outcome is asked for, or told
	CheckURL         *Call          `json:"checkUrl,omitempty"`         // asked for the outcome; without it the other side calls back
	CheckRateSeconds int            `json:"checkRateSeconds,omitempty"` // between two checks; 0 = 1
	QoS              int            `json:"qos,omitempty"`              // 1 = what was reached is kept after each step
	Notification     []Notification `json:"notification,omitempty"`
	ServiceName      string         `json:"serviceName,omitempty"` // the job's own service, for URLs that say service:/path
}

// Call is a request with places for values: a URL, headers and a body.
type Call struct {
	Method      string            `json:"method,omitempty"` // "" = GET
	URL         string            `json:"url"`
	Headers     map[string]string `json:"headers,omitempty"`
	Body        json.RawMessage   `json:"body,omitempty"` // JSON with templates in its texts; a text alone is sent as text
	ServiceName string            `json:"serviceName,omitempty"`
}

// Request is one step of the chain.
type Request struct {
	Call
	RespEnvName string `json:"respEnvName,omitempty"` // later steps, checks and notifications find the answer under this name
}

// Notification is who is told of a state.
type Notification struct {
	Call
	StateEquals string `json:"stateEquals,omitempty"` // "" = of every state
}

// UnmarshalJSON reads a call, or its URL alone.
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

// exactly refuses fields in another case, which package json takes: of url and URL in one object, readers of two
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

// What a job may hold.
const (
	MaxBytes         = 64 << 10 // of the whole of it
	MaxRequests      = 32
	MaxNotifications = 16
	MaxURL           = 8 << 10
	MaxCheckRate     = 3600 // seconds
)

// Plan is a checked job. It never changes, and any number of goroutines may share it.
type Plan struct {
	Job
	Steps  []*Template
	Check  *Template   // nil = there is none
	Notify []*Template // one for each notification
	Needs  []string    // names that neither the system nor a step gives: variables that whoever runs it must know
}

// all are its calls.
func (p *Plan) all() []*Template {
	list := slices.Concat(p.Steps, p.Notify)
	if p.Check != nil {
		list = append(list, p.Check)
	}
	return list
}

// Fits says what the job names and does not get from these services and secrets, or nil.
func (p *Plan) Fits(services Services, secrets Secrets) error {
	for _, t := range p.all() {
		to, err := services.find(t.fixed, t.own)
		if err == nil {
			err = secrets.mayGo(t.secrets, to)
		}
		if err != nil {
			return kernel.Invalid("%s.url: %v", t.where, err)
		}
	}
	return nil
}

// Hidden are the values of the secrets that the job names.
func (p *Plan) Hidden(secrets Secrets) (values []string) {
	for _, t := range p.all() {
		values = append(values, secrets.values(t.secrets)...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// Parse reads a job and checks all that can be checked before it runs. The error says where: request[1].url.
func Parse(raw []byte) (*Plan, error) {
	if len(raw) > MaxBytes {
		return nil, kernel.Invalid("an HTTP job has at most %d bytes, this has %d", MaxBytes, len(raw))
	}
	p := &Plan{}
	if err := strictly(raw, &p.Job); err != nil {
		return nil, kernel.Invalid("HTTP job: %v", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch {
	case len(p.Request) == 0:
		return nil, kernel.Invalid("an HTTP job needs a request")
	case len(p.Request) > MaxRequests:
		return nil, kernel.Invalid("request: %d are given, at most %d are allowed", len(p.Request), MaxRequests)
	case len(p.Notification) > MaxNotifications:
		return nil, kernel.Invalid("notification: %d are given, at most %d are allowed", len(p.Notification), MaxNotifications)
	case p.QoS != 0 && p.QoS != 1:
		return nil, kernel.Invalid("qos is %d, it must be 0 or 1", p.QoS)
	case p.CheckRateSeconds < 0 || p.CheckRateSeconds > MaxCheckRate:
		return nil, kernel.Invalid("checkRateSeconds is %d, it must be between 1 and %d", p.CheckRateSeconds, MaxCheckRate)
	case p.CheckURL != nil && !p.Async:
		return nil, kernel.Invalid("checkUrl is asked for the outcome of asynchronous jobs, and async is not set")
	case p.CheckURL != nil && p.CheckURL.Method != "" && p.CheckURL.Method != "GET":
		return nil, kernel.Invalid("checkUrl is asked with GET, not with %.20q", p.CheckURL.Method)
	}
	if err := p.compile(); err != nil {
		return nil, err
	}
	return p, nil
}

// places are how errors of Parse begin that are about a part of a job.
var places = regexp.MustCompile(`^(request\[\d+\]|notification\[\d+\]|checkUrl|checkRateSeconds|qos|request|notification)(\.[A-Za-z]+)?(\.[A-Za-z0-9_-]+|\[\d+\])*`)

// Check says what is wrong with a job, and where: request[1].url, or "" for all of it.
func Check(raw []byte) (place string, err error) {
	_, err = Parse(raw)
	return placeOf(err), err
}

// CheckFor is Check of a job that is going to run with these services and secrets.
func CheckFor(raw []byte, services Services, secrets Secrets) (place string, err error) {
	p, err := Parse(raw)
	if err == nil {
		err = p.Fits(services, secrets)
	}
	return placeOf(err), err
}

func placeOf(err error) string {
	if err == nil {
		return ""
	}
	return places.FindString(err.Error())
}

// compile makes templates of the calls. Each knows the names that the steps before it give.
func (p *Plan) compile() error {
	c := compiler{plan: p}
	for i := range p.Request {
		r := &p.Request[i]
		where := place("request", i)
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
			return kernel.Invalid("%s.respEnvName %.40q: a name has letters, digits and _, and begins with no digit", where, r.RespEnvName)
		case slices.Contains(system, r.RespEnvName):
			return kernel.Invalid("%s.respEnvName %s is a name that the system gives", where, r.RespEnvName)
		case slices.Contains(c.named, r.RespEnvName):
			return kernel.Invalid("%s.respEnvName %s is given to two answers", where, r.RespEnvName)
		}
		c.named = append(c.named, r.RespEnvName)
	}
	if p.CheckURL != nil {
		var err error
		if p.Check, err = c.call("checkUrl", p.CheckURL); err != nil {
			return err
		}
	}
	for i := range p.Notification {
		t, err := c.call(place("notification", i), &p.Notification[i].Call)
		if err != nil {
			return err
		}
		p.Notify = append(p.Notify, t)
	}
	slices.Sort(p.Needs)
	p.Needs = slices.Compact(p.Needs)
	return nil
}
