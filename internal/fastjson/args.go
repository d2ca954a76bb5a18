package fastjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// Reader reads arguments into a struct of texts, numbers and booleans, as most arguments are. Package encoding/json,
// which scans them twice and looks up types each time, was a fifth of a worker's cost of an empty run. A nil Reader
// reads nothing.
//
// It leaves names in other letters, null, escapes, numbers that do not fit and invalid input to encoding/json, which
// decides what arguments mean.
type Reader struct{ fields []column }

type column struct {
	name  string
	index int
}

// ReaderOf makes a reader for a type, or nil.
func ReaderOf(t reflect.Type) *Reader {
	if t.Kind() != reflect.Struct || reads(t) {
		return nil
	}
	r := &Reader{}
	known := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous {
			return nil // encoding/json promotes its fields
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			name = f.Name
		}
		if plain.Name("", name, 200) != nil || known[name] || strings.Contains(options, "string") || !settable(f.Type) {
			return nil
		}
		known[name] = true
		r.fields = append(r.fields, column{name, i})
	}
	return r
}

// settable reports whether set supports a type.
func settable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return t != reflect.TypeFor[json.Number]() && !reads(t)
	}
	return false
}

// reads reports whether a type unmarshals itself.
func reads(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Read sets the fields of to, and reports whether it could read all of b. If not, some fields may be set already.
func (r *Reader) Read(b []byte, to reflect.Value) bool {
	if r == nil {
		return false
	}
	p := blank(b, 0)
	if p == len(b) || b[p] != '{' {
		return false
	}
	if p = blank(b, p+1); p < len(b) && b[p] == '}' {
		return blank(b, p+1) == len(b)
	}
	for {
		name, end := simple(b, p)
		if end < 0 {
			return false
		}
		field := r.find(name)
		if p = blank(b, end); field < 0 || p == len(b) || b[p] != ':' {
			return false
		}
		if p = set(to.Field(field), b, blank(b, p+1)); p < 0 {
			return false
		}
		if p = blank(b, p); p == len(b) {
			return false
		}
		switch b[p] {
		case '}':
			return blank(b, p+1) == len(b)
		case ',':
			p = blank(b, p+1)
		default:
			return false
		}
	}
}

// find returns the index of the field with a name, or less than 0.
func (r *Reader) find(name []byte) int {
	for i := range r.fields {
		if r.fields[i].name == string(name) {
			return r.fields[i].index
		}
	}
	return -1
}

// simple reads a text without escapes that begins at p, and returns its end, or less than 0.
func simple(b []byte, p int) (text []byte, end int) {
	if p >= len(b) || b[p] != '"' {
		return nil, -1
	}
	begin, most := p+1, byte(0)
	for p = begin; p < len(b) && b[p] != '"'; p++ {
		if b[p] < ' ' || b[p] == '\\' {
			return nil, -1
		}
		most |= b[p]
	}
	if p == len(b) || most >= utf8.RuneSelf && !utf8.Valid(b[begin:p]) {
		return nil, -1
	}
	return b[begin:p], p + 1
}

// set sets a field to the value at p, and returns the value's end, or less than 0.
func set(field reflect.Value, b []byte, p int) int {
	if p >= len(b) {
		return -1
	}
	switch kind := field.Kind(); kind {
	case reflect.String:
		text, end := simple(b, p)
		if end >= 0 {
			field.SetString(string(text))
		}
		return end
	case reflect.Bool:
		end := literal(b, p, "true")
		field.SetBool(end >= 0)
		if end < 0 {
			end = literal(b, p, "false")
		}
		return end
	}
	if c := b[p]; c != '-' && (c < '0' || c > '9') {
		return -1
	}
	end := numeral(b, p)
	if end < 0 || !number64(field, string(b[p:end])) {
		return -1
	}
	return end
}

// number64 sets a field to a number, if that fits.
func number64(field reflect.Value, text string) bool {
	switch {
	case field.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || field.OverflowInt(n) {
			return false
		}
		field.SetInt(n)
	case field.CanUint():
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || field.OverflowUint(n) {
			return false
		}
		field.SetUint(n)
	default:
		n, err := strconv.ParseFloat(text, field.Type().Bits())
		if err != nil {
			return false
		}
		field.SetFloat(n)
	}
	return true
}
