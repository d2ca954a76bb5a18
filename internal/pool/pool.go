// Package pool calls functions that may block on goroutines that stay for the next call: their stacks have grown by
// then.
//
// It is not promised to programs outside this module.
package pool

import "sync"

// Pool calls a function for each item, all at once.
//
// A goroutine takes items until none waits. Before it calls the function, which may block, it makes sure that another
// goroutine is on its way to the next one; never more than one. So calls that block each have a goroutine of their own
// within microseconds, and a thousand that return at once are made by two or three, without a switch from one goroutine
// to another for each.
type Pool[T any] struct {
	call func(T)
	wake chan struct{} // gets a token for a member who waits
	gone chan struct{} // closed when idle goroutines are to end

	mu     sync.Mutex
	queue  []T
	first  int  // of those in the queue that wait
	coming bool // a goroutine is on its way to the queue; always true while it holds anything
	idle   int  // members who wait
	over   bool // idle goroutines end
}

// mostIdle bounds the goroutines that wait for work.
const mostIdle = 512

// New returns an empty pool.
func New[T any](call func(T)) *Pool[T] {
	return &Pool[T]{call: call, wake: make(chan struct{}, mostIdle), gone: make(chan struct{})}
}

// Call starts a call at once, even if all goroutines are busy.
func (c *Pool[T]) Call(item T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first > 0 && c.first >= len(c.queue)-c.first { // a queue that is never empty does not grow for ever
		n := copy(c.queue, c.queue[c.first:])
		clear(c.queue[n:])
		c.queue, c.first = c.queue[:n], 0
	}
	c.queue = append(c.queue, item)
	c.summon()
}

// summon makes sure that a goroutine comes if anything waits. The lock is held.
func (c *Pool[T]) summon() {
	if c.first == len(c.queue) || c.coming {
		return
	}
	c.coming = true
	if c.idle > 0 {
		c.idle--
		c.wake <- struct{}{} // never blocks: no more than mostIdle wait
		return
	}
	go c.member()
}

// next takes the first item of the queue; false if there is none. The lock is held.
func (c *Pool[T]) next() (item T, ok bool) {
	if c.first == len(c.queue) {
		c.queue, c.first = c.queue[:0], 0
		return item, false
	}
	item, c.queue[c.first] = c.queue[c.first], item
	c.first++
	return item, true
}

// member makes the calls that wait, then waits itself, until the pool is dismissed. A call that ends its goroutine ends
// the member, too.
func (c *Pool[T]) member() {
	for {
		c.mu.Lock()
		c.coming = false
		for item, ok := c.next(); ok; item, ok = c.next() {
			c.summon()
			c.mu.Unlock()
			c.call(item)
			c.mu.Lock()
		}
		stay := c.idle < mostIdle && !c.over
		if stay {
			c.idle++
		}
		c.mu.Unlock()
		if !stay {
			return
		}
		select {
		case <-c.wake:
		case <-c.gone: // once more, should there have been a token
		}
	}
}

// Dismiss ends the goroutines that are idle, or become so. Later calls are made all the same.
func (c *Pool[T]) Dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.idle = true, 0
	close(c.gone)
}
