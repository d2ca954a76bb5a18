package kernel

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Each text of each command is refused if it is none: a store that cannot hold it would fail on the commit of all
// others beside it. Commands that do not go through the coder have a valid example here, so that nothing else is the
// reason.
func TestTextsOfCommandsAreTexts(t *testing.T) {
	priority, delay := 1, time.Second
	valid := map[Verb]Command{
		VerbCreate: Create{ID: jobs.ID{1}, Key: "k", Args: []byte(`{}`), Due: noon, Delay: time.Second, Unique: "u", UniqueFor: time.Second, Idempotency: "i", Origin: FromRetry,
			Trace: "00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("1", 16) + "-01", Priority: &priority, Retries: &priority, Timeout: &delay, StartWithin: &delay, Pin: "w", Occasion: "o"},
		VerbStart:  Start{ID: jobs.ID{1}, Worker: "w", Attempt: 1, Term: 1},
		VerbFinish: Finish{ID: jobs.ID{1}, Worker: "w", Attempt: 1, Outcome: OutcomeError, Result: []byte("1"), Error: "e", Delay: 1, Code: "c"},
	}
	for _, k := range commands(1) {
		example, own := valid[k.Verb()]
		if own {
			if err := CheckCommand(example); err != nil {
				t.Errorf("%s: %v", typeName(k), err)
			}
			k = example
		}
		for _, hostile := range []string{"a\x00b", "\xff", "\xed\xa0\x80"} {
			for path, changed := range withEachText(k, hostile) {
				if err := CheckCommand(changed); jobs.CodeOf(err) != jobs.BadInput || !own && !strings.Contains(err.Error(), "is not UTF-8, or contains a NUL") {
					t.Errorf("%s%s = %q: %v", typeName(k), path, hostile, err)
				}
			}
		}
	}
	for path, e := range withEachText(Envelope{ID: jobs.ID{1}, Tenant: "t", Actor: "a", Reason: "r", Command: Cancel{ID: jobs.ID{1}}}, "\x00") {
		if err := e.Check(); jobs.CodeOf(err) != jobs.BadInput {
			t.Errorf("envelope%s: %v", path, err)
		}
	}
}

// withEachText returns copies of a value in which one text, by its path, is another.
func withEachText[T any](v T, text string) map[string]T {
	all := map[string]T{}
	for n := 0; ; n++ {
		copied := reflect.New(reflect.TypeOf(v)).Elem()
		copied.Set(deepCopy(reflect.ValueOf(v)))
		left := n
		path, found := setText(copied, text, "", &left)
		if !found {
			return all
		}
		all[path] = copied.Interface().(T)
	}
}

func deepCopy(v reflect.Value) reflect.Value {
	copied := reflect.New(v.Type()).Elem()
	copied.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			copied.Set(reflect.New(v.Type().Elem()))
			copied.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			copied.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				copied.Index(i).Set(deepCopy(v.Index(i)))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				copied.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	}
	return copied
}

// setText sets the text with a number, counted from 0.
func setText(v reflect.Value, text, path string, left *int) (at string, found bool) {
	switch v.Kind() {
	case reflect.String:
		if *left--; *left < 0 {
			v.SetString(text)
			return path, true
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return setText(v.Elem(), text, path, left)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if at, found := setText(v.Index(i), text, path+"[]", left); found {
				return at, true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if at, found := setText(v.Field(i), text, path+"."+f.Name, left); found {
					return at, true
				}
			}
		}
	}
	return "", false
}
