package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Pull is where workers come that have no bus and ask for work: this process holds for each of them what a worker
// holds towards bus and store. Such a worker may go to another process of the control plane at any time, under the
// same name and with what it has: it registers there in the same words. An error of jobs.NotFound about a worker says
// that it has to; one of jobs.Stale, that an attempt is not its own any more.
type Pull interface {
	// Register makes a worker known. Said again, it changes nothing.
	Register(ctx context.Context, who Who, w PullWorker) (PullAnswer, error)
	// Poll waits until there are runs for it, or attempts to stop, or the wait is over.
	Poll(ctx context.Context, who Who, worker string, p PullPoll) (PullWork, error)
	// Heartbeat keeps its leases. With drain it is given nothing more.
	Heartbeat(ctx context.Context, who Who, worker string, drain bool) (PullAnswer, error)
	// Finish ends an attempt and answers with the run as it is then. Said again, it is answered alike.
	Finish(ctx context.Context, who Who, worker string, f kernel.Finish) (*kernel.Run, error)
	Progress(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, p bus.Progress) error
	Checkpoint(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, data []byte) error
	Log(ctx context.Context, who Who, worker string, run jobs.ID, attempt uint32, l PullLog) error
	// Leave hands back what the worker still has and forgets it.
	Leave(ctx context.Context, who Who, worker string) error
}

// PullWorker is a worker that asks for work.
type PullWorker struct {
	App, Name string
	Start     string // tells its starts apart
	Slots     int
	Tags      []string
	Host      string
	PID       int
	Version   string
	Jobs      []kernel.Declaration
	Has       []PullAttempt // what it has in hand, given by another process or before this one was started
}

// PullAttempt names an attempt.
type PullAttempt struct {
	Run     jobs.ID
	Attempt uint32
}

// PullAnswer is what a worker is told.
type PullAnswer struct {
	Worker  string        // its name, for all that it says from here on
	Lease   time.Duration // how long it may be silent at least
	Every   time.Duration // how often it should be heard
	Stop    []bus.Stop    // attempts to end
	Resting bool          // somebody wants it to take nothing for now
}

// PullPoll is a poll.
type PullPoll struct {
	Want int
	Got  string // the batch of the last answer that arrived
	Wait time.Duration
}

// PullWork is the answer to a poll.
type PullWork struct {
	PullAnswer
	Batch string
	Runs  []PullRun
}

// PullRun is a run to be done.
type PullRun struct {
	*kernel.Run
	Left time.Duration // of the attempt's time; 0 = it has no end
}

// PullLog is lines of a log.
type PullLog struct {
	First uint64 // the number of the first of them, from 1; 0 = they are not counted
	Lines []PullLine
}

// PullLine is one of them.
type PullLine struct{ Level, Text string }

// Pull is where workers come that ask for work.
func (o *Ops) Pull() Pull { return o.pull }

// noPull is the Pull of a process that gives out no work.
type noPull struct{}

var errNoPull = kernel.Refuse(jobs.Unavailable, "this process gives out no work over HTTP")

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
