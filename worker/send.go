package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// patience is how long a command is worth repeating, always unchanged.
type patience struct {
	most time.Duration // 0 = for as long as the context lives
	// idle also repeats commands that were certainly not applied. Without it that is an answer like any other, unless
	// an earlier try may have been applied.
	idle bool
}

var (
	forEver = patience{idle: true}
	// A claim that may have been applied makes the run ours, so it is worth asking; one that was not applied is not:
	// the run is offered again.
	forClaim = patience{most: 30 * time.Second}
	forSave  = patience{most: 30 * time.Second, idle: true}
	// A result must outlive an outage of the bus. Beyond ten minutes its lease is long gone.
	forReport = patience{most: 10 * time.Minute, idle: true}
)

// mostTry bounds one try: after it, a connection may be dead unnoticed. A courier that repeats by itself for half a
// minute can still report how that went.
const mostTry = 35 * time.Second

// envelope wraps a command so that it can be retried.
func (w *Worker) envelope(c kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: w.config.Tenant, Actor: w.actor, Command: c}
}

// send applies a batch and calls answer once for each of its commands, in no certain order. Commands without an answer,
// or with an unknown outcome, are sent again after a growing pause; when patience ends, the last error is the answer.
func (w *Worker) send(ctx context.Context, batch []kernel.Envelope, p patience, answer func(i int, r metastore.Result)) {
	var giveUp <-chan time.Time
	if p.most > 0 {
		timer := time.NewTimer(p.most)
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
			if code == jobs.Unknown || code == jobs.Unavailable && (p.idle || doubtful[i]) {
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
