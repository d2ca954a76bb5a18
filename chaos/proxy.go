//go:build linux

package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// proxy is the wire between diallers of one address and the listener at another. It can be cut, slowed, and made to
// carry one direction only, for each dialler.
type proxy struct {
	name     string
	to       string
	listener net.Listener
	who      func(net.Conn) string // name of a connection's dialler

	mu    sync.Mutex
	wires map[string]wire // by dialler; "" = all others
	open  map[*pair]bool
}

// wire is what becomes of bytes.
type wire struct {
	there bool          // bytes from the dialler are held back forever
	back  bool          // bytes to the dialler, too
	delay time.Duration // both ways
}

// cut is a wire that carries nothing.
var cut = wire{there: true, back: true}

// pair is a connection and what it leads to.
type pair struct {
	from        string
	left, right net.Conn
}

// newProxy listens. With a nil who, all diallers are one.
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

// set changes the wire of one dialler; the zero wire heals it. Connections that lost bytes in a cut end, since these
// bytes would be missing in the middle.
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

// reset ends all connections of one dialler, which may dial again.
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
	if p.wire(from).there { // not even a handshake gets through: the dialler waits until its timeout
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

// hold keeps a connection without a listener until the wire heals or the dialler gives up.
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

// pump carries bytes one way. It reads and discards bytes of a cut wire, so that the sender does not notice.
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
