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
//
// Tenants take turns: while several have commands, each has its part of a commit, and commits are short, so that a tenant
// does not wait for all that another one sent before.
type Group struct {
	commit   func([]kernel.Envelope) []Result
	most     int
	inFlight int // commits that may be under way at once

	mu     sync.Mutex
	queues []*queue // the tenants whose commands wait, in turn
	size   int      // commands that wait
	busy   int
	stats  Stats
	shared time.Time // when commands came of another tenant than those before them
	last   struct {
		tenant jobs.Tenant
		at     time.Time
	}
}

const (
	// large is the part of a full commit that does not wait for the one in flight.
	large = 8
	// maxQueued is how many full commits may wait, half of them of one tenant (kernel.Room). More wait only when commits
	// stall, as while a disk hangs.
	maxQueued = 32
	// fairPart is a tenant's part of a commit while several have commands, which they do until only one has had any for
	// fairFor.
	fairPart = 32
	fairFor  = time.Second
)

// queue is the shares of one tenant that no commit has, in whole.
type queue struct {
	tenant jobs.Tenant
	shares []*share
	size   int // commands
}

// share is one caller's commands.
type share struct {
	batch    []kernel.Envelope
	results  []Result
	taken    int // of the batch, by commits
	inCommit bool
	done     chan struct{}
}

// piece is the part of a share that one commit has.
type piece struct {
	*share
	from, to int
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

// Apply puts a batch into the next commits and waits for its answers. If ctx ends first, the batch is taken back while
// all of it still waits, and else its outcome is unknown. While the queue is full, it is refused as Exhausted.
func (g *Group) Apply(ctx context.Context, batch []kernel.Envelope) []Result {
	if len(batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
	}
	s := &share{batch: batch, done: make(chan struct{})}
	g.mu.Lock()
	if own, limit := g.waiting(batch[0].Tenant), maxQueued*g.most; !kernel.Room(own, g.size, limit) {
		all := g.size
		g.mu.Unlock()
		return Refused(batch, kernel.Exhausted(kernel.BoundCommitQueue,
			"not done: %d commands wait to be committed, %d of them of tenant %s, and the limit of all is %d: "+
				"the store is slow or stalled; try again", all, own, batch[0].Tenant, limit))
	}
	g.enqueue(s)
	_, most := g.limit()
	begins := g.busy == 0 || g.busy < g.inFlight && g.size >= most/large
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
		if late, ok := ctx.Value(lateKey{}).(func([]kernel.Envelope, []Result)); ok {
			go func() {
				<-s.done
				late(batch, s.results)
			}()
		}
		return Refused(batch, kernel.OutcomeUnknown("%v before the answer came", ctx.Err()))
	}
}

type lateKey struct{}

// WithLate has a Group call late with what a caller of Apply did not wait for: its commands, when they are committed
// after its context has ended. Their effects are then passed on like any other.
func WithLate(ctx context.Context, late func([]kernel.Envelope, []Result)) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithValue(ctx, lateKey{}, late)
}

// enqueue puts a share behind the others of its tenant: that of its first command.
func (g *Group) enqueue(s *share) {
	tenant := s.batch[0].Tenant
	g.size += len(s.batch)
	now := time.Now()
	if g.last.tenant != tenant && now.Sub(g.last.at) < fairFor {
		g.shared = now
	}
	g.last.tenant, g.last.at = tenant, now
	l := g.queueOf(tenant)
	if l == nil {
		l = &queue{tenant: tenant}
		g.queues = append(g.queues, l)
	}
	l.shares = append(l.shares, s)
	l.size += len(s.batch)
}

// queueOf returns the queue of a tenant; nil = none of its commands wait.
func (g *Group) queueOf(tenant jobs.Tenant) *queue {
	if at := slices.IndexFunc(g.queues, func(l *queue) bool { return l.tenant == tenant }); at >= 0 {
		return g.queues[at]
	}
	return nil
}

