package metastore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Group lets concurrent callers share commits, without a timer: while one commit is in flight, the next one grows. A
// single caller on an idle store does not wait. Only large commits start while another is in flight: more small ones
// at once would each be smaller, and cost more together.
type Group struct {
	commit   func([]kernel.Envelope) []Result
	most     int
	inFlight int // commits that may be under way at once

	mu      sync.Mutex
	waiting []*share
	size    int // commands that wait
	busy    int
	stats   Stats
}

// large is the part of a full commit that does not wait for the one in flight.
const large = 8

// maxQueued is how many full commits may wait. More wait only when commits stall, as while a disk hangs.
const maxQueued = 16

// share is one caller's part of a commit.
type share struct {
	batch   []kernel.Envelope
	results []Result
	done    chan struct{}
}

// NewGroup makes a Group whose commits hold at most most commands (a larger batch goes alone), with inFlight of them
// under way at once. It does not check envelopes: commit does (see Checked).
func NewGroup(most, inFlight int, commit func([]kernel.Envelope) []Result) *Group {
	return &Group{commit: commit, most: max(1, most), inFlight: max(1, inFlight), stats: Stats{
		Sizes:   NewHistogram(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000),
		Seconds: NewHistogram(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
	}}
}

// Stats returns how many commits there have been, how large, and how long they took.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Sizes, s.Seconds = s.Sizes.Copy(), s.Seconds.Copy()
	return s
}

// Apply puts a batch into the next commit and waits for its answers. If ctx ends first, the batch is taken back while
// it still waits, and else its outcome is unknown. While the queue is full, it is refused as Exhausted.
func (g *Group) Apply(ctx context.Context, batch []kernel.Envelope) []Result {
	if len(batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
	}
	s := &share{batch: batch, done: make(chan struct{})}
	g.mu.Lock()
	if limit := maxQueued * g.most; g.size >= limit {
		waiting := g.size
		g.mu.Unlock()
		return Refused(batch, kernel.Refuse(jobs.Exhausted, "not done: %d commands wait to be committed, the limit is %d: the store is slow or stalled; try again", waiting, limit))
	}
	g.waiting = append(g.waiting, s)
	g.size += len(batch)
	begins := g.busy == 0 || g.busy < g.inFlight && g.size >= g.most/large
	if begins {
		g.busy++
	}
	g.mu.Unlock()
	if _, limited := ctx.Deadline(); begins && limited {
		go g.run()
	} else if begins { // switching to another goroutine and back takes longer than all else here
		g.runOnce()
	}
	select {
	case <-s.done:
		return s.results
	case <-ctx.Done():
		if g.takeBack(s) {
			return Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", ctx.Err()))
		}
		return Refused(batch, kernel.OutcomeUnknown("%v before the answer came", ctx.Err()))
	}
}

// takeBack removes a share that is not in a commit yet: its caller has gone.
func (g *Group) takeBack(s *share) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.Index(g.waiting, s)
	if at < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, at, at+1)
	g.size -= len(s.batch)
	return true
}

// run commits until no share waits.
func (g *Group) run() {
	for g.next() {
	}
}

// runOnce commits, and has what waits then committed by another goroutine.
func (g *Group) runOnce() {
	if !g.next() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		go g.run()
	} else {
		g.busy--
	}
}

// next commits the first shares that wait. It returns false when there are none, or too few beside another commit.
func (g *Group) next() bool {
	// Callers that were just answered mostly send their next command at once. They go first: else one would have the
	// next commit alone, and the others would wait for one more.
	runtime.Gosched()
	g.mu.Lock()
	if len(g.waiting) == 0 || g.busy > 1 && g.size < g.most/large {
		g.busy--
		g.mu.Unlock()
		return false
	}
	n, size := 1, len(g.waiting[0].batch)
	for n < len(g.waiting) && size+len(g.waiting[n].batch) <= g.most {
		size += len(g.waiting[n].batch)
		n++
	}
	shares := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.size -= size
	g.mu.Unlock()

	all := shares[0].batch
	if n > 1 {
		all = make([]kernel.Envelope, 0, size)
		for _, s := range shares {
			all = append(all, s.batch...)
		}
	}
	began := time.Now()
	results := g.commit(all)
	took := time.Since(began)
	g.mu.Lock()
	g.stats.Commits++
	g.stats.Commands += uint64(size)
	g.stats.Sizes.Observe(float64(size))
	g.stats.Seconds.Observe(took.Seconds())
	g.mu.Unlock()
	for _, s := range shares {
		s.results = results[:len(s.batch):len(s.batch)]
		results = results[len(s.batch):]
		close(s.done)
	}
	return true
}
