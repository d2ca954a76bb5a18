package ops

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// HTTPError is the error of invalid HTTP requests of a job, with the place.
type HTTPError struct {
	Place string // such as request[1].url; "" = all of it
	Err   error  // why; it is jobs.BadInput
}

// Path returns the place within the request, such as http.request[1].url.
func (e *HTTPError) Path() string {
	if e.Place == "" {
		return "http"
	}
	return "http." + e.Place
}

func (e *HTTPError) Error() string { return fmt.Sprintf("http: %v", e.Err) }

// Unwrap returns the cause, which is jobs.BadInput.
func (e *HTTPError) Unwrap() error { return e.Err }

// checkHTTP validates the HTTP requests in settings of a job, if there are any.
func (o *Ops) checkHTTP(app string, s *kernel.Settings) error {
	if o.http == nil || s.HTTP == nil || kernel.NoHTTP(*s.HTTP) {
		return nil
	}
	if place, err := o.http(app, *s.HTTP); err != nil {
		return &HTTPError{Place: place, Err: err}
	}
	return nil
}
