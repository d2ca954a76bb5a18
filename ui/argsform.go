package ui

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// argField is one property of the arguments, as a form field.
type argField struct {
	Name     string
	Input    string // text, number, integer, check, choice, json
	Help     string
	Required bool
	Choices  []string
	Default  string // of the schema, as JSON
	Text     string // what is in the field
	Fault    string
}

// empty returns the empty value of the field's type.
func (f argField) empty() any {
	switch f.Input {
	case "number", "integer":
		return 0
	case "check":
		return false
	case "json":
		return map[string]any{}
	case "choice":
		return f.Choices[0]
	}
	return "…"
}

// schemaNode is the part of a JSON Schema that forms support.
type schemaNode struct {
	Type        any             `json:"type"` // a name or a list of names
	Description string          `json:"description"`
	Enum        []any           `json:"enum"`
	Default     json.RawMessage `json:"default"`
	Required    []string        `json:"required"`
	Properties  json.RawMessage `json:"properties"`
	AnyOf       []any           `json:"anyOf"`
	OneOf       []any           `json:"oneOf"`
	Ref         string          `json:"$ref"`
}

// kind returns the only type of a value besides null; "" if there are several, or none.
func (s schemaNode) kind() string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []any:
		names := slices.DeleteFunc(slices.Clone(t), func(v any) bool { return v == "null" })
		if len(names) == 1 {
			name, _ := names[0].(string)
			return name
		}
	}
	return ""
}

// formOf returns the fields of a schema in its order; nil if it does not describe an object with properties, so that a
// form can only show JSON.
func formOf(schema []byte) []argField {
	var root schemaNode
	if json.Unmarshal(schema, &root) != nil || root.kind() != "object" || root.Ref != "" || root.AnyOf != nil || root.OneOf != nil {
		return nil
	}
	var fields []argField
	for name, raw := range properties(root.Properties) {
		var node schemaNode
		_ = json.Unmarshal(raw, &node) // unsupported schemas become a JSON field
		f := argField{Name: name, Help: node.Description, Required: slices.Contains(root.Required, name), Default: string(node.Default)}
		f.Input = map[string]string{"string": "text", "integer": "integer", "number": "number", "boolean": "check"}[node.kind()]
		if f.Input == "text" && len(node.Enum) > 0 {
			f.Input = "choice"
			for _, v := range node.Enum {
				text, ok := v.(string)
				if !ok {
					f.Input = "json"
				}
				f.Choices = append(f.Choices, text)
			}
		} else if f.Input == "" || len(node.Enum) > 0 {
			f.Input = "json"
		}
		fields = append(fields, f)
	}
	return fields
}

// properties iterates over a JSON object in its order.
func properties(object json.RawMessage) func(func(string, json.RawMessage) bool) {
	return func(yield func(string, json.RawMessage) bool) {
		d := json.NewDecoder(bytes.NewReader(object))
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return
			}
			var value json.RawMessage
			if d.Decode(&value) != nil || !yield(name.(string), value) {
				return
			}
		}
	}
}

// argsForm is the form for the arguments of a run.
type argsForm struct {
	visitor
	Key    jobs.Key
	Words  string // description of the job
	From   *kernel.Run
	Fields []argField // nil: only JSON
	AsJSON bool       // the form shows JSON
	JSON   string
	Fault  string // of the JSON, or of the whole form
	Delay  string
	Late   string // error of the delay
	Other  bool   // there are arguments that are not in the schema
	Here   string // path of the form
}

// Simple reports whether a form of fields can be shown instead of JSON.
func (f argsForm) Simple() bool { return f.Fields != nil && !f.Other }

// fill sets the fields from arguments.
func (f *argsForm) fill(args []byte) {
	f.JSON = pretty(args)
	if f.JSON == "" {
		f.JSON = "{}"
	}
	values := map[string]json.RawMessage{}
	_ = json.Unmarshal(args, &values)
	for i := range f.Fields {
		field := &f.Fields[i]
		raw, given := values[field.Name]
		if !given {
			raw = json.RawMessage(field.Default)
		}
		delete(values, field.Name)
		field.Text = strings.TrimSpace(string(raw))
		switch field.Input {
		case "text", "choice":
			var text string
			_ = json.Unmarshal(raw, &text)
			field.Text = text
		case "json":
			field.Text = pretty(raw)
		case "check":
			field.Text = map[bool]string{true: "on"}[field.Text == "true"]
		}
		if field.Text == "null" {
			field.Text = ""
		}
	}
	f.Other = len(values) > 0
}

