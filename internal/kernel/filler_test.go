package kernel

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"time"
)

// filler makes values in which no field is zero, so that a field that a change forgets to carry is missed. What
// a field gets follows from its path alone: adding a field does not change the others.
type filler struct{ seed uint64 }

func (f filler) fill(v reflect.Value, path string) {
	h := fnv.New64a()
	fmt.Fprint(h, f.seed, path)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	if !v.CanInterface() { // an embedded type of this package: its fields count
		for i := range v.NumField() {
			f.fill(v.Field(i), path)
		}
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(0, 1+r.Int64N(7e18)).UTC()))
		return
	case json.RawMessage:
		v.SetBytes(fmt.Appendf(nil, `{"n":%d}`, r.Uint32()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		v.Set(v.Slice3(0, v.Len(), v.Len()))
		for i := range v.Len() {
			f.fill(v.Index(i), fmt.Sprint(path, i))
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), fmt.Sprint(path, i))
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("%x", r.Uint32()>>r.IntN(16)+1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		n := 1 + r.Int64N(1<<(1+r.IntN(61)))
		if r.IntN(2) == 0 {
			n = -n
		}
		v.SetInt(n)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		most := uint64(1)<<v.Type().Bits() - 1 // of 64 bits: all of them
		v.SetUint(1 + r.Uint64N(most))
	case reflect.Float64:
		v.SetFloat(1 + r.Float64())
	default:
		panic("a filler has nothing for " + v.Type().String())
	}
}

// filled is a T without a zero field; another seed gives another one.
func filled[T any](seed uint64) T {
	var v T
	filler{seed}.fill(reflect.ValueOf(&v).Elem(), reflect.TypeFor[T]().Name())
	return v
}
