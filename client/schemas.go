package client

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	keepSchema  = time.Minute     // how long a job's schema is used without reading it again
	keepFailure = time.Second     // how long after a failed read it is not repeated
	readTime    = 2 * time.Second // how long a request waits for the schema of its job
)

// schemas are the schemas of jobs, as the client read them last. A request that breaks a schema is refused before it is
// sent, as the API does; whether the job exists is for the store to decide.
type schemas struct {
	checks argschema.Cache

	mu sync.Mutex
	of map[jobs.Key]schema
}

type schema struct {
	text  []byte
	own   reflect.Type // a type that text describes: what encoding/json makes of its values fits
	until time.Time    // it is read again after this
}

// checkArgs returns why arguments do not fit the schema of their job. A schema that was read before this call is read
// again before it refuses anything: the job may have changed. While no control plane answers, the last schema is used;
// without one nothing is checked.
//
// Arguments encoded from a type with just this schema are not checked: a check takes longer than the rest of enqueueing.
func (c *Client) checkArgs(ctx context.Context, key jobs.Key, of reflect.Type, args []byte) error {
	if len(args) == 0 {
		return nil
	}
	c.schemas.mu.Lock()
	known, ok := c.schemas.of[key]
	c.schemas.mu.Unlock()
	if ok && time.Now().Before(known.until) && c.schemas.fits(known, of, args) == nil {
		return nil
	}
	if err := c.schemas.fits(c.readSchema(ctx, key, of), of, args); err != nil {
		return fmt.Errorf("job %s: %w", key, err)
	}
	return nil
}

func (s *schemas) fits(by schema, of reflect.Type, args []byte) error {
	if of != nil && of == by.own {
		return nil
	}
	return s.checks.Check(by.text, args)
}

// readSchema reads and keeps the schema of a job; nil if it has none. If it cannot be read now, the last one is kept.
func (c *Client) readSchema(ctx context.Context, key jobs.Key, of reflect.Type) schema {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	d, err := c.store.Definition(ctx, c.config.Tenant, key)
	if err == nil && d.Policy.Handler != "" { // the code that runs it has the schema
		d, err = c.store.Definition(ctx, c.config.Tenant, jobs.Key(d.Policy.Handler))
	}
	c.schemas.mu.Lock()
	defer c.schemas.mu.Unlock()
	s := c.schemas.of[key]
	s.until = time.Now().Add(keepFailure)
	if err == nil {
		if !bytes.Equal(s.text, d.Schema) {
			s.own = nil
		}
		s.text, s.until = d.Schema, time.Now().Add(keepSchema)
		if described, err := argschema.Describe(of); err == nil && described != nil && bytes.Equal(described, d.Schema) {
			s.own = of
		}
	}
	if c.schemas.of == nil || len(c.schemas.of) >= maxKeys {
		c.schemas.of = map[jobs.Key]schema{}
	}
	c.schemas.of[key] = s
	return s
}

// maxKeys bounds the jobs whose schemas a client keeps.
const maxKeys = 10_000
