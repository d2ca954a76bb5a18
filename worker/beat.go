package worker

import (
	"context"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// mostHeld is how many attempts one beat names; a worker with more sends several, so that none outgrows a message.
const mostHeld = 2000

// leader is what a worker knows of its leader, from the answers to its beats.
type leader struct {
	mu       sync.Mutex
	answered time.Time // when the last beat that was answered was sent; zero = none was
	lease    time.Duration
	queue    string
	moved    chan struct{} // closed when the queue is another
}

// current is the queue to take offers from ("" = none), and a channel that is closed when it is another one.
func (l *leader) current() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue, l.moved
}

// until is when the lease of an attempt lapses, on this machine's clock: counted from when the last answered beat
// was sent, or the claim, because the leader counts from when it got them, which is never earlier.
func (l *leader) until(claimed time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered.After(claimed) {
		claimed = l.answered
	}
	return claimed.Add(l.lease)
}

func (l *leader) heard(sent time.Time, a bus.BeatAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = sent
	if a.Lease > 0 {
		l.lease = time.Duration(a.Lease) * time.Millisecond
	}
	if a.Queue != l.queue {
		l.queue = a.Queue
		close(l.moved)
		l.moved = make(chan struct{})
	}
}

// beat says every few seconds that the worker lives and what it holds, and does what the answers ask for. It
// ends with a last beat that says goodbye.
func (w *Worker) beat(ctx context.Context) {
	var silent time.Time // since when nobody answers; zero = somebody does
	introduce, known := true, false
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			w.sayGoodbye(context.WithoutCancel(ctx))
			return
		case <-w.hurry:
		case <-time.After(pause):
		}
		sent := time.Now()
		answer, err := w.sayBeat(ctx, introduce)
		switch {
		case ctx.Err() != nil:
			continue
		case err != nil:
			if silent.IsZero() {
				silent = sent
				w.log.Warn("no control plane answers, runs go on", "err", err)
			}
			// Sooner than usual, so that a new leader is found soon; and at a start, sooner still.
			pause = min(w.config.BeatEvery, time.Second)
			if !known {
				pause = min(pause, max(time.Since(w.started)/2, 50*time.Millisecond))
			}
			continue
		case answer.Unknown && !introduce:
			introduce, pause = true, 0
			continue
		}
		if !silent.IsZero() {
			w.log.Info("a control plane answers again", "after", time.Since(silent))
		}
		if known && (introduce || !silent.IsZero()) {
			w.registerAgain()
		}
		silent, introduce, known = time.Time{}, false, true
		w.leader.heard(sent, answer)
		for _, s := range answer.Stop {
			w.stop(ctx, s)
		}
		pause = time.Until(sent.Add(w.config.BeatEvery))
	}
}

// sayBeat sends one round of beats: mostly one, more if the worker holds very much. Its answer is that of all of
// them together; if one stays without an answer, so does the round.
func (w *Worker) sayBeat(ctx context.Context, introduce bool) (bus.BeatAnswer, error) {
	var all bus.BeatAnswer
	parts := slices.Collect(slices.Chunk(w.held.list(), mostHeld))
	if len(parts) == 0 {
		parts = append(parts, nil)
	}
	for i, part := range parts {
		b := bus.Beat{Worker: w.name, Running: part, More: i < len(parts)-1, Draining: w.held.isClosed()}
		if introduce && i == 0 {
			b.Info = w.info()
		}
		try, cancel := context.WithTimeout(ctx, w.config.BeatEvery)
		raw, err := w.bus.Call(try, bus.ServiceBeat, bus.Encode(b))
		cancel()
		if err != nil {
			return all, err
		}
		answer, err := bus.Decode[bus.BeatAnswer](raw)
		if err != nil {
			return all, err
		}
		answer.Stop = append(all.Stop, answer.Stop...)
		answer.Unknown = answer.Unknown || all.Unknown
		all = answer
	}
	return all, nil
}

// sayGoodbye tells the leader not to wait for this worker. If it does not hear, the lease tells it.
func (w *Worker) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := w.bus.Call(ctx, bus.ServiceBeat, bus.Encode(bus.Beat{Worker: w.name, Leaving: true})); err != nil {
		w.log.Debug("nobody heard the goodbye", "err", err)
	}
}

func (w *Worker) registerAgain() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// beatNow asks for a beat before its time.
func (w *Worker) beatNow() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// info is who this worker is.
func (w *Worker) info() *bus.WorkerInfo {
	host, _ := os.Hostname()
	i := bus.WorkerInfo{
		Tenant: w.config.Tenant, App: w.config.App, Name: w.name, Label: w.config.Name, Host: host, PID: os.Getpid(),
		Tags: w.config.Tags, Slots: w.config.Slots, Keys: make(map[jobs.Key]int, len(w.jobs)),
		Started: jobs.Instant(w.started), Version: libraryVersion(),
	}
	for key := range maps.Keys(w.jobs) {
		i.Keys[key] = w.jobs[key].declaration.Version
	}
	return &i
}

// libraryVersion is the version of this module that the program was built with.
func libraryVersion() string {
	const module = "github.com/carillon-scheduler/carillon"
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if build.Main.Path == module {
		return build.Main.Version
	}
	for _, m := range build.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}
