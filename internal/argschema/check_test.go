package argschema

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

func TestArgsChecker(t *testing.T) {
	type item struct {
		Name  string  `json:"name"`
		Price float64 `json:"price,omitempty"`
	}
	schema, err := Describe(reflect.TypeFor[struct {
		Customer string            `json:"customer"`
		Items    []item            `json:"items,omitempty"`
		Labels   map[string]string `json:"labels,omitempty"`
		Note     *string           `json:"note,omitempty"`
	}]())
	if err != nil {
		t.Fatal(err)
	}
	ref := []byte(`{"type":"object","properties":{"at":{"$ref":"#/$defs/place"}},"$defs":{"place":{"type":"object","required":["x"]}}}`)
	for _, c := range []struct {
		name   string
		schema []byte
		args   string
		place  string
		text   string // "" = it fits
	}{
		{"all there is", schema, `{"customer":"c7","items":[{"name":"a","price":1.5}],"labels":{"a":"b"},"note":null}`, "", ""},
		{"another type", schema, `{"customer":7}`, "customer", "integer"},
		{"deep", schema, `{"customer":"c7","items":[{"name":"a"},{"name":"b"},{"name":"c","price":"much"}]}`, "items[2].price", "number"},
		{"in a map", schema, `{"customer":"c7","labels":{"good":"x","bad":1}}`, "labels.bad", "string"},
		{"missing", schema, `{}`, "customer", "is missing"},
		{"missing, deep", schema, `{"customer":"c7","items":[{}]}`, "items[0].name", "is missing"},
		{"not known", schema, `{"customer":"c7","costumer":"c8"}`, "costumer", "unexpected"},
		{"another case", schema, `{"Customer":"c7"}`, "Customer", "unexpected"},
		{"a reference", ref, `{"at":{}}`, "", "x"},
		{"a reference that fits", ref, `{"at":{"x":1}}`, "", ""},
		{"no schema at all", []byte(`nonsense`), `{"a":1}`, "", ""},
		{"a schema that text nothing", []byte(`{}`), `{"a":1}`, "", ""},
		{"a schema with a hole", []byte(`{"$ref":"#/nowhere"}`), `{"a":1}`, "", ""},
	} {
		place, err := Checker(c.schema)([]byte(c.args))
		if place != c.place || (err == nil) != (c.text == "") || err != nil && (!errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: %q: %v; want %q: %s", c.name, place, err, c.place, c.text)
		}
	}
}

// Any user who registers a job supplies a schema, and the server evaluates it. These would crash it, or keep it busy
// forever.
func TestHostileSchemas(t *testing.T) {
	doubling := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/a0","required":["x"],"$defs":{`)
		for i := range n {
			fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
		}
		fmt.Fprintf(&b, `"a%d":{}}}`, n)
		return b.String()
	}
	long := `{"a":"` + strings.Repeat("a", 200_000) + `"}`
	many := `{"a":[` + strings.Repeat(`1,`, 100_000) + `1]}`
	deep := strings.Repeat(`{"properties":{"a":`, 60) + `{"type":"integer"}` + strings.Repeat(`}}`, 60)
	for _, c := range []struct{ name, schema, args string }{
		{"itself", `{"$ref":"#"}`, `{}`},
		{"itself, in another case", `{"$REF":"#","allOf":[{"$Ref":"#"}]}`, `{}`},
		{"itself, among others", `{"allOf":[{"$ref":"#"}]}`, `{}`},
		{"itself, by a way around", `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{},{"$ref":"#/$defs/a"}]}}}`, `{}`},
		{"itself, by its name", `{"$id":"http://x/y","allOf":[{"$ref":"http://x/y"}]}`, `{}`},
		{"itself, by an anchor", `{"$anchor":"a","allOf":[{"$ref":"#a"}]}`, `{}`},
		{"itself, by a dynamic one", `{"$dynamicAnchor":"a","allOf":[{"$dynamicRef":"#a"}]}`, `{}`},
		{"itself, escaped", `{"$defs":{"a b":{"$ref":"#/$defs/a%20b"}},"$ref":"#/$defs/a%20b"}`, `{}`},
		{"itself, below another name", `{"$defs":{"a":{}},"properties":{"x":{"$id":"z","$defs":{"a":{"$ref":"#"}},"$ref":"#/$defs/a"}}}`, `{"x":{}}`},
		{"two to the 60th", doubling(60), `{}`},
		{"a pattern that is many", `{"properties":{"a":{"pattern":"((b{0,30}a{1,30}){1,30})*$"}}}`, long},
		{"many parts, many values", `{"properties":{"a":{"items":{"allOf":[` + strings.Repeat(`{},`, 1_000) + `{"type":"string"}]}}}}`, many},
		{"many properties by patterns", `{"patternProperties":{"(a{1,30}){1,30}b":{},"((a{1,31}){1,30})*":{}}}`, strings.Replace(long, `"a":`, `"b":`, 1)},
	} {
		quickest := time.Hour
		for range 3 { // on a machine that does other things, too
			begun := time.Now()
			if place, err := Checker([]byte(c.schema))([]byte(c.args)); err != nil {
				t.Errorf("%s: %q: %v", c.name, place, err)
			}
			if quickest = min(quickest, time.Since(begun)); quickest <= 10*time.Second {
				break
			}
		}
		if quickest > 10*time.Second {
			t.Errorf("%s: took %v", c.name, quickest)
		}
	}
	place, err := Checker([]byte(deep))([]byte(strings.Repeat(`{"a":`, 60) + `"x"` + strings.Repeat(`}`, 60)))
	if err == nil || !strings.HasPrefix(place, "a.a.a") {
		t.Errorf("something wrong far below: %q: %v", place, err)
	}
}

func BenchmarkArgsChecker(b *testing.B) {
	schema, err := Describe(reflect.TypeFor[struct {
		Customer string   `json:"customer"`
		Items    []string `json:"items,omitempty"`
	}]())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Checker(schema)([]byte(`{"customer":"c7","items":["a","b"]}`)); err != nil {
			b.Fatal(err)
		}
	}
}
