package argschema

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

type embedded struct {
	Region string `json:"region" carillon:"search"`
}

type charged struct {
	embedded
	Customer struct {
		ID   string `json:"id" carillon:"search"`
		Name string `json:"name"`
	} `json:"customer"`
	Cents int        `carillon:"search"`
	Paid  *bool      `json:"paid,omitempty" carillon:"search"`
	From  time.Time  `json:"from" carillon:"search"`
	Until *time.Time `json:"until"`
	Items []string   `json:"items"`
}

// The tag of a field declares that runs are found by it, wherever the field is.
func TestSearchable(t *testing.T) {
	schema, err := Describe(reflect.TypeFor[charged]())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := Searchable(schema), []string{"Cents", "customer.id", "from", "paid", "region"}; !slices.Equal(got, want) {
		t.Errorf("searchable are %q, want %q, by %s", got, want, schema)
	}
	if place, err := Checker(schema)([]byte(`{"region":"eu","customer":{"id":"c7","name":"Ann"},"Cents":"x","from":"2026-11-26T00:00:00Z","until":null,"items":[]}`)); err == nil || place != "Cents" {
		t.Errorf("text instead of a number: %q, %v", place, err)
	}
	for _, schema := range []string{"", "{}", `{"properties":{"x-carillon-search":{"type":"string"}}}`, `{"properties":{"a":{"x-carillon-search":7}}}`} {
		if got := Searchable([]byte(schema)); got != nil {
			t.Errorf("%s: %q", schema, got)
		}
	}
}

// A list or an object cannot be compared with what a person types, and another tag is a typing error.
func TestNotSearchable(t *testing.T) {
	for _, of := range []reflect.Type{
		reflect.TypeFor[struct {
			Items []string `carillon:"search"`
		}](),
		reflect.TypeFor[struct {
			Customer struct{ ID string } `carillon:"search"`
		}](),
		reflect.TypeFor[struct {
			Hidden string `json:"-" carillon:"search"`
		}](),
		reflect.TypeFor[struct {
			Deep struct {
				Customer string `carillon:"find"`
			}
		}](),
	} {
		if _, err := Describe(of); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%v: %v", of, err)
		}
	}
}
