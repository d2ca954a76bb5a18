package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// mostHeld is how many attempts one heartbeat names; a worker with more sends several.
	mostHeld = 2000
	// heartbeatFrame is an upper bound for a heartbeat without its list: the worker's name and a few flags.
	heartbeatFrame = 512
	// heldFrame is an upper bound for an attempt without its progress in a heartbeat.
	heldFrame = 120
)

// leader is what a worker knows of its leader, from the answers to its heartbeats.
type leader struct {
	mu    sync.Mutex
	lease time.Duration
	// answers: the last heartbeat was answered, and when that was.
	answers bool
	at      time.Time
}

// until is when a lease expires, on this machine's clock, that was requested at some time (see held.renewed): the
// leader counts from when it received the request, which is never earlier.
func (l *leader) until(asked time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return asked.Add(l.lease)
}

// leaseTime is how long leases last.
func (l *leader) leaseTime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

func (l *leader) answered(a bus.HeartbeatAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers, l.at = true, time.Now()
	if a.Lease > 0 {
		l.lease = time.Duration(a.Lease) * time.Millisecond
	}
}

func (l *leader) unanswered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = false
}

// contact returns whether the last heartbeat was answered, and when one was.
func (l *leader) contact() (answers bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers, l.at
}

// heartbeat reports every few seconds what the worker holds, and does what the answers ask for. When ctx ends, it sends
// a last heartbeat, the goodbye. It returns an error if the bus was closed.
func (w *Worker) heartbeat(ctx context.Context) error {
	var silent time.Time // since when no leader answers; zero = one does
	introduce, known := true, false
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			w.sendGoodbye(context.WithoutCancel(ctx))
			return nil
		case <-w.hurry:
		case <-time.After(pause):
		}
		if w.absent() {
			w.hangUp()
			pause = w.config.HeartbeatEvery
			continue
		}
		sent := time.Now()
		list, strays := w.held.list()
		var answer bus.HeartbeatAnswer
		err := w.listen(ctx)
		if err == nil {
			answer, err = w.sendHeartbeat(ctx, sent, list, strays, introduce)
		}
		switch {
		case ctx.Err() != nil:
			continue
		case errors.Is(err, bus.ErrClosed): // no push can arrive, either
			w.leader.unanswered()
			return err
		case err != nil:
			w.leader.unanswered()
			if silent.IsZero() {
				silent = sent
			}
			switch jobs.CodeOf(err) {
			case jobs.Unknown, jobs.Unavailable:
				w.episodes.Began(slog.LevelWarn, "", "no control plane answers, runs continue", "err", err)
			default:
				w.episodes.Began(slog.LevelError, "", "a heartbeat is refused, the leases of runs will expire", "err", err)
			}
			// Sooner than usual, so that a new leader is found soon, and at once if the call took as long; at a start,
			// sooner still.
			pause = time.Until(sent.Add(min(w.config.HeartbeatEvery, time.Second)))
			if !known {
				pause = min(pause, time.Since(w.started)/2)
			}
			pause = max(pause, 50*time.Millisecond)
			continue
		case answer.Unknown && !introduce:
			introduce, pause = true, 0
			continue
		}
		if !silent.IsZero() {
			w.episodes.End("", "no control plane answers, runs continue")
			w.episodes.End("", "a heartbeat is refused, the leases of runs will expire")
		}
		if known && (introduce || !silent.IsZero()) {
			w.registerAgain()
		}
		silent, introduce, known = time.Time{}, false, true
		w.leader.answered(answer)
		w.held.renew(list, sent)
		w.rest(answer.Rest)
		for _, s := range answer.Stop {
			w.stop(ctx, s)
		}
		if w.remote != nil {
			w.remote.renewed()
		}
		pause = time.Until(sent.Add(w.config.HeartbeatEvery))
	}
}

