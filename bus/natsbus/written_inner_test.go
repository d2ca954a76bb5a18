package natsbus

import (
	"net"
	"testing"
)

// isClosed reports whether a channel is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// A Write counts when it has ended, for all that wait, and once; after Close nothing waits.
func TestAWireAnnouncesWrites(t *testing.T) {
	near, far := net.Pipe()
	w := &wire{Conn: near}
	first, second := w.next(), w.next()
	ended := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte("ab"))
		ended <- err
	}()
	if _, err := far.Read(make([]byte, 1)); err != nil { // the Write has begun, and lacks a byte
		t.Fatal(err)
	}
	if isClosed(first) {
		t.Error("a Write that goes on is announced")
	}
	if _, err := far.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !isClosed(first) || !isClosed(second) {
		t.Error("a Write that has ended is not announced")
	}
	third := w.next()
	if isClosed(third) {
		t.Error("a Write is announced twice")
	}
	_ = w.Close()
	if !isClosed(third) || !isClosed(w.next()) || !isClosed(w.next()) {
		t.Error("something waits for a Write after Close")
	}
}
