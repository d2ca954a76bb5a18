package metastore

import (
	"sync"
	"time"
)

// How far a Clock follows the wall clock without a check, and how long a step must last until it does.
const (
	ClockSlack    = 500 * time.Millisecond
	ClockPatience = 15 * time.Second
)

// Clock is the time of a store and of its control plane, which share one: a due time that came a year early would
// fire a year early, and a commit stamped a year ahead would hold all later ones there. It follows the wall clock and
// steps of up to ClockSlack, which time servers make. At a larger step it continues by the machine's steady time, and
// follows the wall clock again when this has come back, or when the step has lasted for ClockPatience: by then it is
// intended. The zero value is ready.
type Clock struct {
	// Wall reads the wall clock; nil means time.Now.
	Wall func() time.Time

	mu      sync.Mutex
	at      time.Time     // steady time of the last reading
	shown   time.Time     // what was answered then
	step    time.Duration // by which the wall clock is ahead while Now does not follow it; 0 = it does
	stepped time.Time     // steady time when that was first seen
}

// Now returns the time. It has no monotonic reading.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	steady := time.Now()
	wall := steady.Round(0)
	if c.Wall != nil {
		wall = c.Wall().Round(0)
	}
	ours := wall
	if !c.at.IsZero() {
		ours = c.shown.Add(steady.Sub(c.at))
	}
	switch step := wall.Sub(ours); {
	case step.Abs() <= ClockSlack:
		c.step = 0
	case c.step == 0 || (step-c.step).Abs() > ClockSlack: // it was set, perhaps again
		c.step, c.stepped = step, steady
	case steady.Sub(c.stepped) >= ClockPatience:
		c.step = 0
	}
	if c.step == 0 {
		ours = wall
	}
	c.at, c.shown = steady, ours
	return ours
}

// Step is by how much the wall clock is ahead (behind, if negative) while Now does not follow it; 0 if it does.
func (c *Clock) Step() time.Duration {
	c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step
}
