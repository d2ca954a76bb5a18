// Package freeport finds addresses for tests whose servers need their address before they listen.
//
// It is not promised to programs outside this module.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

var given sync.Map // ports that this process has given out, with or without a listener

// Port returns one on loopback without a listener, another one at each call. It is below those that a system assigns to
// outgoing connections: tests leave addresses and return to them, and meanwhile no other socket may get them, least of
// all one that is trying to connect to them.
func Port(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 12_000 + rand.N(20_000)
		if _, known := given.LoadOrStore(port, true); known {
			continue
		}
		if l, err := net.Listen("tcp", at(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Address returns a Port with the host before it.
func Address(t testing.TB) string {
	t.Helper()
	return at(Port(t))
}

func at(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
