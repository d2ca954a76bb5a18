package jobs

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
)

// Settings and Policy have the same fields under the same names, in the one as pointers and in the other as
// values; what follows walks them by reflection, so that a new setting is added in two places and not in six.
// Definitions change rarely: this is never on a job's way.

var settingsType = reflect.TypeFor[Settings]()

// fieldNames are the JSON names of the settings, in the order of the fields.
var fieldNames = func() []string {
	names := make([]string, settingsType.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(settingsType.Field(i).Tag.Get("json"), ",")
	}
	return names
}()

// Fields are the names of the settings, as people and JSON spell them.
func Fields() []string { return slices.Clone(fieldNames) }

// lay puts what s says over what holds so far.
func (s *Settings) lay(p *Policy) {
	from, to := reflect.ValueOf(s).Elem(), reflect.ValueOf(p).Elem()
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsNil() {
			to.FieldByName(settingsType.Field(i).Name).Set(f.Elem())
		}
	}
}

// Over is s laid over t: what s says wins.
func (s Settings) Over(t Settings) Settings {
	from, to := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&t).Elem()
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsNil() {
			to.Field(i).Set(f)
		}
	}
	return t
}

// Without is s without the named fields.
func (s Settings) Without(names []string) Settings {
	v := reflect.ValueOf(&s).Elem()
	for i, name := range fieldNames {
		if slices.Contains(names, name) {
			v.Field(i).SetZero()
		}
	}
	return s
}

// Given are the names of the fields that s says something about.
func (s *Settings) Given() []string {
	var names []string
	v := reflect.ValueOf(s).Elem()
	for i, name := range fieldNames {
		if !v.Field(i).IsNil() {
			names = append(names, name)
		}
	}
	return names
}

// Equal says that s and t say the same.
func (s *Settings) Equal(t *Settings) bool {
	return bytes.Equal(AppendSettings(nil, s), AppendSettings(nil, t))
}
