package ui

import (
	"testing"

	"github.com/carillon-scheduler/carillon/ops"
)

// Every template can be read, as a page and as fragments: New reads none of them.
func TestTemplates(t *testing.T) {
	u := New(Config{Ops: ops.New(ops.Config{})})
	if len(u.pages) < 20 || len(u.pages) != len(u.parts) {
		t.Fatalf("%d pages and %d for fragments", len(u.pages), len(u.parts))
	}
	for name := range u.pages {
		if u.pages[name]().Lookup("content") == nil || u.parts[name]().Lookup("content") == nil {
			t.Errorf("%s.gohtml defines no content", name)
		}
	}
}
