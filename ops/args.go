package ops

import (
	"fmt"
	"sync"
)

// ArgsError is the error of arguments that violate the schema of their job, with the place.
type ArgsError struct {
	Place string // such as items[2].price; "" = the arguments as a whole
	Err   error  // why; it is jobs.BadInput
}

// Path returns the place within the request, such as args.items[2].price.
func (e *ArgsError) Path() string {
	if e.Place == "" {
		return "args"
	}
	return "args." + e.Place
}

func (e *ArgsError) Error() string { return fmt.Sprintf("%.200s: %v", e.Path(), e.Err) }

// Unwrap returns the cause, which is jobs.BadInput.
func (e *ArgsError) Unwrap() error { return e.Err }

// argsCheck validates arguments; the zero value accepts any.
type argsCheck struct{ check func([]byte) (string, error) }

func (c argsCheck) run(args []byte) error {
	if c.check == nil || len(args) == 0 {
		return nil
	}
	if place, err := c.check(args); err != nil {
		return &ArgsError{Place: place, Err: err}
	}
	return nil
}

// checks compiles checks of schemas, and caches some: compiling takes longer than checking.
type checks struct {
	make func([]byte) func([]byte) (string, error)

	mu sync.Mutex
	by map[string]argsCheck
}

// maxChecks limits the cache. Most schedulers have fewer jobs with arguments.
const maxChecks = 1_000

func (c *checks) of(schema []byte) argsCheck {
	if c.make == nil || len(schema) == 0 {
		return argsCheck{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	check, known := c.by[string(schema)]
	if !known {
		if len(c.by) >= maxChecks || c.by == nil {
			c.by = map[string]argsCheck{}
		}
		check = argsCheck{c.make(schema)}
		c.by[string(schema)] = check
	}
	return check
}
