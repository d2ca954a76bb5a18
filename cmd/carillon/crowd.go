package main

import (
	"net"
	"sync"
)

// mostFrom is how many connections one address may have at the page and the API at the same time. A browser has a
// handful; a proxy on another machine has one for each page that is being looked at.
const mostFrom = 500

// crowd is a listener that lets no single address fill it. Addresses of this machine may do as they like.
type crowd struct {
	net.Listener
	most int
	here func(net.IP) bool // of this machine

	mu sync.Mutex
	by map[string]int
}

func newCrowd(l net.Listener) *crowd {
	return &crowd{Listener: l, most: mostFrom, here: net.IP.IsLoopback, by: map[string]int{}}
}

// Accept waits for a connection that is not one too many.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
		if !ok || c.here(tcp.IP) {
			return conn, nil
		}
		from := tcp.IP.String()
		if tcp.IP.To4() == nil {
			from = tcp.IP.Mask(net.CIDRMask(64, 128)).String()
		}
		if c.come(from) {
			return &counting{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}, nil
		}
		_ = conn.Close()
	}
}

func (c *crowd) come(from string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[from] >= c.most {
		return false
	}
	c.by[from]++
	return true
}

func (c *crowd) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[from]--; c.by[from] == 0 {
		delete(c.by, from)
	}
}

// counting is a connection that is counted until it is closed.
type counting struct {
	net.Conn
	leave func()
}

func (c *counting) Close() error {
	c.leave()
	return c.Conn.Close()
}
