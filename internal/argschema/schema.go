package argschema

import (
	"encoding"
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Describe returns the JSON Schema of a type of arguments, from which pages make forms and programs learn what to send;
// nil without arguments, or without a description: for a type that writes its own JSON, or contains itself.
func Describe(t reflect.Type) ([]byte, error) {
	if t == nil {
		return nil, nil
	}
	if err := checkObject(t); err != nil {
		return nil, err
	}
	special := map[reflect.Type]*jsonschema.Schema{}
	collect(t, special, map[reflect.Type]bool{})
	if special[t] != nil {
		return nil, nil
	}
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{IgnoreInvalidTypes: true, TypeSchemas: special})
	if err != nil || s == nil {
		return nil, nil
	}
	if err := markSearchable(t, s, ""); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// checkObject refuses types that are not JSON objects: arguments are always an object, so that fields can be added
// later.
func checkObject(t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if implements[json.Unmarshaler](t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Interface:
		return nil
	}
	return kernel.Invalid("arguments of type %s: they must be a struct or a map, so that they are a JSON object", t)
}

// collect finds the types within t that JSON does not write by their kind, which is all that the library knows.
func collect(t reflect.Type, special map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch {
	case t == reflect.TypeFor[time.Time]():
		return // the library knows it
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
	case implements[json.Marshaler](t):
		special[t] = &jsonschema.Schema{}
		return
	case implements[encoding.TextMarshaler](t):
		special[t] = &jsonschema.Schema{Type: "string"}
		return
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		special[t] = &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collect(t.Elem(), special, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			collect(t.Field(i).Type, special, seen)
		}
	}
}

func implements[I any](t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[I]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}