// waiting returns how many commands of a tenant wait.
func (g *Group) waiting(tenant jobs.Tenant) int {
	if l := g.queueOf(tenant); l != nil {
		return l.size
	}
	return 0
}

// takeBack removes a share of which no commit has a part: its caller has gone.
func (g *Group) takeBack(s *share) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.taken > 0 {
		return false
	}
	for i, l := range g.queues {
		if at := slices.Index(l.shares, s); at >= 0 {
			l.shares = slices.Delete(l.shares, at, at+1)
			g.size -= len(s.batch)
			l.size -= len(s.batch)
			if len(l.shares) == 0 {
				g.queues = slices.Delete(g.queues, i, i+1)
			}
			return true
		}
	}
	return false
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
	if g.size > 0 {
		go g.run()
	} else {
		g.busy--
	}
}

// limit returns how many commands a commit has at most, and whether for the sake of other tenants.
func (g *Group) limit() (fair bool, most int) {
	if len(g.queues) > 1 || time.Since(g.shared) < fairFor {
		return true, min(g.most, fairPart*max(1, len(g.queues)))
	}
	return false, g.most
}

// take returns what the next commit has: nothing if no share waits, or too few beside another commit.
func (g *Group) take() (pieces []piece, size int) {
	fair, most := g.limit()
	if g.size == 0 || g.busy > 1 && g.size < most/large {
		return nil, 0
	}
	for n := len(g.queues); n > 0; n-- { // each has its part of what those before it left
		l := g.queues[0]
		part := l.take(&pieces, (most-size+n-1)/n, fair)
		if size += part; len(l.shares) == 0 {
			g.queues = g.queues[1:]
		} else {
			g.queues = append(g.queues[1:], l)
		}
	}
	if len(g.queues) > 1 { // another one is first in the next commit
		g.queues = append(g.queues[1:], g.queues[0])
	}
	g.size -= size
	return pieces, size
}

// take takes at most most commands, unless the first batch alone has more and is not to be split.
func (l *queue) take(pieces *[]piece, most int, split bool) (size int) {
	left := l.shares[:0]
	full := false
	for _, s := range l.shares {
		n := len(s.batch) - s.taken
		if !full && !s.inCommit {
			switch {
			case size+n <= most || size == 0 && !split:
			case split:
				n, full = most-size, true
			default:
				n, full = 0, true
			}
			if n > 0 {
				*pieces = append(*pieces, piece{s, s.taken, s.taken + n})
				s.taken += n
				s.inCommit = true
				size += n
			}
		}
		if s.taken < len(s.batch) {
			left = append(left, s)
		}
	}
	clear(l.shares[len(left):])
	l.shares = left
	l.size -= size
	return size
}

// next commits what take returns; false = nothing.
func (g *Group) next() bool {
	// Callers that were just answered mostly send their next command at once. They go first: else one would have the
	// next commit alone, and the others would wait for one more.
	runtime.Gosched()
	g.mu.Lock()
	pieces, size := g.take()
	if size == 0 {
		g.busy--
		g.mu.Unlock()
		return false
	}
	g.mu.Unlock()

	all := pieces[0].commands()
	if len(pieces) > 1 {
		all = make([]kernel.Envelope, 0, size)
		for _, p := range pieces {
			all = append(all, p.commands()...)
		}
	}
	began := time.Now()
	results := g.commit(all)
	took := time.Since(began)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Commits++
	g.stats.Commands += uint64(size)
	g.stats.Sizes.Observe(float64(size))
	g.stats.Seconds.Observe(took.Seconds())
	for _, p := range pieces {
		n := p.to - p.from
		p.answered(results[:n:n])
		results = results[n:]
	}
	return true
}

func (p piece) commands() []kernel.Envelope { return p.batch[p.from:p.to] }

// answered takes in the results of a piece.
func (p piece) answered(results []Result) {
	s := p.share
	s.inCommit = false
	if len(results) == len(s.batch) {
		s.results = results
	} else {
		s.results = append(s.results, results...)
	}
	if len(s.results) == len(s.batch) {
		close(s.done)
	}
}
