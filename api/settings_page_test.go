package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

var inBackquotes = regexp.MustCompile("`([^`]*)`")

// words are what stands in backquotes in a cell.
func words(cell string) (list []string) {
	for _, m := range inBackquotes.FindAllStringSubmatch(cell, -1) {
		list = append(list, m[1])
	}
	return list
}

// docs/settings.md names each setting once, with its default, and all its values if those are names.
func TestSettingsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	d := newFixture(t)
	holds := func(key string) (all map[string]any) {
		if err := json.Unmarshal(d.send("GET", "/api/v1/jobs/"+key, "").body, &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	recurring, triggered := holds("billing.close-day"), holds("billing.charge")
	var named []string
	for _, row := range strings.Split(string(page), "\n") {
		cells := strings.Split(row, " |")
		if len(cells) < 4 || !strings.HasPrefix(row, "| `") {
			continue
		}
		said := words(cells[3])
		if len(said) < 2 {
			said = []string{strings.Join(said, ""), strings.Join(said, "")}
		}
		for _, name := range words(cells[0]) {
			named = append(named, name)
			for i, all := range []map[string]any{recurring, triggered} {
				if want := plain(all[name]); name != "name" && name != "schedule" && !same(said[i], want) {
					t.Errorf("%s: the page says %q of a %s job, and it is %q", name, said[i], []string{"recurring", "triggered"}[i], want)
				}
			}
			f, ok := reflect.TypeFor[api.Policy]().FieldByNameFunc(func(n string) bool {
				f, _ := reflect.TypeFor[api.Policy]().FieldByName(n)
				return strings.Split(f.Tag.Get("json"), ",")[0] == name
			})
			if values := f.Tag.Get("enum"); ok && values != "" && !slices.Equal(words(cells[2]), strings.Split(values, ",")) {
				t.Errorf("%s: the page says %s, and it can be %s", name, cells[2], values)
			}
		}
	}
	want := kernel.Fields()
	slices.Sort(want)
	slices.Sort(named)
	for _, name := range want {
		if !slices.Contains(named, name) {
			t.Errorf("setting %s has no row: add one to docs/settings.md", name)
		}
	}
	if !t.Failed() && !slices.Equal(named, want) {
		t.Errorf("the page has\n%q, settings are\n%q", named, want)
	}
}

// Each enum of the API that names values of a setting, or origins, has all of them.
func TestEnums(t *testing.T) {
	names := map[string][]string{}
	for _, name := range kernel.Fields() {
		if list := kernel.Choices(name); list != nil {
			names[name] = list
		}
	}
	for _, o := range kernel.Origins() {
		names["origin"] = append(names["origin"], string(o))
	}
	found := map[string]bool{}
	check := func(name string, schema any) {
		s, ok := schema.(map[string]any)
		if !ok || names[name] == nil {
			return
		}
		if list, ok := s["enum"].([]any); ok {
			found[name] = true
			if got, want := fmt.Sprint(list), fmt.Sprint(names[name]); got != want {
				t.Errorf("an enum of %s is %v, want %s: change its tags in api", name, list, strings.Join(names[name], ","))
			}
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if name, ok := v["name"].(string); ok {
				check(name, v["schema"])
			}
			if properties, ok := v["properties"].(map[string]any); ok {
				for name, schema := range properties {
					check(name, schema)
				}
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	raw, err := api.New(api.Config{Ops: ops.New(ops.Config{Store: memstore.Open(memstore.Config{})})}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	walk(document)
	for name := range names {
		if !found[name] {
			t.Errorf("%s has no enum: add the tag enum:%q in api/model.go", name, strings.Join(names[name], ","))
		}
	}
}

// plain is a value as the page writes it.
func plain(v any) string {
	if list, ok := v.([]any); v == nil || ok && len(list) == 0 {
		return ""
	}
	return fmt.Sprint(v)
}

func same(said, is string) bool {
	a, err1 := time.ParseDuration(said)
	b, err2 := time.ParseDuration(is)
	return said == is || err1 == nil && err2 == nil && a == b
}
