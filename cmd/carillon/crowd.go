package main

import (
	"log/slog"
	"net"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// crowd is a listener that limits the connections of each address and closes those beyond.
type crowd struct {
	net.Listener
	most     int // connections of one address
	loopback int // of all loopback addresses together
	episodes *episode.Log

	mu sync.Mutex
	by map[string]int
}

func newCrowd(l net.Listener, c limitsConfig, log *slog.Logger) *crowd {
	return &crowd{Listener: l, most: c.Connections, loopback: c.LoopbackConnections, episodes: episode.New(log), by: map[string]int{}}
}

// Accept waits for a connection within the limits.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := conn.RemoteAddr().(*net.TCPAddr)
		if !ok {
			return conn, nil
		}
		from, most := c.bound(tcp.IP)
		if c.come(from, most) {
			return &counting{Conn: conn, leave: sync.OnceFunc(func() { c.leave(from) })}, nil
		}
		_ = conn.Close()
	}
}

// bound returns the name under which an address is counted, and its limit.
func (c *crowd) bound(ip net.IP) (from string, most int) {
	switch {
	case ip.IsLoopback():
		return "loopback", c.loopback
	case ip.To4() == nil:
		return ip.Mask(net.CIDRMask(64, 128)).String(), c.most
	}
	return ip.String(), c.most
}

func (c *crowd) come(from string, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[from] >= most {
		c.refuse(from, most)
		return false
	}
	c.by[from]++
	return true
}

func (c *crowd) refuse(from string, most int) {
	c.episodes.Failed(slog.LevelWarn, from, "connections refused: limits.connections or limits.connections-loopback reached", "address", from, "limit", most)
}

func (c *crowd) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[from]--; c.by[from] == 0 {
		delete(c.by, from)
	}
}

// counting is a connection that counts until it is closed.
type counting struct {
	net.Conn
	leave func()
}

func (c *counting) Close() error {
	c.leave()
	return c.Conn.Close()
}
