package worker

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Remote is the worker on the bus that a node runs for an HTTP worker: its handlers wait for the reports of the HTTP
// worker. It accepts as many runs as the last poll asked for, keeps them for the next poll, and sends heartbeats only
// while requests arrive, so that leases expire as those of a crashed worker do.
//
// If its node crashes, a Remote of the same name and start on another node takes over the attempts that the HTTP worker
// lists. It gets no others before that is done (Listed): they may be among those. The store refuses those that lost
// their lease.
type Remote struct {
	worker *Worker
	store  metastore.Store
	about  About

	leaving chan struct{} // closed by Leave
	gone    chan struct{} // closed when it has ended
	begun   chan struct{} // closed when Run is at work
	ended   chan struct{} // closed when Run has returned
	err     error         // of Run

	mu      sync.Mutex
	turns   map[token]*turn
	queue   []*turn       // that no poll was given, oldest first
	batch   []*turn       // what the last poll was answered with
	number  string        // of that batch
	polling chan struct{} // of the poll that is open, closed when another one comes; nil = none is
	slots   int           // how many runs the HTTP worker may have, by its last poll
	sent    int           // slots in the last heartbeat; 0 = it was away
	active  time.Time     // when the last poll ended, or the last attempt that the HTTP worker had; zero = the poll broke off
	listed  bool          // its attempts are known
	rang    chan struct{} // closed when there may be something to answer
	awaited map[token]chan *turn
	ends    map[token]*ending
	seen    time.Time // when the last request arrived
	left    bool      // it has asked to leave, or is given up
}

// About describes the program of the HTTP worker.
type About struct {
	Host    string
	PID     int
	Version string
}

// turn is an attempt whose handler waits for the HTTP worker.
type turn struct {
	attempt *attempt
	ctx     context.Context // of the handler: it belongs to the run
	result  chan error      // how it ended, as the HTTP worker reports
	given   bool            // the HTTP worker has it: a poll was answered with it, or it was taken over
	stop    error           // why it is to end; nil = it is not
	sent    bool            // a poll was answered with the stop
}

// ending is the state of an attempt's end.
type ending struct {
	done chan struct{}
	in   *kernel.Run
	err  error
}

const (
	// quietHeartbeats is for how many heartbeats the HTTP worker may be silent before its heartbeats stop.
	quietHeartbeats = 2
	// silentTooLong is after what silence the HTTP worker is given up.
	silentTooLong = time.Minute
	// unasked is how long a run waits for the next poll before it is given back.
	unasked = 5 * time.Second
	// keepEnds is how long a repeated Finish gets the same answer.
	keepEnds = 2 * time.Minute
	// answerTime is how long an answer may take before the HTTP worker is to ask again.
	answerTime = 20 * time.Second
)

// NewRemote makes a Remote, for servers: it is not promised. start distinguishes this start of the HTTP worker from
// others, in letters and digits: it is part of the worker's name. Nothing is sent before Run.
func NewRemote(cfg Config, start string, about About, store metastore.Store, b Bus, declarations ...kernel.Declaration) (*Remote, error) {
	if err := kernel.CheckName("start", start); err != nil {
		return nil, err
	}
	if len(start) > 64 || strings.ContainsAny(start, "-.") {
		return nil, kernel.Invalid("start is %.80q: at most 64 letters and digits, no dash and no dot", start)
	}
	r := &Remote{store: store, about: about, leaving: make(chan struct{}), gone: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{}),
		turns: map[token]*turn{}, awaited: map[token]chan *turn{}, ends: map[token]*ending{}, rang: make(chan struct{}), seen: time.Now()}
	sources := make([]source, len(declarations))
	for i, d := range declarations {
		sources[i] = declared{d, r.handle}
	}
	var err error
	if r.worker, err = newWorker(cfg, store, b, sources); err != nil {
		return nil, err
	}
	r.worker.name = r.worker.config.Name + "-" + start
	r.worker.log = r.worker.config.Logger.With("worker", r.worker.name)
	r.worker.remote = r
	r.worker.held.limit(1)
	return r, nil
}

// Name returns the name under which it gets runs.
func (r *Remote) Name() string { return r.worker.name }

// Run registers the jobs and runs until the HTTP worker calls leave, sends no request for a minute, or ctx ends. In the
// last two cases it reports nothing about open attempts: another Remote may take them over.
func (r *Remote) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() {
		defer stop()
		for left := silentTooLong; left > 0; left = silentTooLong - r.silence() {
			select {
			case <-running.Done():
				return
			case <-r.leaving:
				return
			case <-ctx.Done():
				r.abandon()
				return
			case <-time.After(left):
			}
		}
		r.abandon()
	})
	r.err = r.worker.Run(running)
	stop()
	watching.Wait()
	close(r.ended)
	return r.err
}

