package client_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (d *fixture) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	d.mu.Lock()
	d.schemas++
	down := d.down
	d.mu.Unlock()
	if down {
		return nil, kernel.Refuse(jobs.Unavailable, "no leader")
	}
	return d.Store.Definition(ctx, tenant, key)
}

// Arguments that break the schema of their job are refused before anything is sent, with the place; a schema that has
// changed is read again before it refuses; and one read serves a minute of requests.
func TestArgumentsAreCheckedByTheSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		c := d.open()
		is := func(version int, of reflect.Type) {
			text, err := argschema.Describe(of)
			if err != nil {
				t.Fatal(err)
			}
			d.do(kernel.Register{App: "default", Worker: "w-1", Start: true, Job: kernel.Declaration{Key: "pack", Kind: kernel.Triggered, Version: version, Schema: text}})
		}
		is(1, reflect.TypeFor[struct {
			Box int `json:"box"`
		}]())
		pack := jobs.Trigger[map[string]any]("pack")
		for range 5 {
			if _, err := pack.Enqueue(t.Context(), c, map[string]any{"box": 7}); err != nil {
				t.Fatal(err)
			}
		}
		if d.schemas != 1 || len(d.batches) != 5 {
			t.Errorf("the schema was read %d times for %d batches", d.schemas, len(d.batches))
		}
		_, err := pack.Enqueue(t.Context(), c, map[string]any{"box": "seven"})
		if !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "job pack: args.box: ") || len(d.batches) != 5 {
			t.Errorf("a text for a number: %v, %d batches", err, len(d.batches))
		}
		if _, err = pack.EnqueueAll(t.Context(), c, []map[string]any{{"box": 1}, {}}); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "number 1 of the bulk") || len(d.batches) != 5 {
			t.Errorf("a bulk with a bad item: %v, %d batches", err, len(d.batches))
		}

		is(2, reflect.TypeFor[struct {
			Box string `json:"box"`
		}]())
		if _, err := pack.Enqueue(t.Context(), c, map[string]any{"box": "seven"}); err != nil {
			t.Errorf("the job has changed: %v", err)
		}
		time.Sleep(2 * time.Minute)
		d.down = true // schemas cannot be read: the last one holds, and a job without one is not checked
		if _, err := pack.Enqueue(t.Context(), c, map[string]any{"box": 8}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("a number for a text, by the last schema: %v", err)
		}
		if _, err := pack.Enqueue(t.Context(), c, map[string]any{"box": "eight"}); err != nil {
			t.Errorf("while no schema can be read: %v", err)
		}
		if _, err := pack.Enqueue(t.Context(), d.open(), map[string]any{"box": 8}); err != nil {
			t.Errorf("without a schema: %v", err)
		}
	})
}

// Arguments of the job's own Go type are encoded as its schema wants them, and are not checked; those of another type are,
// also when both enqueue in turns.
func TestArgumentsOfTheJobsOwnTypeAreNotChecked(t *testing.T) {
	type box struct {
		Name string `json:"name"`
		Size int    `json:"size,string"` // a text in JSON, which the schema calls an integer: a check would refuse it
	}
	d := newFixture(t)
	c := d.open()
	text, err := argschema.Describe(reflect.TypeFor[box]())
	if err != nil {
		t.Fatal(err)
	}
	d.do(kernel.Register{App: "default", Worker: "w-1", Start: true, Job: kernel.Declaration{Key: "pack", Kind: kernel.Triggered, Schema: text}})
	for range 3 {
		if _, err := jobs.Trigger[box]("pack").EnqueueAll(t.Context(), c, []box{{"a", 1}, {"b", 2}}); err != nil {
			t.Errorf("of the job's type: %v", err)
		}
		if _, err := jobs.Trigger[map[string]any]("pack").Enqueue(t.Context(), c, map[string]any{"name": 7}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("a map that does not fit: %v", err)
		}
	}
	if _, err := c.Enqueue(t.Context(), jobs.Request{Key: "pack", Args: []byte(`{"name":"a"}`)}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("a request without a type, and without a size: %v", err)
	}
}
