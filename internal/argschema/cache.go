package argschema

import (
	"fmt"
	"sync"
)

// Error is an error of arguments that do not fit the schema of their job, with the place in them.
type Error struct {
	Place string // such as items[2].price; "" = the arguments as a whole
	Err   error  // why; it is jobs.BadInput
}

// Path is the place as it is within what was sent, such as args.items[2].price.
func (e *Error) Path() string {
	if e.Place == "" {
		return "args"
	}
	return "args." + e.Place
}

func (e *Error) Error() string { return fmt.Sprintf("%.200s: %v", e.Path(), e.Err) }

// Unwrap returns why; it is jobs.BadInput.
func (e *Error) Unwrap() error { return e.Err }

// Cache checks arguments by schemas, and keeps compiled schemas: compiling takes longer than a check. A large schema
// takes seconds, for which callers with other schemas do not wait. The zero value works.
type Cache struct {
	mu sync.Mutex
	by map[string]func() func([]byte) (string, error)
}

// maxSchemas bounds the compiled schemas of a Cache. Most schedulers have fewer jobs with arguments.
const maxSchemas = 1_000

// Check returns an *Error if args do not fit schema. Nil args, and a nil schema, fit.
func (c *Cache) Check(schema, args []byte) error {
	if len(schema) == 0 || len(args) == 0 {
		return nil
	}
	if place, err := c.of(schema)(args); err != nil {
		return &Error{Place: place, Err: err}
	}
	return nil
}

// of returns the check of a schema, which its first caller compiles.
func (c *Cache) of(schema []byte) func([]byte) (string, error) {
	c.mu.Lock()
	compiled, known := c.by[string(schema)]
	if !known {
		if len(c.by) >= maxSchemas || c.by == nil {
			c.by = map[string]func() func([]byte) (string, error){}
		}
		compiled = sync.OnceValue(func() func([]byte) (string, error) { return Checker(schema) })
		c.by[string(schema)] = compiled
	}
	c.mu.Unlock()
	return compiled()
}