// start is called when Run is at work.
func (r *Remote) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.begun)
}

// Begun waits until Run has registered the jobs, or returns why Run failed.
func (r *Remote) Begun(ctx context.Context) error {
	select {
	case <-r.begun: // perhaps it has ended since
		return nil
	default:
	}
	select {
	case <-r.begun:
		return nil
	case <-r.ended:
		return cmp.Or(r.err, errGone)
	case <-ctx.Done():
		return kernel.Refuse(jobs.Unavailable, "the jobs could not be registered in time: there may be no leader, try again")
	}
}

// Ended returns a channel that is closed when Run has returned.
func (r *Remote) Ended() <-chan struct{} { return r.ended }

// errGone is the answer to requests for a worker that is leaving.
var errGone = kernel.Refuse(jobs.Unavailable, "the worker's registration has ended: register again, here or at another node")

// abandon drops everything silently, but for runs that no poll was given: those go back.
func (r *Remote) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return
	}
	r.left = true
	for _, t := range r.turns {
		if t.given {
			r.worker.held.disown(t.attempt)
		} else {
			t.attempt.end(jobs.ErrShutdown)
		}
	}
	close(r.gone)
}

// Leave gives the open runs of the HTTP worker back, sends the goodbye, and waits for both.
func (r *Remote) Leave(ctx context.Context) error {
	r.mu.Lock()
	if !r.left {
		r.left = true
		for _, t := range r.turns {
			t.attempt.end(jobs.ErrShutdown)
			t.end(jobs.ErrShutdown)
		}
		close(r.leaving)
	}
	r.mu.Unlock()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return kernel.Refuse(jobs.Unavailable, "unknown whether the worker has left: try again")
	}
}

// present reports whether the worker may send heartbeats for the HTTP worker: a request came lately, or a poll waits.
func (r *Remote) present() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gone:
		return false
	default:
	}
	return r.listed && (r.polling != nil || time.Since(r.seen) < quietHeartbeats*r.worker.config.HeartbeatEvery)
}

// Listed records that Has has taken over what the HTTP worker has: it gets other runs from now on.
func (r *Remote) Listed() {
	r.mu.Lock()
	r.listed = true
	r.mu.Unlock()
	r.worker.heartbeatNow()
}

// room returns how many runs the HTTP worker may have, for a heartbeat. away: it has not asked for any lately.
func (r *Remote) room() (slots int, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	away = r.slots == 0 || r.polling == nil && r.has() < r.slots && time.Since(r.active) >= unasked
	if r.sent = r.slots; away {
		r.sent = 0
	}
	return r.slots, away
}

// has returns how many runs the HTTP worker has. The lock is held.
func (r *Remote) has() (n int) {
	for _, t := range r.turns {
		if t.given {
			n++
		}
	}
	return n
}

// asks records how many runs an open poll wants beside those that the HTTP worker has. The lock is held.
func (r *Remote) asks(want int) {
	if r.slots = r.has() + want; r.worker.config.Slots > 0 {
		r.slots = min(r.slots, r.worker.config.Slots)
	}
	r.worker.held.limit(max(1, r.slots, r.sent)) // a run that the last heartbeat had room for may be on its way
	if r.sent < r.slots {
		r.worker.heartbeatNow()
	}
}

func (r *Remote) silence() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.polling != nil {
		return 0
	}
	return time.Since(r.seen)
}

// Touch records a request of the HTTP worker.
func (r *Remote) Touch() {
	was := r.present()
	r.mu.Lock()
	r.seen = time.Now()
	r.mu.Unlock()
	if !was {
		r.worker.heartbeatNow()
	}
}

// Drain has the worker accept nothing more. Open runs continue.
func (r *Remote) Drain() {
	r.worker.held.close()
	r.worker.heartbeatNow()
}

// Resting reports whether the worker was asked to accept no new runs.
func (r *Remote) Resting() bool { return r.worker.held.isResting() }

// Lease returns the time without requests after which leases may expire, and the interval of heartbeats.
func (r *Remote) Lease() (lease, every time.Duration) {
	r.worker.leader.mu.Lock()
	defer r.worker.leader.mu.Unlock()
	return r.worker.leader.lease, r.worker.leader.lease / 3
}