// sendHeartbeat sends one round of heartbeats about what is held: mostly one, more for very many attempts. It returns
// their answers merged; if one has no answer, the round has none.
func (w *Worker) sendHeartbeat(ctx context.Context, sent time.Time, list []bus.Held, strays int, introduce bool) (bus.HeartbeatAnswer, error) {
	var all bus.HeartbeatAnswer
	var info *bus.WorkerInfo
	most := w.bus.RequestLimit() - heartbeatFrame
	first := most
	if introduce {
		info = w.info()
		first -= len(bus.Encode(info))
	}
	parts := cutHeld(list, first, most)
	for i, part := range parts {
		b := w.heartbeatAt(sent)
		b.Running, b.Strays, b.More, b.Draining, b.Resting = part, strays, i < len(parts)-1, w.held.isClosed(), w.held.isResting()
		if w.remote != nil {
			b.Slots, b.Away = w.remote.room()
		}
		if i == 0 {
			b.Info = info
		}
		try, cancel := context.WithTimeout(ctx, w.config.HeartbeatEvery)
		raw, err := w.bus.Call(try, bus.ServiceHeartbeat, bus.Encode(b))
		cancel()
		if err != nil {
			return all, err
		}
		answer, err := bus.Decode[bus.HeartbeatAnswer](raw)
		if err != nil {
			return all, err
		}
		answer.Stop = append(all.Stop, answer.Stop...)
		answer.Unknown = answer.Unknown || all.Unknown
		all = answer
	}
	return all, nil
}

// heartbeatAt is a heartbeat that was sent at some time.
func (w *Worker) heartbeatAt(sent time.Time) bus.Heartbeat {
	return bus.Heartbeat{Worker: w.name, Process: w.started.UnixNano(), Sent: int64(w.held.stamp(sent))}
}

// cutHeld divides what is held among heartbeats, at least one, so that none exceeds a message: first and most are the
// bytes for it in the first and in the others. The text of a progress may be six times as long in JSON.
func cutHeld(list []bus.Held, first, most int) (parts [][]bus.Held) {
	room, at := first, 0
	for i, h := range list {
		size := heldFrame
		if h.Progress != nil {
			size += len(bus.Encode(h.Progress))
		}
		if size > room || i-at == mostHeld {
			parts = append(parts, list[at:i])
			room, at = most, i
		}
		room -= size
	}
	return append(parts, list[at:])
}

// checkInfo fails if the worker's description exceeds a message of the bus.
func (w *Worker) checkInfo() error {
	if n, most := len(bus.Encode(w.info())), w.bus.RequestLimit()-heartbeatFrame; n > most {
		return fmt.Errorf("description of the worker with %d jobs has %d bytes, the bus carries %d: divide the jobs among several workers",
			len(w.jobs), n, most)
	}
	return nil
}

// absent reports whether the worker must send no heartbeats and accept no pushes: it acts for an HTTP worker that is
// silent, or has not listed its attempts.
func (w *Worker) absent() bool { return w.remote != nil && !w.remote.present() }

// sendGoodbye asks the leader not to wait for this worker. If the message is lost, the lease expires.
func (w *Worker) sendGoodbye(ctx context.Context) {
	if w.absent() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	goodbye := w.heartbeatAt(time.Now())
	goodbye.Leaving = true
	if _, err := w.bus.Call(ctx, bus.ServiceHeartbeat, bus.Encode(goodbye)); err != nil {
		w.log.Debug("the goodbye got no answer", "err", err)
	}
}

func (w *Worker) registerAgain() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// heartbeatNow asks for a heartbeat before its time.
func (w *Worker) heartbeatNow() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// info describes this worker.
func (w *Worker) info() *bus.WorkerInfo {
	host, _ := os.Hostname()
	i := bus.WorkerInfo{
		Tenant: w.config.Tenant, App: w.config.App, Name: w.name, Label: w.config.Name, Host: host, PID: os.Getpid(),
		Tags: w.config.Tags, Slots: w.config.slots(), Keys: make(map[jobs.Key]int, len(w.jobs)),
		Started: kernel.Instant(w.started), Version: LibraryVersion(), Any: w.others != nil, Only: w.config.Only,
	}
	if r := w.remote; r != nil {
		i.Host, i.PID, i.Version = r.about.Host, r.about.PID, r.about.Version
	}
	for key := range maps.Keys(w.jobs) {
		i.Keys[key] = w.jobs[key].declaration.Version
	}
	// As many faults as there is room for: the log has them all.
	room := w.bus.RequestLimit() - heartbeatFrame - len(bus.Encode(&i))
	for _, key := range slices.Sorted(maps.Keys(w.faults)) {
		fault := map[jobs.Key]string{key: w.faults[key]}
		if room -= len(bus.Encode(fault)); room < 0 {
			break
		}
		if i.Faults == nil {
			i.Faults = map[jobs.Key]string{}
		}
		i.Faults[key] = w.faults[key]
	}
	return &i
}

// LibraryVersion is the version of this module that the program was built with.
func LibraryVersion() string {
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
