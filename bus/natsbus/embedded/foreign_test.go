package embedded_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// foreign is a server that is not set up by Carillon.
func foreign(t *testing.T, set func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()}
	if set != nil {
		set(o)
	}
	s, err := server.NewServer(o)
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// opening returns the error of Open on a server.
func opening(t *testing.T, s *server.Server, cfg natsbus.Config) error {
	t.Helper()
	cfg.As = node
	b, err := natsbus.Connect(within(t), s.ClientURL(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	_, err = b.Open(within(t), 7)
	return err
}

// wantError ends the test unless err has the code and all the texts.
func wantError(t *testing.T, err error, code jobs.Code, texts ...string) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Fatalf("%v: this is not %q", err, code)
	}
	for _, w := range texts {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not contain %q", err, w)
		}
	}
}

func TestNoJetStream(t *testing.T) {
	s := foreign(t, func(o *server.Options) { o.JetStream = false })
	wantError(t, opening(t, s, natsbus.Config{}), jobs.Unavailable, "JetStream is not enabled on NATS server", "-js")
}

func TestNoJetStreamForTheAccount(t *testing.T) {
	s := foreign(t, func(o *server.Options) {
		account := server.NewAccount("APP")
		o.Accounts = []*server.Account{account}
		o.Users = []*server.User{{Username: "u", Password: "p", Account: account}}
	})
	wantError(t, opening(t, s, natsbus.Config{User: "u", Password: "p"}), jobs.Unavailable, "account")
}

func TestAUserWhoMayOnlyRead(t *testing.T) {
	s := foreign(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES"}},
		}}}
	})
	var err error
	again(t, func() bool { // a call that waits out JetStream's time fails, each time
		err = opening(t, s, natsbus.Config{User: "u", Password: "p"})
		return !errors.Is(err, jobs.Unavailable)
	})
	wantError(t, err, jobs.Forbidden, "$JS.API.STREAM.CREATE.CARILLON_OFFERS_7")
}

func TestAStreamThatOwnsOurSubjects(t *testing.T) {
	for _, subject := range []string{"offer.>", "offer.*.default.billing", "offer.7.acme.*"} {
		s := foreign(t, nil)
		_, err := streams(t, s).CreateStream(within(t), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{subject}})
		must(t, err)
		wantError(t, opening(t, s, natsbus.Config{}), jobs.Conflict, "offer.7.>", "ORDERS")
	}
}

func TestAStreamOfOurNameThatIsNotOurs(t *testing.T) {
	ours := jetstream.StreamConfig{
		Name: "CARILLON_OFFERS_7", Subjects: []string{"offer.7.>"}, Storage: jetstream.MemoryStorage,
		Retention: jetstream.WorkQueuePolicy, MaxAge: time.Hour,
	}
	for what, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		texts  []string
	}{
		"limits":     {func(c *jetstream.StreamConfig) { c.Retention = jetstream.LimitsPolicy }, []string{"retention is Limits and should be WorkQueue"}},
		"file":       {func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage }, []string{"storage is File and should be Memory"}},
		"a second":   {func(c *jetstream.StreamConfig) { c.MaxAge = time.Second; c.Duplicates = time.Second }, []string{"largest age is 1s and should be 1h0m0s"}},
		"elsewhere":  {func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} }, []string{"subjects is x and should be offer.7.>"}},
		"refuse new": {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew; c.MaxMsgs = 3 }, []string{"discard policy", "number of messages"}},
		"small":      {func(c *jetstream.StreamConfig) { c.MaxMsgSize = 10 }, []string{"largest message is 10"}},
	} {
		t.Run(what, func(t *testing.T) {
			s := foreign(t, nil)
			theirs := ours
			c.change(&theirs)
			_, err := streams(t, s).CreateStream(within(t), theirs)
			must(t, err)
			wantError(t, opening(t, s, natsbus.Config{}), jobs.Conflict, append(c.texts, "CARILLON_OFFERS_7", "delete it")...)
		})
	}
}

