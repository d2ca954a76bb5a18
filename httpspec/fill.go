package httpspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/ohler55/ojg/jp"
)

// filling is the state of filling one call.
type filling struct {
	Values
	root map[string]any // the root of paths, made when it is needed
}

// Fill fills a call with values, escaped for their place: a path, a query, a header, JSON. The error names the
// reference without a value, and never contains a value.
func (t *Template) Fill(v Values) (*Filled, error) {
	f := filling{Values: v}
	out := &Filled{Method: t.method, Own: t.own, Headers: map[string]string{}, secrets: t.secrets}
	wrong := func(part string, err error) (*Filled, error) { return nil, fmt.Errorf("%s.%s: %w", t.where, part, err) }
	path, err := f.text(t.path, inPath)
	if err != nil {
		return wrong("url", err)
	}
	query, err := f.text(t.query, url.QueryEscape)
	if err != nil {
		return wrong("url", err)
	}
	out.URL = t.fixed + path + query
	for name, value := range t.headers {
		if out.Headers[name], err = f.text(value, nil); err != nil {
			return wrong("headers."+name, err)
		}
		if strings.ContainsFunc(out.Headers[name], notInHeader) {
			return wrong("headers."+name, fmt.Errorf("the value has a line break, or another character that is invalid in a header"))
		}
	}
	if t.hasBody {
		if out.Body, err = f.body(t); err != nil {
			return wrong("body", err)
		}
		out.IsJSON = !t.plain
	}
	return out, nil
}

// inPath escapes a value that is part of a path, including dot segments.
func inPath(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}

func (f *filling) body(t *Template) ([]byte, error) {
	if t.plain {
		s, err := f.text(t.body.text, nil)
		return []byte(s), err
	}
	var b bytes.Buffer
	err := f.node(&b, t.body)
	return b.Bytes(), err
}

// text fills the references of a text, with escape if it is set.
func (f *filling) text(t text, escape func(string) string) (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.ref == nil {
			b.WriteString(p.literal)
			continue
		}
		v, err := f.value(p.ref)
		if err != nil {
			return "", err
		}
		s, err := plainly(v)
		if err != nil {
			return "", err
		}
		if escape != nil {
			s = escape(s)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// plainly formats a value as text: a string as it is, nothing for null, anything else as JSON.
func plainly(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case nil:
		return "", nil
	}
	b, err := encode(v)
	return string(b), err
}

// encode returns JSON as other programs write it, with < and > unescaped.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func (f *filling) node(b *bytes.Buffer, n node) error {
	write := func(v any) error {
		raw, err := encode(v)
		b.Write(raw)
		return err
	}
	switch n.kind {
	case 't':
		s, err := f.text(n.text, nil)
		if err != nil {
			return err
		}
		return write(s)
	case 's':
		v, err := f.value(n.splice)
		if err != nil {
			return err
		}
		// A text that contains JSON becomes that JSON, such as a response that was text.
		if s, is := v.(string); is {
			d := json.NewDecoder(strings.NewReader(s))
			d.UseNumber()
			var inner any
			if d.Decode(&inner) != nil || d.More() {
				return fmt.Errorf("%s is text that is not JSON", n.splice.source)
			}
			v = inner
		}
		return write(v)
	case 'o':
		b.WriteByte('{')
		for i, field := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := write(field.name); err != nil {
				return err
			}
			b.WriteByte(':')
			if err := f.node(b, field.node); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case 'a':
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := f.node(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	return write(n.literal)
}

// short are short forms of the system's names.
var short = map[string]string{"jobId": JobID, "executeNumber": ExecuteNumber}

// value looks up a reference.
func (f *filling) value(r *ref) (any, error) {
	switch {
	case r.secret != "":
		if s, ok := f.Secrets[r.secret]; ok {
			return s.Value, nil
		}
		return nil, fmt.Errorf("the worker has no secret %s", r.secret)
	case r.name != "":
		return f.named(r)
	}
	if f.root == nil {
		f.root = f.begin()
	}
	if len(r.paths) == 1 {
		return f.at(r, r.paths[0])
	}
	words := make([]string, len(r.paths))
	for i, path := range r.paths {
		v, err := f.at(r, path)
		if err == nil {
			words[i], err = plainly(v)
		}
		if err != nil {
			return nil, err
		}
	}
	return strings.Join(words, " "), nil
}

// at returns the value at a path of a reference.
func (f *filling) at(r *ref, path jp.Expr) (any, error) {
	v := path.Get(f.root)
	switch {
	case len(v) > 0:
		return v[0], nil
	case f.Lenient:
		return nil, nil
	}
	return nil, fmt.Errorf("%s: no value at this place of the arguments and responses so far", r.source)
}

func (f *filling) named(r *ref) (any, error) {
	name := r.name
	if long, is := short[name]; is {
		name = long
	}
	if v, ok := f.System[name]; ok {
		return v, nil
	}
	if v, ok := f.Named[name]; ok {
		return v, nil
	}
	if v, ok := f.Variables[name]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%s: unknown name: want one of the system, of a response so far or of the worker's variables", r.source)
}

// begin returns the root of paths: the arguments, overridden by the fields of the last response, and all responses by
// number.
func (f *filling) begin() map[string]any {
	root := map[string]any{}
	maps.Copy(root, f.Args)
	if n := len(f.Responses); n > 0 {
		if last, is := f.Responses[n-1].(map[string]any); is {
			maps.Copy(root, last)
		}
	}
	root["responses"] = f.Responses
	return root
}
