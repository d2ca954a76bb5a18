package natsbus

import "sync"

// written returns when all that was published is on the socket, or its connection is closed. The library publishes,
// counts and writes with one lock, and writes all that it has buffered: a Write that ends after publishing includes
// that. Each wait ends: the library closes a connection whose Write takes a minute.
func (b *Bus) written() {
	ended := b.wires.now().next()
	if n, _ := b.nc.Buffered(); n > 0 {
		<-ended
		_, _ = b.nc.Buffered() // TLS writes in pieces, and this waits for the last one
	}
}

// writes announces the end of each Write on a connection.
type writes struct {
	mu    sync.Mutex
	ended chan struct{} // closed by the next announcement; nil = nothing waits for one
	over  bool          // the connection is closed
}

// next returns a channel that is closed when a further Write has ended, or none will come.
func (w *writes) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.ended == nil {
		w.ended = make(chan struct{})
	}
	if w.over {
		close(w.ended)
	}
	return w.ended
}

// announce is called after each Write, and after Close.
func (w *writes) announce(over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil && !w.over {
		close(w.ended)
		w.ended = nil
	}
	w.over = w.over || over
}