// Streams of other programs stay, and so do those of newer terms.
func TestOpenDeletesOnlyWhatIsOlder(t *testing.T) {
	s := foreign(t, nil)
	js := streams(t, s)
	for name, subject := range map[string]string{
		"CARILLON_OFFERS_5": "offer.5.>", "CARILLON_OFFERS_6": "offer.6.>", "CARILLON_OFFERS_8": "offer.8.>",
		"CARILLON_OFFERS_x": "offer.x.>", "ORDERS": "offer.orders", "OTHER": "other",
	} {
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
		must(t, err)
	}
	must(t, opening(t, s, natsbus.Config{}))
	left := map[string]bool{}
	names := js.StreamNames(within(t))
	for n := range names.Name() {
		left[n] = true
	}
	must(t, names.Err())
	for _, n := range []string{"CARILLON_OFFERS_7", "CARILLON_OFFERS_8", "CARILLON_OFFERS_x", "ORDERS", "OTHER"} {
		if !left[n] {
			t.Errorf("stream %s has gone", n)
		}
		delete(left, n)
	}
	if len(left) > 0 {
		t.Errorf("streams %v are still there", left)
	}
}

// Most servers take messages of 1 MiB: the bus reports that, and keeps to it.
func TestAServerWithItsOwnLimit(t *testing.T) {
	s := foreign(t, nil)
	b, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: node})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	if most := b.Limit(); most > 1<<20 || most < 1<<20-4096 {
		t.Errorf("the limit is %d", most)
	}
	must(t, b.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: make([]byte, b.Limit())}))
	err = b.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: make([]byte, b.Limit()+1)})
	wantError(t, err, jobs.BadInput)
}

// A server comes back without JetStream, and then with it: the leader gets the reason, and a worker that continues to
// ask gets offers again.
func TestNoJetStreamForAWhile(t *testing.T) {
	port := freeport.Port(t) // which no other socket gets while the server is down
	serve := func(jetstream bool) *server.Server {
		return foreign(t, func(o *server.Options) { o.JetStream, o.Port = jetstream, port })
	}
	stop := func(s *server.Server) {
		s.Shutdown()
		s.WaitForShutdown()
	}
	s := serve(true)
	leader, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: node})
	must(t, err)
	t.Cleanup(func() { _ = leader.Close() })
	taker, err := natsbus.Connect(within(t), s.ClientURL(), natsbus.Config{As: bus.Principal{Role: bus.Worker, Name: "w"}})
	must(t, err)
	t.Cleanup(func() { _ = taker.Close() })
	lane := bus.Lane{App: "billing"}
	queue, err := leader.Open(within(t), 1)
	must(t, err)
	must(t, leader.Offer(within(t), queue, lane))
	came := make(chan []bus.Offer, 1)
	go func() {
		for ctx := t.Context(); ctx.Err() == nil; { // however long the two restarts take
			if list, done, err := taker.Take(ctx, queue, lane, 10); err == nil {
				done()
				came <- list
				return
			}
		}
	}()
	stop(s)
	s = serve(false)
	again(t, func() bool { // until the leader is connected again
		_, err := leader.Open(within(t), 1)
		if errors.Is(err, jobs.Unavailable) {
			wantError(t, err, jobs.Unavailable, "JetStream is not enabled")
			return true
		}
		return false
	})
	if err := leader.Offer(within(t), queue, lane, make([]bus.Offer, 1)); err == nil {
		t.Fatal("an offer was taken by no stream")
	}
	stop(s)
	serve(true)
	again(t, func() bool { return leader.Offer(within(t), queue, lane, make([]bus.Offer, 3)) == nil })
	select {
	case list := <-came:
		if len(list) != 3 {
			t.Errorf("%d offers came", len(list))
		}
	case <-within(t).Done():
		t.Error("nothing came")
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

func streams(t *testing.T, s *server.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return js
}

// A server of a version that lacks what the queue needs is refused by its version.
func TestAnOldServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // the least that a client takes for a server
				defer c.Close()
				_, _ = io.WriteString(c, `INFO {"server_id":"X","server_name":"old","version":"2.9.25","proto":1,"headers":true,"max_payload":1048576,"jetstream":true}`+"\r\n")
				for r := bufio.NewScanner(c); r.Scan(); {
					if strings.HasPrefix(r.Text(), "PING") {
						_, _ = io.WriteString(c, "PONG\r\n")
					}
				}
			}()
		}
	}()
	b, err := natsbus.Connect(within(t), "nats://"+l.Addr().String(), natsbus.Config{As: node})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	_, err = b.Open(within(t), 7)
	wantError(t, err, jobs.Unavailable, "version 2.9.25", "2.10.0")
}
