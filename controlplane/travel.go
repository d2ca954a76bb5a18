package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Every commit waits for the disk, and one follows the other. So while commits follow each other closely, the end of a
// run for which nothing waits has none of its own: it travels with the next commit, which comes within milliseconds.

const (
	// patience is how long an end waits for a commit to travel with: two of a database may take that long.
	patience = 4 * time.Millisecond
	// closely is the time in which the last paces commits were asked for, if they follow each other closely.
	closely = 16 * time.Millisecond
	paces   = 4
	// mostAlone is how many ends go by themselves at most after some have waited in vain, as when the program that
	// requests runs waits for each end.
	mostAlone = 63
	// fewEnds is how many ends wait at most: more are worth a commit of their own.
	fewEnds = 64
)

// travel is the ends that wait for a commit.
type travel struct {
	mu      sync.Mutex
	asked   [paces]time.Time // when the last commits were asked for; a ring
	next    int
	waiting []*rider
	ends    int // of the waiting
	timer   *time.Timer
	vain    int // how many ends are to go by themselves when one waits in vain again
	alone   int // how many still do
}

// rider is a batch of ends that waits.
type rider struct {
	batch   []kernel.Envelope
	results []metastore.Result // nil = it has to go by itself
	done    chan struct{}
}

// join has a batch of ends wait, if that is short; nil = it goes by itself.
func (t *travel) join(batch []kernel.Envelope) *rider {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := time.Since(t.asked[t.next])
	if since == 0 || since > closely || t.ends+len(batch) > fewEnds { // 0: virtual time, which moves only while all goroutines wait
		return nil
	}
	if t.alone > 0 {
		t.alone--
		return nil
	}
	r := &rider{batch: batch, done: make(chan struct{})}
	t.waiting, t.ends = append(t.waiting, r), t.ends+len(batch)
	if len(t.waiting) == 1 {
		t.timer = time.AfterFunc(patience, t.give)
	}
	return r
}

// leave takes up what waits, as a commit is asked for; of ends alone, or of more.
func (t *travel) leave(ends bool) []*rider {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ends {
		t.asked[t.next] = time.Now()
		t.next = (t.next + 1) % paces
	}
	if len(t.waiting) > 0 {
		t.vain = 0
	}
	return t.take()
}

// take takes what waits. The lock is held.
func (t *travel) take() []*rider {
	list := t.waiting
	if t.waiting, t.ends = nil, 0; len(list) > 0 {
		t.timer.Stop()
	}
	return list
}

// give has what waits go by itself: no commit has come.
func (t *travel) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) > 0 {
		t.vain = min(2*t.vain+1, mostAlone)
		t.alone = t.vain
	}
	for _, r := range t.take() {
		close(r.done)
	}
}

// arrived gives the riders their results, which come after others. What was not committed, as when the caller who
// carried it has gone, goes by itself: it may be sent twice.
func arrived(list []*rider, results []metastore.Result) {
	for _, r := range list {
		mine := results[:len(r.batch):len(r.batch)]
		results = results[len(r.batch):]
		r.results = mine
		for i := range mine {
			if code := jobs.CodeOf(mine[i].Err); mine[i].Err != nil && (code == jobs.Unavailable || code == jobs.Unknown || code == jobs.Exhausted) {
				r.results = nil
			}
		}
		close(r.done)
	}
}

// idle reports whether nothing waits for the ends of a batch: no run for the slot, no job for the run.
func (cp *ControlPlane) idle(batch []kernel.Envelope) bool {
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 || len(batch) > fewEnds {
		return false
	}
	for i := range batch {
		k, ok := batch[i].Command.(kernel.Finish)
		if !ok {
			return false
		}
		a := kept(b.Sender().Current(dispatch.Run{Tenant: batch[i].Tenant, ID: k.ID}))
		if a == nil || a.over != nil || a.limited || b.needed[kernel.DefinitionRef(batch[i].Tenant, a.key)] ||
			b.Waits(assign.App{Tenant: batch[i].Tenant, Name: a.app}) {
			return false
		}
	}
	return true
}

// ride waits for a commit to travel with; nil = none came.
func (r *rider) ride(ctx context.Context) []metastore.Result {
	select {
	case <-r.done:
		return r.results
	case <-ctx.Done():
		return metastore.Refused(r.batch, kernel.OutcomeUnknown("%v before the answer came", ctx.Err()))
	}
}
