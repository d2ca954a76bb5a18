package dblog

import (
	"sync"
	"time"
)

// clock is the database's clock, as this node has learned it. A database reads its clock early in a statement, and
// answers when it has synced its disk: so the time since a statement was sent tells more than the time since its answer.
// Of the last few seconds the statement counts by which that clock is least ahead: it waited the least before it began.
type clock struct {
	mu    sync.Mutex
	base  time.Time     // of this node's clock
	now   ahead         // of this window
	last  ahead         // of the one before
	began time.Duration // of this window, since base
}

// ahead is how far the database's clock is ahead at most; unknown without a sample.
type ahead struct {
	by    time.Duration
	known bool
}

// clockWindow is how long a sample counts, and at most twice as long: clocks drift.
const clockWindow = 5 * time.Second

// learn notes what the database's clock was after a statement had been sent.
func (c *clock) learn(theirs, sent time.Time) {
	if theirs.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.base.IsZero() {
		c.base = sent
	}
	since := sent.Sub(c.base)
	switch gone := since - c.began; {
	case gone > 2*clockWindow:
		c.now, c.last, c.began = ahead{}, ahead{}, since
	case gone > clockWindow:
		c.now, c.last, c.began = ahead{}, c.now, since
	}
	by := theirs.Sub(c.base.Round(0)) - since // without this node's wall clock, which may be set meanwhile
	if !c.now.known || by < c.now.by {
		c.now = ahead{by, true}
	}
}

// Now is the database's time, and this node's own before it has learned that.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.now
	if !by.known || c.last.known && c.last.by < by.by {
		by = c.last
	}
	if !by.known {
		return time.Now()
	}
	return c.base.Round(0).Add(time.Since(c.base) + by.by)
}
