package pool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Any number of handlers may block, the next one is called; those that return at once are called by few goroutines; and
// one that ends its goroutine costs no other its turn.
func TestPool(t *testing.T) {
	const n = 1000
	for name, handle := range map[string]func(called func(), open <-chan struct{}){
		"all block":           func(called func(), open <-chan struct{}) { called(); <-open },
		"none blocks":         func(called func(), _ <-chan struct{}) { called() },
		"they end goroutines": func(called func(), _ <-chan struct{}) { called(); runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				open := make(chan struct{})
				c := New(func(int) { handle(func() { calls.Add(1) }, open) })
				for range 2 { // the second time, some wait already
					calls.Store(0)
					var senders sync.WaitGroup
					for range 4 {
						senders.Go(func() {
							for range n / 4 {
								c.Call(1)
							}
						})
					}
					senders.Wait()
					synctest.Wait()
					if got := calls.Load(); got != n {
						t.Fatalf("%d of %d were called", got, n)
					}
				}
				close(open)
				synctest.Wait()
				c.mu.Lock()
				idle, waiting := c.idle, len(c.queue)-c.first
				c.mu.Unlock()
				if idle > mostIdle || waiting != 0 {
					t.Errorf("%d members wait, %d calls do", idle, waiting)
				}
				c.Dismiss()
				c.Call(1) // late, and called all the same
				synctest.Wait()
				if got := calls.Load(); got != n+1 {
					t.Errorf("%d of %d were called", got, n+1)
				}
			})
		})
	}
}

// A queue that is never empty does not grow for ever.
func TestPoolQueueIsReused(t *testing.T) {
	c := New(func(int) {})
	c.coming = true // no goroutine comes
	for range 10_000 {
		c.Call(1)
		c.mu.Lock()
		if len(c.queue)-c.first > 2 {
			if _, ok := c.next(); !ok {
				t.Fatal("the queue is empty")
			}
		}
		c.mu.Unlock()
	}
	if n := cap(c.queue); n > 64 {
		t.Errorf("two wait, in a queue with room for %d", n)
	}
}
