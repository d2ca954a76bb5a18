package argschema

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

type tree struct{ Left, Right *tree }

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		name string
		of   reflect.Type
		want string // part of the schema; "" = none
		err  string
	}{
		{"nothing", nil, "", ""},
		{"a struct", reflect.TypeFor[struct {
			Customer string `json:"customer" jsonschema:"who pays"`
			Cents    int    `json:"cents,omitempty"`
		}](), `"properties":{"customer":{"type":"string","description":"who pays"},"cents":{"type":"integer"}},"required":["customer"]`, ""},
		{"times, ids and bytes", reflect.TypeFor[struct {
			At   time.Time
			Run  jobs.ID
			Data []byte
			Raw  json.RawMessage
		}](), `"properties":{"At":{"type":"string"},"Run":{"type":"string"},"Data":{"type":"string","contentEncoding":"base64"},"Raw":true}`, ""},
		{"a map", reflect.TypeFor[map[string]int](), `"additionalProperties":{"type":"integer"}`, ""},
		{"a pointer", reflect.TypeFor[*struct{ A int }](), `"A"`, ""},
		{"anything", reflect.TypeFor[any](), "true", ""},
		{"raw JSON", reflect.TypeFor[json.RawMessage](), "", ""},
		{"a tree", reflect.TypeFor[tree](), "", ""},
		{"a struct with a function", reflect.TypeFor[struct {
			A int
			F func() `json:"-"`
		}](), `"A"`, ""},
		{"a number", reflect.TypeFor[int](), "", "arguments of type int: they must be a struct or a map"},
		{"a list", reflect.TypeFor[[]string](), "", "arguments of type []string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Describe(c.of)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (c.want == "") != (got == nil) || !strings.Contains(string(got), c.want) {
				t.Errorf("schema %s, want it to contain %s", got, c.want)
			}
		})
	}
}
