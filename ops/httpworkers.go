package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// HTTPWorkers serves workers that poll over HTTP: this process is their client of bus and store. Such a worker may switch to
// another process of the control plane at any time, with its name and its runs: it sends the same registration there.
// An error of jobs.NotFound about a worker means that it must register; one of jobs.Stale, that it no longer owns an
// attempt.
type HTTPWorkers interface {
	// Register registers a worker. Repeating it changes nothing.
	Register(ctx context.Context, who Who, w HTTPWorker) (HTTPAnswer, error)
	// Poll waits until there are runs for the worker, or attempts to stop, or the wait has expired.
	Poll(ctx context.Context, who Who, worker string, p HTTPPoll) (HTTPWork, error)
	// Heartbeat renews the worker's leases. With drain it gets no new runs.
	Heartbeat(ctx context.Context, who Who, worker string, drain bool) (HTTPAnswer, error)
	// Finish ends an attempt and returns the run after it. A repeated request gets the same result.
	Finish(ctx context.Context, who Who, worker string, f kernel.Finish) (*kernel.Run, error)
	Progress(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, p bus.Progress) error
	Checkpoint(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, data []byte) error
	Log(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, l HTTPLog) error
	// Leave releases the worker's runs and deregisters it.
	Leave(ctx context.Context, who Who, worker string) error
}

// HTTPWorker is a worker that polls for runs.
type HTTPWorker struct {
	App, Name string
	Start     string // identifies its process
	Slots     int
	Tags      []string
	Host      string
	PID       int
	Version   string
	Jobs      []kernel.Declaration
	Has       []HTTPAttempt // its attempts, from another process or from before a restart of this one
}

// HTTPAttempt names an attempt.
type HTTPAttempt struct {
	Run     jobs.ID
	Attempt uint32
}

// HTTPAnswer is sent to a worker with each response.
type HTTPAnswer struct {
	Worker  string        // its name, for all further requests
	Lease   time.Duration // its lease: how long it may be silent
	Every   time.Duration // its heartbeat interval
	Stop    []bus.Stop    // attempts to end
	Resting bool          // it is drained: it gets no new runs
}

// HTTPPoll is a poll.
type HTTPPoll struct {
	Want int
	Got  string // the batch of the last response that arrived
	Wait time.Duration
}

// HTTPWork is the response to a poll.
type HTTPWork struct {
	HTTPAnswer
	Batch string
	Runs  []HTTPRun
}

// HTTPRun is a run for the worker.
type HTTPRun struct {
	*kernel.Run
	Left time.Duration // of the attempt's time; 0 = no timeout
}

// HTTPLog is lines of a log.
type HTTPLog struct {
	First uint64 // the number of the first line, from 1; 0 = they are not counted
	Lines []HTTPLine
}

// HTTPLine is one log line.
type HTTPLine struct{ Level, Text string }

// HTTPWorkers returns the part that serves workers over HTTP.
func (o *Ops) HTTPWorkers() HTTPWorkers { return o.httpWorkers }

// noPull is the Pull of a process that serves no workers over HTTP.
type noHTTPWorkers struct{}

var errNoHTTPWorkers = kernel.Refuse(jobs.Unavailable, "this process serves no workers over HTTP")

func (noHTTPWorkers) Register(context.Context, Who, HTTPWorker) (HTTPAnswer, error) {
	return HTTPAnswer{}, errNoHTTPWorkers
}

func (noHTTPWorkers) Poll(context.Context, Who, string, HTTPPoll) (HTTPWork, error) {
	return HTTPWork{}, errNoHTTPWorkers
}

func (noHTTPWorkers) Heartbeat(context.Context, Who, string, bool) (HTTPAnswer, error) {
	return HTTPAnswer{}, errNoHTTPWorkers
}

func (noHTTPWorkers) Finish(context.Context, Who, string, kernel.Finish) (*kernel.Run, error) {
	return nil, errNoHTTPWorkers
}

func (noHTTPWorkers) Progress(context.Context, Who, string, jobs.ID, uint32, bus.Progress) error {
	return errNoHTTPWorkers
}

func (noHTTPWorkers) Checkpoint(context.Context, Who, string, jobs.ID, uint32, []byte) error {
	return errNoHTTPWorkers
}

func (noHTTPWorkers) Log(context.Context, Who, string, jobs.ID, uint32, HTTPLog) error {
	return errNoHTTPWorkers
}
func (noHTTPWorkers) Leave(context.Context, Who, string) error { return errNoHTTPWorkers }
