package ops

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// WorkError is the error of an invalid value of http or exec, with the place.
type WorkError struct {
	Key     jobs.Key
	Setting string
	Place   string // such as request[1].url; "" = all of it
	Err     error  // why; it is jobs.BadInput
}

// Path returns the place within the request, such as http.request[1].url.
func (e *WorkError) Path() string {
	if e.Place == "" {
		return e.Setting
	}
	return e.Setting + "." + e.Place
}

func (e *WorkError) Error() string {
	if e.Setting == kernel.WorkHTTP { // its errors begin with the place
		return fmt.Sprintf("job %s: http: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("job %s: %s: %v", e.Key, e.Path(), e.Err)
}

// Unwrap returns the cause, which is jobs.BadInput.
func (e *WorkError) Unwrap() error { return e.Err }

// checkWork validates the HTTP requests or the command in settings of a job, if there are any.
func (o *Ops) checkWork(key jobs.Key, app string, s *kernel.Settings) error {
	if o.http != nil && s.HTTP != nil && !kernel.NoWork(*s.HTTP) {
		if place, err := o.http(app, *s.HTTP); err != nil {
			return &WorkError{Key: key, Setting: kernel.WorkHTTP, Place: place, Err: err}
		}
	}
	if s.Exec != nil && !kernel.NoWork(*s.Exec) {
		if place, err := execspec.Check(*s.Exec); err != nil {
			return &WorkError{Key: key, Setting: kernel.WorkExec, Place: place, Err: kernel.Invalid("%v", err)}
		}
	}
	return nil
}

// commandless explains that no online worker runs the command of a job; "" = one does, or the job is no command.
func commandless(d *kernel.Definition, workers []Worker) string {
	if d.Policy.Work() != kernel.WorkExec || slices.ContainsFunc(workers, func(w Worker) bool { return w.App == d.App && w.Serves(d) }) {
		return ""
	}
	return noCommands(d.App)
}

func noCommands(app string) string {
	return fmt.Sprintf("no online worker of the app %s runs commands: start carillon worker --exec", app)
}
