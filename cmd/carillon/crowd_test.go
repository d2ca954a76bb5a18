package main

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// One address cannot fill the server, and gets its places back when its connections are gone.
func TestOneAddressCannotFillTheServer(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newCrowd(raw)
	c.most, c.here = 3, func(net.IP) bool { return false }
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(c) }()
	defer func() {
		_ = server.Close()
		<-ended
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			left := len(c.by)
			c.mu.Unlock()
			if left == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d addresses are still counted", left)
			}
		}
	}()
	answered := func() bool {
		conn, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		answer, _ := io.ReadAll(conn)
		return len(answer) > 0
	}
	var idle []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	if answered() {
		t.Error("the fourth connection of an address is answered")
	}
	_ = idle[0].Close()
	for deadline := time.Now().Add(20 * time.Second); !answered(); {
		if time.Now().After(deadline) {
			t.Fatal("a place that was left is not given to anybody")
		}
	}
	for _, conn := range idle[1:] {
		_ = conn.Close()
	}
	own := newCrowd(raw)
	if !own.here(net.IPv4(127, 0, 0, 1)) || own.here(net.IPv4(10, 0, 0, 1)) {
		t.Error("who is of this machine is not known")
	}
}
