package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// One address cannot fill the server, a loopback address no more than others, and gets its places back when its
// connections are gone.
func TestOneAddressCannotFillTheServer(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := newCrowd(raw, limitsConfig{Connections: 1, LoopbackConnections: 3}, slog.New(slog.NewTextHandler(&log, nil)))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }), ReadHeaderTimeout: 4 * time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(c) }()
	defer func() {
		_ = server.Close()
		<-ended
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			left := len(c.by)
			c.mu.Unlock()
			if left == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d addresses are still counted", left)
			}
		}
		if !strings.Contains(log.String(), "limits.connections-loopback") {
			t.Errorf("the log does not name the setting: %s", log.String())
		}
	}()
	answered := func() bool {
		conn, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
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
	for deadline := time.Now().Add(2 * time.Minute); !answered(); {
		if time.Now().After(deadline) {
			t.Fatal("a place that was left is not given to anybody")
		}
	}
	for _, conn := range idle[1:] {
		_ = conn.Close()
	}
	for ip, want := range map[string]struct {
		from string
		most int
	}{"127.0.0.1": {"loopback", 3}, "127.9.9.9": {"loopback", 3}, "::1": {"loopback", 3}, "10.0.0.1": {"10.0.0.1", 1}, "2001:db8::1:2": {"2001:db8::", 1}} {
		if from, most := c.bound(net.ParseIP(ip)); from != want.from || most != want.most {
			t.Errorf("%s counts as %s, of %d; want %v", ip, from, most, want)
		}
	}
}
