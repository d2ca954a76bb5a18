package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// foreign is a server that is not set up by Carillon, with these options beside those of a test, and without JetStream.
func foreign(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(&o)
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	if s.JetStreamEnabled() {
		t.Fatal("the server runs JetStream")
	}
	return s
}

// configured is a foreign server that reads what ServerConfig writes, and nothing else.
func configured(t *testing.T, grants []natsbus.Grant) *server.Server {
	t.Helper()
	text, err := natsbus.ServerConfig(grants)
	must(t, err)
	path := filepath.Join(t.TempDir(), "nats.conf")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	o, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return foreign(t, *o)
}

// A NATS server elsewhere with that configuration, without JetStream, carries all that a bus promises.
func TestBusOnAServerElsewhere(t *testing.T) {
	var grants []natsbus.Grant
	user := func(p bus.Principal) string { return string(p.Tenant) + "-" + p.Actor() }
	for _, p := range bustest.Principals() {
		grants = append(grants, natsbus.Grant{User: user(p), Password: "secret", As: p, Apps: bustest.Apps()})
	}
	bustest.Run(t, func(t *testing.T) bustest.Harness {
		s := configured(t, grants)
		return bustest.Harness{As: func(t *testing.T, p bus.Principal) bus.Bus {
			b, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: p, User: user(p), Password: "secret"})
			must(t, err)
			t.Cleanup(func() { _ = b.Close() })
			return b
		}}
	})
}

// Most servers take messages of 1 MiB: the bus reports that, and keeps to it.
func TestAServerWithItsOwnLimit(t *testing.T) {
	s := foreign(t, server.Options{})
	b, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: node})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	if most := b.Limit(); most > 1<<20 || most < 1<<20-4096 {
		t.Errorf("the limit is %d", most)
	}
	must(t, b.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: make([]byte, b.Limit())}))
	err = b.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: make([]byte, b.Limit()+1)})
	if !errors.Is(err, jobs.BadInput) {
		t.Errorf("a signal beyond the limit: %v", err)
	}
}

// again tries until so returns true.
func again(t *testing.T, so func() bool) {
	t.Helper()
	for ctx := within(t); !so(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("it does not come to be")
		}
	}
}
