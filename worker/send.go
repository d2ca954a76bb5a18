package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// For how long commands are repeated, always unchanged.
const (
	forEver time.Duration = 0 // as long as the context lives
	forSave               = 30 * time.Second
	// A result must outlive an outage of the bus. Beyond ten minutes its lease is long gone.
	forReport = 10 * time.Minute
)

// mostTry bounds one try: after it, a connection may be dead unnoticed. A courier that repeats by itself for half a
// minute can still report how that went.
const mostTry = 35 * time.Second

// envelope wraps a command so that it can be retried.
func (w *Worker) envelope(c kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: w.config.Tenant, Actor: w.actor, Command: c}
}

// send applies a batch and calls answer once for each of its commands, in no certain order. Commands that were not
// applied, or whose outcome is unknown, are sent again after a growing pause; after most, the last error is the answer.
func (w *Worker) send(ctx context.Context, batch []kernel.Envelope, most time.Duration, answer func(i int, r metastore.Result)) {
	var giveUp <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		giveUp = timer.C
	}
	var open []int                     // open commands after the last try, in order; nil = no try yet, all are open
	doubtful := map[int]bool{}         // of open commands: an earlier try may have been applied
	last := map[int]metastore.Result{} // of open commands
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		commands := batch
		if open != nil && len(open) < len(batch) {
			commands = make([]kernel.Envelope, len(open))
			for at, i := range open {
				commands[at] = batch[i]
			}
		}
		try, cancel := context.WithTimeout(ctx, mostTry)
		results := w.store.Apply(try, commands)
		cancel()
		var left []int
		for at, r := range results {
			i := at
			if open != nil {
				i = open[at]
			}
			code := jobs.Code("")
			if r.Err != nil {
				code = jobs.CodeOf(r.Err)
			}
			if code == jobs.Unknown {
				doubtful[i] = true
			}
			if code == jobs.Unknown || code == jobs.Unavailable {
				if code == jobs.Unknown || !doubtful[i] { // a command that may have been applied is never reported as not applied
					last[i] = r
				}
				left = append(left, i)
				continue
			}
			answer(i, r)
		}
		if open = left; len(open) == 0 {
			return
		}
		over := false
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-giveUp:
			over = true
		case <-ctx.Done():
			over = true
		}
		if over {
			for _, i := range open {
				answer(i, last[i])
			}
			return
		}
	}
}
