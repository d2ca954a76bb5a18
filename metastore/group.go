package metastore

import (
	"context"
	"sync"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Group lets concurrent callers share commits, without a timer: while one commit is in flight, the next one grows.
// A caller alone on an idle store waits for nobody. Only what is large already sets out beside a commit that is in
// flight: more small ones at once would each be smaller, and cost more together.
type Group struct {
	commit   func([]jobs.Envelope) []Result
	most     int
	inFlight int // commits that may be under way at once

	mu      sync.Mutex
	waiting []*share
	size    int // commands that wait
	busy    int
}

// large is the part of a full commit that does not wait for the one in flight.
const large = 8

// share is one caller's part of a commit.
type share struct {
	batch   []jobs.Envelope
	results []Result
	done    chan struct{}
}

// NewGroup makes a Group whose commits hold at most most commands (a larger batch goes alone), with inFlight of
// them under way at once. Envelopes are passed on as they are: who commits them checks them first (see Checked).
func NewGroup(most, inFlight int, commit func([]jobs.Envelope) []Result) *Group {
	return &Group{commit: commit, most: max(1, most), inFlight: max(1, inFlight)}
}

// Apply puts a batch into the next commit and waits for its answers. When ctx ends first, the outcome is unknown.
func (g *Group) Apply(ctx context.Context, batch []jobs.Envelope) []Result {
	if len(batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return Refused(batch, jobs.Refuse(jobs.Unavailable, "not done: %v", err))
	}
	s := &share{batch: batch, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	g.size += len(batch)
	if g.busy == 0 || g.busy < g.inFlight && g.size >= g.most/large {
		g.busy++
		go g.run()
	}
	g.mu.Unlock()
	select {
	case <-s.done:
		return s.results
	case <-ctx.Done():
		return Refused(batch, jobs.Refuse(jobs.Unknown, "outcome unknown: %v before the answer came", ctx.Err()))
	}
}

// run commits until nobody waits.
func (g *Group) run() {
	for {
		g.mu.Lock()
		if len(g.waiting) == 0 || g.busy > 1 && g.size < g.most/large {
			g.busy--
			g.mu.Unlock()
			return
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
			all = make([]jobs.Envelope, 0, size)
			for _, s := range shares {
				all = append(all, s.batch...)
			}
		}
		results := g.commit(all)
		for _, s := range shares {
			s.results = results[:len(s.batch):len(s.batch)]
			results = results[len(s.batch):]
			close(s.done)
		}
	}
}
