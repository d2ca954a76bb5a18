package workertest

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// Carillon is a whole system in memory and in virtual time: a control plane, a store, a bus, and the workers that the
// test starts. Its Client enqueues, waits and cancels. Errors of its methods fail the test.
type Carillon struct {
	*client.Client
	system *bubble.System
}

// Missed is a range of due times without runs.
type Missed struct {
	First, Last time.Time
	Count       int
	Reason      string // such as "paused" or "outage"
}

// Bubble calls fn in a bubble of virtual time (see testing/synctest). Its time starts at midnight UTC of 2000-01-01 and
// passes only while every goroutine waits, and costs only what happens in it: a week of a daily job takes a fraction of
// a second. The control plane starts with the first worker. When fn returns, the workers
// drain and everything stops; handlers must have returned by then.
func Bubble(t *testing.T, fn func(t *testing.T, c *Carillon)) {
	t.Helper()
	bubble.Run(t, func(t *testing.T, s *bubble.System) { fn(t, &Carillon{s.Client, s}) })
}

// Start starts a worker and waits until it accepts runs. stop drains and ends it, as a deployment does.
func (c *Carillon) Start(cfg worker.Config, js ...jobs.Job) (stop func()) {
	return c.system.Start(cfg, js...)
}

// Pass lets d pass in virtual time, then waits until all runs that are due by then have started.
func (c *Carillon) Pass(d time.Duration) { c.system.Pass(d) }

// PassUntil is like Pass, until a time.
func (c *Carillon) PassUntil(at time.Time) { c.system.PassUntil(at) }

// Pause pauses a job, as a user would.
func (c *Carillon) Pause(key jobs.Key, reason string) {
	c.system.Do(kernel.Pause{Key: key, Reason: reason})
}

// Resume resumes a paused job, as a user would: requested runs that waited start, and due times of the pause have no run.
func (c *Carillon) Resume(key jobs.Key) { c.system.Resume(key) }

// Runs returns all runs of a job, by due time.
func (c *Carillon) Runs(key jobs.Key) []jobs.Run {
	rows := c.system.Runs(key)
	list := make([]jobs.Run, len(rows))
	for i, row := range rows {
		list[i] = row.View()
	}
	return list
}

// Missed returns the due times of a job that have no run, oldest first.
func (c *Carillon) Missed(key jobs.Key) []Missed {
	rows := c.system.Missed(key)
	list := make([]Missed, len(rows))
	for i, row := range rows {
		list[i] = Missed{row.From, row.To, int(row.Count), string(row.Reason)}
	}
	return list
}

// Log returns what the handlers of a run have logged, a line each: INFO begun customer=c7. Lines of the last quarter of
// a second may be missing.
func (c *Carillon) Log(run jobs.ID) []string { return c.system.Log(run) }
