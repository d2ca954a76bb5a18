package natsbus_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// raw is a connection that is not ours: an operator's, or an attacker's.
func raw(t testing.TB, s *embedded.Server, o ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.URL(), append(o, nats.Timeout(time.Minute))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// within is a context for what must happen, on a busy machine, too. It is longer than AckWait, after which an offer
// comes again that was sent to a worker that has gone.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened is a leader with a queue for billing, and a worker.
func opened(t testing.TB, s *embedded.Server, log *slog.Logger) (leader, taker *natsbus.Bus, queue string) {
	t.Helper()
	leader = connect(t, s.URL(), natsbus.Config{As: node})
	taker = connect(t, s.URL(), natsbus.Config{As: worker, Logger: log})
	queue, err := leader.Open(within(t), 1)
	must(t, err)
	must(t, leader.Offer(within(t), queue, billing))
	return leader, taker, queue
}

// page is a log that can be read.
type page struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *page) count(s string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.b.String(), s)
}

func TestNonsenseNeverReachesATaker(t *testing.T) {
	s := start(t, embedded.Config{})
	var log page
	leader, taker, queue := opened(t, s, slog.New(slog.NewTextHandler(&log, nil)))
	nc, js := raw(t, s)
	terminated, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
	must(t, err)
	must(t, nc.Flush())
	bad := [][]byte{nil, {}, []byte("{}"), []byte("hello"), make([]byte, 1<<20), {0xe7, 0x07, 1, 2, 3}, {1}, bytes.Repeat([]byte{0xff}, 1<<20)}
	began := time.Now()
	const rounds = 5
	for range rounds {
		for _, b := range bad {
			_, err := js.Publish(within(t), "offer.1.default.billing", b)
			must(t, err)
		}
		good := list(3)
		must(t, leader.Offer(within(t), queue, billing, good))
		for left := len(good); left > 0; {
			got, done, err := taker.Take(within(t), queue, billing, 1000)
			must(t, err)
			if !slices.Equal(got, good) {
				t.Fatalf("taken: %v", got)
			}
			left -= len(got)
			done()
		}
	}
	if n := taker.Malformed(); n != uint64(rounds*len(bad)) {
		t.Errorf("%d messages were counted as malformed, %d were", n, rounds*len(bad))
	}
	if n, most := log.count("malformed"), int(time.Since(began)/time.Second)+2; n == 0 || n > most {
		t.Errorf("the log speaks of it %d times in %v", n, time.Since(began))
	}
	for range rounds * len(bad) {
		m, err := terminated.NextMsgWithContext(within(t))
		must(t, err)
		if !bytes.Contains(m.Data, []byte("not a list of offers")) {
			t.Fatalf("terminated without a reason: %s", m.Data)
		}
	}
	stream, err := js.Stream(within(t), queue)
	must(t, err)
	for { // acknowledgements are not answered
		info, err := stream.Info(within(t))
		must(t, err)
		if info.State.Msgs == 0 {
			break
		}
	}
}

func TestTakesLeaveNothingBehind(t *testing.T) {
	s := start(t, embedded.Config{})
	leader, taker, queue := opened(t, s, nil)
	count := func() (subscriptions, goroutines int) { return taker.Subscriptions(), runtime.NumGoroutine() }
	round := func() {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, done, err := taker.Take(within(t), queue, billing, 1)
				if err != nil {
					t.Error(err)
					return
				}
				done()
			})
		}
		must(t, leader.Offer(within(t), queue, billing, list(1), list(1), list(1), list(1)))
		all.Wait()
		short, cancel := context.WithCancel(t.Context())
		all.Go(func() { _, _, _ = taker.Take(short, queue, billing, 1) })
		cancel()
		all.Wait()
	}
	round()
	subscriptions, goroutines := count()
	for range 200 {
		round()
	}
	// The requests of a given-up Take are drained, which takes the library a moment.
	var s2, g2 int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		if s2, g2 = count(); s2 <= subscriptions+4 && g2 <= goroutines+20 {
			return
		}
	}
	t.Errorf("%d subscriptions became %d, %d goroutines became %d", subscriptions, s2, goroutines, g2)
}

