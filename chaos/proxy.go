//go:build linux

package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// proxy is the wire between those who dial an address and the one who listens at another. It can be cut, made slow, and
// made to lead one way only, for each of those who dial.
type proxy struct {
	name     string
	to       string
	listener net.Listener
	who      func(net.Conn) string // whose connection that is

	mu    sync.Mutex
	wires map[string]wire // by who dials; "" = all others
	open  map[*pair]bool
}

// wire is what becomes of bytes.
type wire struct {
	there bool          // what the one who dials says is lost: it is held back for ever
	back  bool          // and what it is told
	delay time.Duration // both ways
}

// cut is a wire that carries nothing.
var cut = wire{there: true, back: true}

// pair is a connection and what it leads to.
type pair struct {
	from        string
	left, right net.Conn
}

// newProxy listens. A nil who means that all who dial are the same.
func newProxy(name, listen, to string, who func(net.Conn) string) (*proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &proxy{name: name, to: to, listener: l, who: who, wires: map[string]wire{}, open: map[*pair]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no file descriptors, mostly: they come back
			continue
		}
		go p.carry(c)
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.end()
	}
}

func (c *pair) end() { _, _ = c.left.Close(), c.right.Close() }

// set makes the wire of one who dials what it is now; the zero wire heals it. Connections that a cut went through do
// not come back to life: what was lost of them is missing in the middle, so they end.
func (p *proxy) set(from string, w wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.wires[from]
	p.wires[from] = w
	if w == (wire{}) {
		delete(p.wires, from)
	}
	if was.there && !w.there || was.back && !w.back {
		for c := range p.open {
			if c.from == from {
				c.end()
			}
		}
	}
}

// reset ends all connections of one who dials, who may dial again.
func (p *proxy) reset(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if c.from == from {
			c.end()
		}
	}
}

func (p *proxy) wire(from string) wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wires[from]
}

// carry carries one connection.
func (p *proxy) carry(left net.Conn) {
	from := ""
	if p.who != nil {
		from = p.who(left)
	}
	if p.wire(from).there { // not even a handshake gets through: the one who dials waits, and gives up
		c := &pair{from: from, left: left, right: left}
		p.hold(c)
		return
	}
	right, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil {
		_ = left.Close()
		return
	}
	c := &pair{from: from, left: left, right: right}
	p.mu.Lock()
	p.open[c] = true
	p.mu.Unlock()
	defer func() {
		c.end()
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
	}()
	done := make(chan struct{}, 2)
	go func() { p.pump(c, left, right, true); done <- struct{}{} }()
	go func() { p.pump(c, right, left, false); done <- struct{}{} }()
	<-done
}

// hold keeps a connection that leads nowhere until the wire heals or the one who dialled gives up.
func (p *proxy) hold(c *pair) {
	p.mu.Lock()
	p.open[c] = true
	p.mu.Unlock()
	defer func() {
		c.end()
		p.mu.Lock()
		delete(p.open, c)
		p.mu.Unlock()
	}()
	bytes := make([]byte, 4096)
	for {
		if _, err := c.left.Read(bytes); err != nil {
			return
		}
	}
}

// pump carries bytes one way. What is cut is read and thrown away, so that whoever sends does not notice.
func (p *proxy) pump(c *pair, from, to net.Conn, there bool) {
	bytes := make([]byte, 64<<10)
	for {
		n, err := from.Read(bytes)
		if n > 0 {
			w := p.wire(c.from)
			if w.delay > 0 {
				time.Sleep(w.delay)
				w = p.wire(c.from)
			}
			if there && w.there || !there && w.back {
				continue
			}
			if _, err := to.Write(bytes[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