// read converts the fields to arguments. It sets errors on their fields; false if there are any.
func (f *argsForm) read(form url.Values) (args []byte, ok bool) {
	if f.AsJSON = form.Get("mode") == "json" || f.Fields == nil; f.AsJSON {
		f.JSON = form.Get("args")
		if err := kernel.CheckArgs([]byte(f.JSON)); err != nil {
			f.Fault = said(err)
			return nil, false
		}
		if strings.TrimSpace(f.JSON) == "" {
			return nil, true
		}
		return []byte(f.JSON), true
	}
	var out bytes.Buffer
	ok = true
	for i := range f.Fields {
		field := &f.Fields[i]
		field.Text = form.Get("a." + field.Name)
		value, fault := field.value()
		if field.Fault = fault; fault != "" {
			ok = false
		}
		if value == nil {
			continue
		}
		name, _ := json.Marshal(field.Name)
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.Write(name)
		out.WriteByte(':')
		out.Write(value)
	}
	return []byte("{" + out.String() + "}"), ok
}

// value returns the field as JSON, nil if it is left out, or its error.
func (f *argField) value() (value []byte, fault string) {
	text := strings.TrimSpace(f.Text)
	switch f.Input {
	case "check":
		if f.Text == "" && !f.Required && f.Default == "" {
			return nil, ""
		}
		return []byte(strconv.FormatBool(f.Text != "")), ""
	case "text", "choice":
		if f.Text == "" {
			if f.Required {
				return nil, "Required."
			}
			return nil, ""
		}
		if f.Input == "choice" && !slices.Contains(f.Choices, f.Text) {
			return nil, "Want one of " + strings.Join(f.Choices, ", ") + "."
		}
		value, _ = json.Marshal(f.Text)
		return value, ""
	}
	if text == "" {
		if f.Required {
			return nil, "Required."
		}
		return nil, ""
	}
	switch f.Input {
	case "integer":
		if !json.Valid([]byte(text)) || strings.Trim(text, "-0123456789") != "" {
			return nil, "Want a whole number."
		}
	case "number":
		if n := json.Number(text); !json.Valid([]byte(text)) || func() bool { _, err := n.Float64(); return err != nil }() {
			return nil, "Want a number."
		}
	default:
		if !json.Valid([]byte(text)) {
			return nil, "Want valid JSON."
		}
	}
	return []byte(text), ""
}

func (u *UI) argsFormOf(r *http.Request, v visitor) (*argsForm, error) {
	job, err := u.ops.Job(r.Context(), v.Who, jobs.Key(r.PathValue("key")), 0)
	if err != nil {
		return nil, err
	}
	f := &argsForm{visitor: v, Key: job.Key, Words: job.Definition.Policy.Description, Fields: formOf(job.Schema), AsJSON: r.FormValue("as") == "json", Here: u.base + "/jobs/" + url.PathEscape(string(job.Key)) + "/run"}
	args := []byte(job.Definition.Policy.Args)
	if from := r.FormValue("from"); from != "" {
		id, err := jobs.ParseID(from)
		if err != nil {
			return nil, err
		}
		if f.From, err = u.ops.Run(r.Context(), v.Who, id); err != nil {
			return nil, err
		}
		args = f.From.Args
	}
	f.fill(args)
	f.AsJSON = f.AsJSON || !f.Simple()
	return f, nil
}

func (f *argsForm) answer(status int) answer {
	return answer{page: "argsform", title: "Run " + string(f.Key), data: f, status: status}
}

// runForm shows the form for the arguments of a run, and its due time.
func (u *UI) runForm(r *http.Request, v visitor) (answer, error) {
	f, err := u.argsFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	return f.answer(0), nil
}

// trigger starts a run. A form without a mode means the job's own arguments.
func (u *UI) trigger(r *http.Request, v visitor) (answer, error) {
	f, err := u.argsFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	var args []byte
	ok := true
	if r.PostForm.Has("mode") || r.PostForm.Has("args") {
		if !r.PostForm.Has("mode") {
			r.PostForm.Set("mode", "json")
		}
		args, ok = f.read(r.PostForm)
	}
	f.Delay = r.PostFormValue("delay")
	delay, err := parseSpan(f.Delay)
	if err != nil {
		f.Late, ok = said(err), false
	}
	if !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	id, err := u.start(r, v, f, args, delay)
	if jobs.CodeOf(err) == jobs.BadInput || jobs.CodeOf(err) == jobs.Conflict {
		f.Fault = said(err)
		return f.answer(statusOf(err)), nil
	}
	if err != nil {
		return answer{}, err
	}
	return goTo("/runs/"+id.String(), "started"), nil
}

// start starts the run: a new one, or one that repeats another.
func (u *UI) start(r *http.Request, v visitor, f *argsForm, args []byte, delay time.Duration) (jobs.ID, error) {
	request := kernel.Create{Key: f.Key, Args: args, Delay: delay, Origin: kernel.FromPerson}
	if f.From != nil {
		request.Origin, request.Parent, request.Occasion = kernel.FromRetry, f.From.ID, f.From.OccasionName()
	}
	made, err := u.ops.Trigger(r.Context(), v.Who, request)
	if err != nil {
		return jobs.ID{}, err
	}
	return made.ID, nil
}
