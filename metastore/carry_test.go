package metastore_test

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// oneOfEach is content with one row of each kind, and one finished run.
type oneOfEach struct{}

func (oneOfEach) Rows(context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for _, row := range []kernel.Row{&kernel.Definition{}, &kernel.Run{}, &kernel.Gate{}, &kernel.UniqueKey{}, &kernel.Missed{}, &kernel.Tally{}, &kernel.Global{},
			&kernel.StoreRow{}, &kernel.Token{}, &kernel.Session{}, &kernel.Audit{}, &kernel.History{}, &kernel.Calendar{},
			&kernel.Followers{}, &kernel.Occasion{}} {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func (oneOfEach) Ended(context.Context) iter.Seq2[*kernel.Run, error] {
	return func(yield func(*kernel.Run, error) bool) { yield(&kernel.Run{State: jobs.Succeeded}, nil) }
}

func (oneOfEach) Lines(context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(func(metastore.LogLine, error) bool) {}
}

// An account names each kind of row. Its keys stay as they are: backups store them.
func TestAccountNamesEachKind(t *testing.T) {
	c := metastore.Count(oneOfEach{})
	for _, err := range c.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range c.Ended(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	a := c.Account()
	for _, key := range []string{"rows of kind 12", "rows of kind 13", "runs that are over"} {
		if a[key].Count != 1 {
			t.Errorf("no %q in %v", key, a)
		}
	}
	counts := a.Counts()
	for _, name := range []string{"calendars", "earlier settings of jobs", "finished runs", "live runs", "missed ranges", "jobs"} {
		if counts[name] != 1 || !strings.Contains(a.String(), "1 "+name) || !strings.Contains(a.Differences(nil), "1 "+name+" are 0") {
			t.Errorf("%s: %v, %s", name, counts, a)
		}
	}
	if len(counts) != len(a) || strings.Contains(a.String()+a.Differences(nil), "kind") {
		t.Errorf("%v, %s", counts, a)
	}
}
