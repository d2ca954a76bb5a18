package worker

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carillon-scheduler/carillon/jobs"
)

// describe is the JSON Schema of a type of arguments, from which pages make forms and programs learn what to
// send; nil if there are no arguments. A type that JSON can carry but a schema cannot describe, such as a tree,
// has none.
func describe(t reflect.Type) ([]byte, error) {
	if t == nil {
		return nil, nil
	}
	if err := checkObject(t); err != nil {
		return nil, err
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{IgnoreInvalidTypes: true})
	if err != nil {
		return nil, nil
	}
	return json.Marshal(s)
}

// checkObject refuses types that no JSON object fits into: arguments are always an object, so that fields can be
// added later.
func checkObject(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Interface:
		return nil
	}
	return jobs.Invalid("arguments of type %s: they must be a struct or a map, so that they are a JSON object", t)
}
