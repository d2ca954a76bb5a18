package embedded_test

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
)

// A program that heeds no bound of natsbus floods the leader with the largest messages that the server takes, and waits
// for no answer. Its own connections end for it; the leader's does not, and others are answered meanwhile.
func TestAFloodEndsItsOwnConnectionsOnly(t *testing.T) {
	s, _ := guarded(t, embedded.Config{Admit: newRegister().admit})
	quiet := entered(t, s, ofBilling, as("default", bus.Worker, "h1"), "billing")
	var floods sync.WaitGroup
	data := make([]byte, embedded.MaxPayload)
	closed := make(chan error, 4)
	for range cap(closed) {
		nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("raw", ofClient), nats.NoReconnect())
		must(t, err)
		defer nc.Close()
		floods.Go(func() {
			for by := time.Now().Add(time.Minute); len(closed) == 0 && time.Now().Before(by); { // one that ends is enough
				if err := nc.PublishRequest("call.default.client.raw.=none.store", "inbox.default.client.raw.=none.x", data); err != nil {
					closed <- err
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { floods.Wait(); close(done) }()
	n := 0
	for ended := false; !ended; n++ {
		select {
		case <-done:
			ended = true
		default:
		}
		if _, err := quiet.Call(within(t), bus.ServiceStore, []byte("x")); err != nil {
			t.Fatalf("call %d of another: %v", n, err)
		}
	}
	if len(closed) == 0 {
		t.Error("no connection of the flood was closed")
	}
}
