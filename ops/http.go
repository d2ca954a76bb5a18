package ops

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// HTTPError says that what an HTTP job is to do is not understood, and at which place in it.
type HTTPError struct {
	Place string // such as request[1].url; "" = all of it
	Err   error  // why; it is jobs.BadInput
}

// Path is the place as it is within what was sent, such as http.request[1].url.
func (e *HTTPError) Path() string {
	if e.Place == "" {
		return "http"
	}
	return "http." + e.Place
}

func (e *HTTPError) Error() string { return fmt.Sprintf("http: %v", e.Err) }

// Unwrap makes it what it is: bad input.
func (e *HTTPError) Unwrap() error { return e.Err }

// checkHTTP reads what settings of a job of an app say about an HTTP job, if they say something.
func (o *Ops) checkHTTP(app string, s *kernel.Settings) error {
	if o.http == nil || s.HTTP == nil || kernel.NoHTTP(*s.HTTP) {
		return nil
	}
	if place, err := o.http(app, *s.HTTP); err != nil {
		return &HTTPError{Place: place, Err: err}
	}
	return nil
}
