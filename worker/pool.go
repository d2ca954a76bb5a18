package worker

import "sync"

// pool calls the handlers of attempts, on goroutines that stay for the next one: their stacks have grown by then.
//
// A goroutine takes attempts until none waits. Before it calls a handler, which may block, it makes sure that another
// goroutine is on its way to the next one; never more than one. So handlers that block each have a goroutine of their
// own within microseconds, and a thousand that return at once are called by two or three, without a switch from one
// goroutine to another for each.
type pool struct {
	attend func(*attempt)
	wake   chan struct{} // gets a token for a member who waits
	gone   chan struct{} // closed when idle goroutines are to end

	mu     sync.Mutex
	queue  []*attempt
	first  int  // of those in the queue that wait
	coming bool // a goroutine is on its way to the queue; always true while it holds anything
	idle   int  // members who wait
	over   bool // idle goroutines end
}

// mostIdle bounds the goroutines that wait for work.
const mostIdle = 512

func newPool(attend func(*attempt)) *pool {
	return &pool{attend: attend, wake: make(chan struct{}, mostIdle), gone: make(chan struct{})}
}

// see starts an attempt at once, even if all goroutines are busy.
func (c *pool) see(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first > 0 && c.first >= len(c.queue)-c.first { // a queue that is never empty does not grow for ever
		n := copy(c.queue, c.queue[c.first:])
		clear(c.queue[n:])
		c.queue, c.first = c.queue[:n], 0
	}
	c.queue = append(c.queue, a)
	c.summon()
}

// summon makes sure that a goroutine comes if anything waits. The lock is held.
func (c *pool) summon() {
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

// next returns the first attempt in the queue, or nil. The lock is held.
func (c *pool) next() *attempt {
	if c.first == len(c.queue) {
		c.queue, c.first = c.queue[:0], 0
		return nil
	}
	a := c.queue[c.first]
	c.queue[c.first] = nil
	c.first++
	return a
}

// member runs waiting attempts, then waits itself, until the pool is dismissed. A handler that ends its goroutine ends
// the member, too.
func (c *pool) member() {
	for {
		c.mu.Lock()
		c.coming = false
		for a := c.next(); a != nil; a = c.next() {
			c.summon()
			c.mu.Unlock()
			c.attend(a)
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

// dismiss ends the goroutines that are idle, or become so.
func (c *pool) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.idle = true, 0
	close(c.gone)
}
