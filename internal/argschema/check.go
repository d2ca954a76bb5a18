package argschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

// Checker compiles a JSON Schema into a check of arguments. The check returns the place of the error, such as
// items[2].price ("" = the arguments as a whole), and the error. An invalid schema, or one that is too expensive (see
// effort), checks nothing: then only the handler can reject arguments.
func Checker(schema []byte) (check func(args []byte) (place string, err error)) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return accept
	}
	cost := effort(&s)
	if cost > maxParts {
		return accept
	}
	whole, err := s.Resolve(nil)
	if err != nil {
		return accept
	}
	return func(args []byte) (string, error) {
		if cost*len(args) > maxEffort {
			return "", nil
		}
		var v any
		d := json.NewDecoder(bytes.NewReader(args))
		if err := d.Decode(&v); err != nil {
			return "", kernel.Invalid("arguments are not valid JSON")
		}
		err := whole.Validate(v)
		if err == nil {
			return "", nil
		}
		place, why := search{}.locate(&s, v, "", err)
		return place, kernel.Invalid("%s", short(why))
	}
}

func accept([]byte) (string, error) { return "", nil }

// search finds the place of a fault; it caches the resolved parts of the schema.
type search map[*jsonschema.Schema]*jsonschema.Resolved

// maxSearch is how deep it goes: each level checks all that is below it again.
const maxSearch = 16

// locate finds the innermost part of a value that does not fit: the library names a place in the schema, users need the
// one in their arguments. A part of a schema that refers to another part cannot be checked alone, and the search ends
// above it.
func (f search) locate(s *jsonschema.Schema, v any, place string, err error) (string, error) {
	if strings.Count(place, ".")+strings.Count(place, "[") >= maxSearch {
		return place, err
	}
	inner := func(s *jsonschema.Schema, v any, place string) (string, error) {
		if s == nil {
			return "", nil
		}
		part, known := f[s]
		if !known {
			part, _ = s.CloneSchemas().Resolve(nil) // nil if it cannot be checked alone
			f[s] = part
		}
		if part == nil {
			return "", nil
		}
		if err := part.Validate(v); err != nil {
			return f.locate(s, v, place, err)
		}
		return "", nil
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			of := s.Properties[name]
			if of == nil {
				if len(s.PatternProperties) > 0 || s.AdditionalProperties == nil {
					continue
				}
				of = s.AdditionalProperties
				if of.Not != nil { // no value is allowed here
					return join(place, name), errors.New("unexpected property")
				}
			}
			if at, err := inner(of, v[name], join(place, name)); err != nil {
				return at, err
			}
		}
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				return join(place, name), errors.New("is missing")
			}
		}
	case []any:
		for i, item := range v {
			if at, err := inner(s.Items, item, place+"["+strconv.Itoa(i)+"]"); err != nil {
				return at, err
			}
		}
	}
	return place, err
}

func join(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}

// short shortens the library's error: no location in the schema, and a bounded length.
func short(err error) string {
	text := err.Error()
	for strings.HasPrefix(text, "validating ") {
		_, rest, found := strings.Cut(text, ": ")
		if !found {
			break
		}
		text = rest
	}
	return plain.Short(text, 300)
}
