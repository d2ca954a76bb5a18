package argschema

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// searchable is the keyword of schemas that marks an argument by which runs are found. A Go field declares it by the tag
// carillon:"search".
const searchable = "x-carillon-search"

// markSearchable marks the arguments whose fields have the tag. Only single values can be compared with what a person
// types. place is where t is in the arguments.
func markSearchable(t reflect.Type, s *jsonschema.Schema, place string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if err := markSearchable(f.Type, s, place); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			name = f.Name
		}
		tag, tagged := f.Tag.Lookup("carillon")
		p := s.Properties[name]
		switch {
		case tagged && tag != "search":
			return kernel.Invalid("argument %s%s has the tag carillon:%q: want carillon:\"search\"", place, name, tag)
		case tagged && (p == nil || !single(p)):
			return kernel.Invalid("argument %s%s has the tag carillon:\"search\": only text, numbers, times and booleans can be searched", place, name)
		case tagged:
			marked := *p // other fields may share it
			marked.Extra = map[string]any{searchable: true}
			s.Properties[name] = &marked
		case p != nil:
			if err := markSearchable(f.Type, p, place+name+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// single reports whether a schema describes a single value.
func single(s *jsonschema.Schema) bool {
	types := append(slices.Clone(s.Types), s.Type)
	return slices.ContainsFunc(types, func(t string) bool { return t == "string" || t == "integer" || t == "number" || t == "boolean" })
}

// Searchable returns the paths of the arguments that a schema marks as searchable, such as customer.id, in order.
func Searchable(schema []byte) (paths []string) {
	if !bytes.Contains(schema, []byte(searchable)) {
		return nil
	}
	type property struct {
		Search     bool                       `json:"x-carillon-search"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var walk func(raw []byte, path string)
	walk = func(raw []byte, path string) {
		var p property
		if json.Unmarshal(raw, &p) != nil {
			return // a schema that a program wrote by hand
		}
		if p.Search {
			paths = append(paths, path)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
			walk(p.Properties[name], strings.TrimPrefix(path+"."+name, "."))
		}
	}
	walk(schema, "")
	return paths
}
