//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// line is a wire to an echo server.
func line(t *testing.T, who func(net.Conn) string) *proxy {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p, err := newProxy("line", "127.0.0.1:0", echo.Addr().String(), who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(); _ = echo.Close() })
	return p
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoes reports whether sent bytes come back.
func echoes(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := c.Write([]byte("ping")); err != nil {
		return false
	}
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err == nil
}

const (
	moment = 100 * time.Millisecond // in which nothing is expected
	ages   = 10 * time.Second
)

func TestWires(t *testing.T) {
	for name, w := range map[string]wire{"cut": cut, "cannot send": {there: true}, "cannot receive": {back: true}} {
		t.Run(name, func(t *testing.T) {
			p := line(t, nil)
			c := dial(t, p)
			if !echoes(t, c, ages) {
				t.Fatal("a whole wire carries nothing")
			}
			p.set("", w)
			if echoes(t, c, moment) {
				t.Error("sent bytes come back")
			}
			if late := dial(t, p); echoes(t, late, moment) {
				t.Error("a new connection is answered")
			}
			p.set("", wire{})
			_ = c.SetReadDeadline(time.Now().Add(ages))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection with a hole in it goes on: %v", err)
			}
			if !echoes(t, dial(t, p), ages) {
				t.Error("a healed wire carries nothing")
			}
		})
	}
	t.Run("slow", func(t *testing.T) {
		p := line(t, nil)
		p.set("", wire{delay: moment})
		began := time.Now()
		if !echoes(t, dial(t, p), ages) || time.Since(began) < 2*moment {
			t.Errorf("there and back took %v", time.Since(began))
		}
	})
	t.Run("reset", func(t *testing.T) {
		p := line(t, nil)
		c := dial(t, p)
		if !echoes(t, c, ages) {
			t.Fatal("a whole wire carries nothing")
		}
		p.reset("")
		_ = c.SetReadDeadline(time.Now().Add(ages))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection goes on: %v", err)
		}
	})
}

// A wire that is cut for one process is whole for another.
func TestWhoDials(t *testing.T) {
	us := &process{name: "us", cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	p := line(t, dialler(func() []*process { return []*process{{name: "other"}, us} }))
	p.set("others", cut)
	if !echoes(t, dial(t, p), ages) {
		t.Error("a wire that is cut for others carries nothing")
	}
	p.set("us", cut)
	if echoes(t, dial(t, p), moment) {
		t.Error("sent bytes come back")
	}
}

// Connections from one port to several places have different sockets.
func TestSocketOf(t *testing.T) {
	reuse := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
		}); err != nil {
			return err
		}
		return failed
	}}
	inodes := map[string]bool{}
	for range 3 {
		c, err := reuse.Dial("tcp", line(t, nil).listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		near, far := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		reuse.LocalAddr = near
		inodes[socketOf(near, far)] = true
	}
	if len(inodes) != 3 || inodes[""] || inodes["0"] {
		t.Errorf("three connections from one port have the inodes %v", inodes)
	}
}
