package sqlstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Three processes have the rows, and another one when one of them has ended or no longer answers.
func TestThreeFollow(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		first := led(t, Config{URL: url, Node: "n0"})
		do(t, first, register("k"))
		all := []*Store{first}
		for i := range 4 {
			all = append(all, open(t, Config{URL: url, Node: fmt.Sprintf("n%d", i+1)}))
		}
		for i, s := range all {
			if s.Whole() != (i < 3) {
				t.Errorf("%s: whole %v", s.Node(), s.Whole())
			}
		}
		if err := all[4].Linearizable(t.Context()); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("a process without rows: %v", err)
		}
		if _, err := all[4].Retain(t.Context(), metastore.Retention{}); !errors.Is(err, metastore.ErrNotWhole) {
			t.Errorf("a process without rows: %v", err)
		}
		copied := open(t, Config{URL: url, Node: "copy", Copy: true})
		if !copied.Whole() {
			t.Error("a process that wants a copy has none")
		}
		if err := all[1].Close(); err != nil {
			t.Fatal(err)
		}
		within(t, "another one follows", func() bool { return all[3].Whole() || all[4].Whole() })
		next, last := all[3], all[4]
		if last.Whole() {
			next, last = last, next
		}
		if err := next.Linearizable(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := next.Definition(t.Context(), jobs.DefaultTenant, "k"); err != nil {
			t.Error(err)
		}
		all[2].cancel() // as if it hung: it renews nothing
		within(t, "the last one follows", last.Whole)
		do(t, first, register("l")) // the first one leads still
	})
}

// A process that starts again, as often as it may, takes the place that it had.
func TestAProcessKeepsItsPlace(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		for range 5 {
			s := open(t, Config{URL: url, Node: "n"})
			if !s.Whole() {
				t.Error("it has no place")
			}
			s.cancel() // as if it died
		}
	})
}
