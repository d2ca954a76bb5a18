package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Pull serves workers that poll over HTTP: this process is their client of bus and store. Such a worker may switch to
// another process of the control plane at any time, with its name and its runs: it sends the same registration there.
// An error of jobs.NotFound about a worker means that it must register; one of jobs.Stale, that it no longer owns an
// attempt.
type Pull interface {
	// Register registers a worker. Repeating it changes nothing.
	Register(ctx context.Context, who Who, w PullWorker) (PullAnswer, error)
	// Poll waits until there are runs for the worker, or attempts to stop, or the wait has expired.
	Poll(ctx context.Context, who Who, worker string, p PullPoll) (PullWork, error)
	// Heartbeat renews the worker's leases. With drain it gets no new runs.
	Heartbeat(ctx context.Context, who Who, worker string, drain bool) (PullAnswer, error)
	// Finish ends an attempt and returns the run after it. A repeated request gets the same result.
	Finish(ctx context.Context, who Who, worker string, f kernel.Finish) (*kernel.Run, error)
	Progress(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, p bus.Progress) error
	Checkpoint(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, data []byte) error
	Log(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, l PullLog) error
	// Leave releases the worker's runs and deregisters it.
	Leave(ctx context.Context, who Who, worker string) error
}

// PullWorker is a worker that polls for runs.
type PullWorker struct {
	App, Name string
	Start     string // identifies its process
	Slots     int
	Tags      []string
	Host      string
	PID       int
	Version   string
	Jobs      []kernel.Declaration
	Has       []PullAttempt // its attempts, from another process or from before a restart of this one
}

// PullAttempt names an attempt.
type PullAttempt struct {
	Run     jobs.ID
	Attempt uint32
}

// PullAnswer is sent to a worker with each response.
type PullAnswer struct {
	Worker  string        // its name, for all further requests
	Lease   time.Duration // its lease: how long it may be silent
	Every   time.Duration // its heartbeat interval
	Stop    []bus.Stop    // attempts to end
	Resting bool          // it is drained: it gets no new runs
}

// PullPoll is a poll.
type PullPoll struct {
	Want int
	Got  string // the batch of the last response that arrived
	Wait time.Duration
}

// PullWork is the response to a poll.
type PullWork struct {
	PullAnswer
	Batch string
	Runs  []PullRun
}

// PullRun is a run for the worker.
type PullRun struct {
	*kernel.Run
	Left time.Duration // of the attempt's time; 0 = no timeout
}

// PullLog is lines of a log.
type PullLog struct {
	First uint64 // the number of the first line, from 1; 0 = they are not counted
	Lines []PullLine
}

// PullLine is one log line.
type PullLine struct{ Level, Text string }

// Pull returns the part that serves workers over HTTP.
func (o *Ops) Pull() Pull { return o.pull }

// noPull is the Pull of a process that serves no workers over HTTP.
type noPull struct{}

var errNoPull = kernel.Refuse(jobs.Unavailable, "this process serves no workers over HTTP")

func (noPull) Register(context.Context, Who, PullWorker) (PullAnswer, error) {
	return PullAnswer{}, errNoPull
}

func (noPull) Poll(context.Context, Who, string, PullPoll) (PullWork, error) {
	return PullWork{}, errNoPull
}

func (noPull) Heartbeat(context.Context, Who, string, bool) (PullAnswer, error) {
	return PullAnswer{}, errNoPull
}

func (noPull) Finish(context.Context, Who, string, kernel.Finish) (*kernel.Run, error) {
	return nil, errNoPull
}

func (noPull) Progress(context.Context, Who, string, jobs.ID, uint32, bus.Progress) error {
	return errNoPull
}

func (noPull) Checkpoint(context.Context, Who, string, jobs.ID, uint32, []byte) error {
	return errNoPull
}

func (noPull) Log(context.Context, Who, string, jobs.ID, uint32, PullLog) error { return errNoPull }
func (noPull) Leave(context.Context, Who, string) error                         { return errNoPull }
