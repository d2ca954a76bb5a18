package kernel

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Settings and Policy have the same fields under the same names, as pointers and as values; the functions here walk
// them by reflection, so that a new setting is added in two places and not in six. Definitions change rarely: this is
// never on the path of a run.

var settingsType = reflect.TypeFor[Settings]()

// fieldNames are the JSON names of the settings, in the order of the fields.
var fieldNames = func() []string {
	names := make([]string, settingsType.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(settingsType.Field(i).Tag.Get("json"), ",")
	}
	return names
}()

// policyFields are the indexes of the settings in Policy.
var policyFields = func() []int {
	list := make([]int, settingsType.NumField())
	for i := range list {
		f := settingsType.Field(i)
		p, ok := reflect.TypeFor[Policy]().FieldByName(f.Name)
		if !ok || p.Type != f.Type.Elem() {
			panic("add a field to Policy in internal/kernel/definition.go: " + f.Name + " " + f.Type.Elem().String())
		}
		list[i] = p.Index[0]
	}
	return list
}()

// Fields returns the names of the settings, as users and JSON spell them.
func Fields() []string { return slices.Clone(fieldNames) }

// Lay overrides p with the fields that s sets.
func (s *Settings) Lay(p *Policy) {
	from, to := reflect.ValueOf(s).Elem(), reflect.ValueOf(p).Elem()
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsNil() {
			to.Field(policyFields[i]).Set(f.Elem())
		}
	}
}

// Over returns s merged over t: fields of s win.
func (s Settings) Over(t Settings) Settings {
	from, to := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&t).Elem()
	for i := range from.NumField() {
		if f := from.Field(i); !f.IsNil() {
			to.Field(i).Set(f)
		}
	}
	return t
}

// Without returns s without the named fields.
func (s Settings) Without(names []string) Settings {
	v := reflect.ValueOf(&s).Elem()
	for i, name := range fieldNames {
		if slices.Contains(names, name) {
			v.Field(i).SetZero()
		}
	}
	return s
}

// Given returns the names of the fields that s sets.
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

// Equal reports whether s and t set the same.
func (s *Settings) Equal(t *Settings) bool {
	return sameOnWire(reflect.ValueOf(s).Elem(), reflect.ValueOf(t).Elem())
}

// Changed returns the names of the fields in which s and t differ.
func (s *Settings) Changed(t *Settings) []string {
	var names []string
	v, w := reflect.ValueOf(s).Elem(), reflect.ValueOf(t).Elem()
	for i, name := range fieldNames {
		if !sameOnWire(v.Field(i), w.Field(i)) {
			names = append(names, name)
		}
	}
	return names
}

// sameOnWire reports whether two addressable values of a type have the same wire form, without making it: a commit
// compares all settings of each job that it changes. A list without items and none are the same there.
func sameOnWire(v, w reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || w.IsNil() {
			return v.IsNil() && w.IsNil()
		}
		return sameOnWire(v.Elem(), w.Elem())
	case reflect.String:
		return v.String() == w.String()
	case reflect.Bool:
		return v.Bool() == w.Bool()
	case reflect.Int, reflect.Int64:
		return v.Int() == w.Int()
	case reflect.Float64:
		return math.Float64bits(v.Float()) == math.Float64bits(w.Float())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return bytes.Equal(v.Bytes(), w.Bytes())
		}
		if v.Len() != w.Len() {
			return false
		}
		for i := range v.Len() {
			if !sameOnWire(v.Index(i), w.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		if at, is := v.Addr().Interface().(*time.Time); is {
			return wireTime(*at) == wireTime(*w.Addr().Interface().(*time.Time))
		}
		for i := range v.NumField() {
			if !sameOnWire(v.Field(i), w.Field(i)) {
				return false
			}
		}
		return true
	}
	panic("compare settings of kind " + v.Kind().String() + " in internal/kernel/settings.go")
}

// Said returns the value that s sets for a field, for users, or nil.
func (s *Settings) Value(name string) any {
	if i := slices.Index(fieldNames, name); i >= 0 {
		if f := reflect.ValueOf(s).Elem().Field(i); !f.IsNil() {
			return plainText(f.Elem().Interface())
		}
	}
	return nil
}

// Field returns the effective value of a field, for users.
func (p *Policy) Field(name string) any {
	if i := slices.Index(fieldNames, name); i >= 0 {
		return plainText(reflect.ValueOf(p).Elem().Field(policyFields[i]).Interface())
	}
	return nil
}

// At returns the field of a setting; it panics if there is none of that name.
func (p *Policy) At(name string) reflect.Value {
	return reflect.ValueOf(p).Elem().Field(policyFields[slices.Index(fieldNames, name)])
}

// Set sets a setting to a value, which is converted to the type of the setting; it panics if that is not possible.
func (s *Settings) Set(name string, value any) {
	f := reflect.ValueOf(s).Elem().Field(slices.Index(fieldNames, name))
	f.Set(reflect.New(f.Type().Elem()))
	f.Elem().Set(reflect.ValueOf(value).Convert(f.Type().Elem()))
}

// Read sets a setting to a value from its text. The setting is no list of names, object or time.
func (s *Settings) Read(name, text string) (err error) {
	i := slices.Index(fieldNames, name)
	if i < 0 {
		return Invalid("there is no setting %.60q", name)
	}
	v := reflect.New(settingsType.Field(i).Type.Elem())
	switch to := v.Interface().(type) {
	case *int:
		if *to, err = strconv.Atoi(text); err != nil {
			return Invalid("invalid %s %.40q: want a whole number", name, text)
		}
	case *float64:
		if *to, err = strconv.ParseFloat(text, 64); err != nil {
			return Invalid("invalid %s %.40q: want a number such as 1.5", name, text)
		}
	case *time.Duration:
		if *to, err = time.ParseDuration(text); err != nil {
			return Invalid("invalid %s %.40q: want a duration such as 90s or 120h", name, text)
		}
	case *jobs.Rate:
		*to, err = ParseRate(text)
	case *[]jobs.RetryRule:
		*to, err = ParseRules(text)
	default:
		v.Elem().SetString(text)
	}
	reflect.ValueOf(s).Elem().Field(i).Set(v)
	return err
}

// plainText returns a value for users: durations as text, and nothing for an unset time or list.
func plainText(v any) any {
	switch v := v.(type) {
	case time.Time:
		if v.IsZero() {
			return nil
		}
	case time.Duration:
		return v.String()
	case []string:
		if len(v) == 0 {
			return nil
		}
	case []jobs.Limit:
		if len(v) == 0 {
			return nil
		}
	case []jobs.RetryRule:
		if len(v) == 0 {
			return nil
		}
	case jobs.Rate:
		if v == (jobs.Rate{}) {
			return nil
		}
		return v.String()
	}
	return v
}