func TestWhatIsNotDoneComesAgain(t *testing.T) {
	s := start(t, embedded.Config{})
	leader, taker, queue := opened(t, s, nil)
	_, js := raw(t, s)
	consumer, err := js.Consumer(within(t), queue, "billing@default")
	must(t, err)
	patient := consumer.CachedInfo().Config
	if patient.AckWait != 30*time.Second {
		t.Errorf("an unclaimed offer goes to another worker after %v", patient.AckWait)
	}
	patient.AckWait = 100 * time.Millisecond
	_, err = js.UpdateConsumer(within(t), queue, patient)
	must(t, err)
	offered := list(2)
	must(t, leader.Offer(within(t), queue, billing, offered))
	for range 3 {
		got, _, err := taker.Take(within(t), queue, billing, 1)
		must(t, err)
		if !slices.Equal(got, offered) {
			t.Fatalf("taken: %v", got)
		}
	}
}

func TestADeletedConsumerIsMadeAgain(t *testing.T) {
	s := start(t, embedded.Config{})
	leader, taker, queue := opened(t, s, nil)
	_, js := raw(t, s)
	must(t, js.DeleteStream(within(t), queue))
	must(t, leader.Offer(within(t), queue, billing, list(1)))
	_, done, err := taker.Take(within(t), queue, billing, 1)
	must(t, err)
	done()
}

func TestAnOlderLeaderMakesNoStreamAgain(t *testing.T) {
	s := start(t, embedded.Config{})
	leader, _, queue := opened(t, s, nil)
	next := connect(t, s.URL(), natsbus.Config{As: bus.Principal{Role: bus.Node, Name: "node-2"}})
	_, err := next.Open(within(t), 2)
	must(t, err)
	if err := leader.Offer(within(t), queue, billing, list(1)); err == nil {
		t.Fatal("the leader of term 1 has offered in term 2")
	}
	_, js := raw(t, s)
	if _, err := js.Stream(within(t), queue); err == nil {
		t.Fatal("the stream of term 1 is there again")
	}
}

func TestAQueueNameIsNotTrusted(t *testing.T) {
	tests.Long(t)
	s := start(t, embedded.Config{})
	_, taker, _ := opened(t, s, nil)
	for _, queue := range []string{"", "x", "CARILLON_OFFERS_1.billing@default", "CARILLON_OFFERS_*", "a b"} {
		began := time.Now()
		_, _, err := taker.Take(within(t), queue, billing, 1)
		if err == nil || time.Since(began) < 100*time.Millisecond {
			t.Errorf("queue %q: %v after %v", queue, err, time.Since(began))
		}
	}
}

func TestAWorkerReturnsWhatItDidNotWant(t *testing.T) {
	// Lists were long; then there are many short ones, and a long one again: no worker gets more than it wanted by more
	// than a list.
	s := start(t, embedded.Config{})
	leader, taker, queue := opened(t, s, nil)
	sizes := []int{64, 64, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 64, 64, 64, 64, 64, 64, 64, 64}
	total := 0
	var lists [][]bus.Offer
	for _, n := range sizes {
		lists = append(lists, list(n))
		total += n
	}
	must(t, leader.Offer(within(t), queue, billing, lists...))
	seen := map[string]bool{}
	for len(seen) < total {
		got, done, err := taker.Take(within(t), queue, billing, 100)
		must(t, err)
		if len(got) >= 100+bus.MaxList {
			t.Fatalf("%d offers for one who wants 100", len(got))
		}
		for _, o := range got {
			if seen[o.ID.String()] {
				t.Fatalf("offer %s came twice", o.ID)
			}
			seen[o.ID.String()] = true
		}
		done()
	}
}

func Example() {
	server, err := embedded.Start(embedded.Config{DontListen: true})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	node, err := natsbus.Connect(ctx, "", natsbus.Config{InProcess: server, As: bus.Principal{Role: bus.Node, Name: "n1"}})
	if err != nil {
		panic(err)
	}
	queue, err := node.Open(ctx, 1)
	fmt.Println(queue, err)
	fmt.Println(node.Close(), server.Stop())
	// Output:
	// CARILLON_OFFERS_1 <nil>
	// <nil> <nil>
}
