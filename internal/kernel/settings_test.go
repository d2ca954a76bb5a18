package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// someSettings sets about half of the fields to one of a few values, so that two of them are often equal in a field and
// often differ little: also in what the wire form does not have, such as a list that is empty and not nil.
func someSettings(r *rand.Rand) (s Settings) {
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		if r.IntN(2) == 0 {
			continue
		}
		f := reflect.New(v.Field(i).Type().Elem())
		someValue(r, f.Elem())
		v.Field(i).Set(f)
	}
	return s
}

func someValue(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"", "a", "b"}[r.IntN(3)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64:
		v.SetInt(r.Int64N(3))
	case reflect.Float64:
		v.SetFloat([]float64{0, math.Copysign(0, -1), 1, math.NaN()}[r.IntN(4)])
	case reflect.Uint8:
		v.SetUint(r.Uint64N(2))
	case reflect.Slice:
		if n := r.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n))
		}
		for i := range v.Len() {
			someValue(r, v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			at := []time.Time{{}, time.Unix(0, 0), time.Unix(1, 0).UTC(), time.Unix(1, 0).In(time.FixedZone("x", 3600))}[r.IntN(4)]
			v.Set(reflect.ValueOf(at))
			return
		}
		for i := range v.NumField() {
			someValue(r, v.Field(i))
		}
	default:
		panic(v.Type().String())
	}
}

// Settings are compared field by field, and the answer is that of their wire forms.
func TestSettingsDifferAsTheirWireForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	differ, alike := 0, 0
	for range 1500 {
		a, b := someSettings(r), someSettings(r)
		var want []string
		for i, name := range fieldNames {
			var one, other Settings
			reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(&a).Elem().Field(i))
			reflect.ValueOf(&other).Elem().Field(i).Set(reflect.ValueOf(&b).Elem().Field(i))
			same := bytes.Equal(AppendSettings(nil, &one), AppendSettings(nil, &other))
			if !same {
				want = append(want, name)
				differ++
			} else if one != other {
				alike++ // equal, though not the same pointers
			}
			if one.Equal(&other) != same {
				t.Fatalf("%s: %+v and %+v: equal %v, want %v", name, a.Value(name), b.Value(name), !same, same)
			}
		}
		if got := a.Changed(&b); !slices.Equal(got, want) {
			t.Fatalf("changed are %v, want %v", got, want)
		}
	}
	if differ < 1000 || alike < 1000 {
		t.Errorf("%d fields differed, and %d were alike: the test tests little", differ, alike)
	}
}

// A commit compares the settings of each job that it changes, and all other commits wait for it.
func TestComparingSettingsAllocatesOnlyTheirNames(t *testing.T) {
	a := Settings{Name: new("a"), Tags: &[]string{"x"}, Start: new(time.Unix(1, 0)), Limits: &[]jobs.Limit{{Name: "db", Max: 2}},
		RetryRules: &[]jobs.RetryRule{{Codes: []string{"x"}}}}
	b := a
	b.Name, b.Retries = new("b"), new(3)
	c := a
	if n := testing.AllocsPerRun(100, func() { a.Equal(&c); a.Changed(&c) }); n > 0 {
		t.Errorf("%v allocations for equal settings", n)
	}
	if n := testing.AllocsPerRun(100, func() { a.Changed(&b) }); n > 2 {
		t.Errorf("%v allocations for the names of two fields", n)
	}
}
