package dispatch

// Bounds of the window of a worker without a limit: how many of its pushes may be unanswered.
const (
	leastWindow = 64
	mostWindow  = 2048
)

// credit is how many more attempts a worker may be sent. Nothing is sent ahead: an attempt waits where its priority
// counts, at the leader, until a slot is free. The zero value has none.
type credit struct {
	slots  int  // 0 = unlimited
	taken  int  // attempts that are the worker's, from the proposal of their start until their slot is free
	strays int  // slots that handlers take whose attempts are not the worker's any more
	open   int  // pushes without an answer
	window int  // of a worker without a limit
	closed bool // a push was refused or is unanswered for long: until the next heartbeat
	mute   bool // a push is unanswered for long, or was not delivered: until the next heartbeat
	away   bool // it takes nothing new, or has not introduced itself
}

// left returns how many more attempts the worker may be sent.
func (c *credit) left() int {
	switch {
	case c.closed || c.away:
		return 0
	case c.slots > 0:
		return max(0, c.slots-c.taken-c.strays)
	}
	return max(0, c.window-c.open)
}

// answered records that the worker has answered some pushes: a worker without a limit that keeps up is sent more at
// once.
func (c *credit) answered(n int) {
	if c.open -= n; c.open == 0 {
		c.window = min(2*max(c.window, leastWindow), mostWindow)
	}
}

// introduced follows what a heartbeat reports.
func (c *credit) introduced(slots, strays int, away bool) {
	c.slots, c.strays, c.away, c.closed, c.mute = slots, strays, away, false, false
	c.window = max(c.window, leastWindow)
}
