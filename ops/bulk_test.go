package ops_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// choosy is a store that refuses runs with some arguments.
type choosy struct {
	metastore.Store
	refuses map[string]jobs.Code
}

func (c *choosy) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	results := make([]metastore.Result, len(batch))
	for i, e := range batch {
		if code := c.refuses[string(e.Command.(kernel.Create).Args)]; code != "" {
			results[i] = metastore.Result{Err: kernel.Refuse(code, "not this one")}
		} else {
			results[i] = c.Store.Apply(ctx, []kernel.Envelope{e})[0]
		}
	}
	return results
}

// A bulk of which some runs were made, before or behind the one that was refused, is not said not to have been done.
func TestBulkThatWasPartlyDone(t *testing.T) {
	const a, b = `{"n":1}`, `{"n":2}`
	for _, c := range []struct {
		args    []string
		refused jobs.Code
		want    jobs.Code
	}{
		{[]string{a, a, b}, jobs.Unavailable, jobs.Unknown},
		{[]string{b, a, a}, jobs.NotFound, jobs.Unknown},
		{[]string{b, b}, jobs.Unavailable, jobs.Unavailable},
		{[]string{b}, jobs.NotFound, jobs.NotFound},
	} {
		d := newFixture(t)
		o := ops.New(ops.Config{Store: &choosy{d.store, map[string]jobs.Code{b: c.refused}}, Now: func() time.Time { return d.now }})
		var requests []kernel.Create
		for _, args := range c.args {
			requests = append(requests, kernel.Create{Key: "app.work", Args: []byte(args)})
		}
		_, err := o.TriggerAll(t.Context(), ann, requests)
		if item, ok := errors.AsType[*ops.ItemError](err); !ok || jobs.CodeOf(err) != c.want || c.args[item.Index] != b {
			t.Errorf("%q, refused as %s: %v", c.args, c.refused, err)
		}
	}
}
