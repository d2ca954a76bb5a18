package bustest

import (
	"context"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

var sharedCases = []Case{
	{"an offer goes to one worker, whole", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		sent := offers("whole", bus.MaxList)
		sent[0] = bus.Offer{ID: jobs.ID{1}, Attempt: 1<<32 - 1, Key: jobs.Key(slices.Repeat([]byte("k"), 200))}
		must(t, node.Offer(ctx, queue, billing, sent), "offer")
		got := take(ctx, worker, queue, billing, 1)
		must(t, got.err, "take")
		if !slices.Equal(got.list, sent) {
			t.Fatalf("taken: %v\noffered: %v", got.list, sent)
		}
		got.done()
	}},
	{"Take waits until something is there", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		must(t, node.Offer(ctx, queue, billing), "make the app's queue")
		waiting := taking(ctx, worker, queue, billing, 10)
		must(t, node.Offer(ctx, queue, billing, offers("late", 2)), "offer")
		got := come(t, waiting, "the offer")
		must(t, got.err, "take")
		if len(got.list) != 2 {
			t.Fatalf("%d offers, 2 were made", len(got.list))
		}
		got.done()
	}},
	{"Take ends with its context", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		must(t, node.Offer(within(t), queue, billing), "make the app's queue")
		ctx, cancel := context.WithCancel(within(t))
		waiting := taking(ctx, worker, queue, billing, 1)
		cancel()
		wantErr(t, come(t, waiting, "the end").err, context.Canceled, "take")
	}},
	{"an offer made while a Take is given up is not lost", func(t *testing.T, h Harness) {
		ctx, node, worker, rival := within(t), h.As(t, leader), h.As(t, ringer), h.As(t, other)
		queue := open(t, node, 7)
		must(t, node.Offer(ctx, queue, billing), "make the app's queue")
		for range 20 {
			short, cancel := context.WithCancel(ctx)
			waiting := taking(short, worker, queue, billing, 1)
			must(t, node.Offer(ctx, queue, billing, offers("raced", 1)), "offer")
			cancel()
			got := come(t, waiting, "the end of the Take")
			if got.err != nil {
				got = take(ctx, rival, queue, billing, 1)
			}
			must(t, got.err, "take by the one or the other")
			got.done()
		}
	}},
	{"Take answers with as few lists as hold what is wanted", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		var lists [][]bus.Offer
		for range 40 {
			lists = append(lists, offers("few", 10))
		}
		must(t, node.Offer(ctx, queue, billing, lists...), "offer")
		for left := 400; left > 0; {
			got := take(ctx, worker, queue, billing, 25)
			must(t, got.err, "take")
			if len(got.list) == 0 || len(got.list) > 30 || len(got.list)%10 != 0 {
				t.Fatalf("%d offers, of lists of 10, for one who wants 25", len(got.list))
			}
			left -= len(got.list)
			got.done()
		}
	}},
	{"a Take that wants little gets one list, however long", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		must(t, node.Offer(ctx, queue, billing, offers("a", 50), offers("b", 50)), "offer")
		for range 2 {
			got := take(ctx, worker, queue, billing, 1)
			must(t, got.err, "take")
			if len(got.list) != 50 {
				t.Fatalf("%d offers, one list has 50", len(got.list))
			}
			got.done()
		}
	}},
	{"every list goes to exactly one of many takers", manyTakers},
	{"lanes are apart: by app and by tenant", func(t *testing.T, h Harness) {
		ctx, node, worker, stranger := within(t), h.As(t, leader), h.As(t, ringer), h.As(t, foreign)
		queue := open(t, node, 7)
		lanes := map[bus.Lane]bus.Bus{
			billing:                                 worker,
			{Tenant: "default", App: "billing"}:     worker,
			{Tenant: "default", App: "billing_eu"}:  worker,
			{Tenant: "acme.eu", App: "billing.eu"}:  stranger,
			{Tenant: "acme.eu", App: "Billing.eu-"}: stranger,
		}
		for lane := range lanes {
			must(t, node.Offer(ctx, queue, lane, offers(string(lane.Tenant)+"/"+lane.App, 1)), "offer to %v", lane)
		}
		for lane, b := range lanes {
			got := take(ctx, b, queue, lane, 100)
			must(t, got.err, "take from %v", lane)
			if want := offers(string(lane.Tenant)+"/"+lane.App, 1); !slices.Equal(got.list, want) {
				t.Fatalf("on lane %v came %v, not %v", lane, got.list, want)
			}
			got.done()
		}
	}},
	{"Open answers with one queue per term, and the old ones go away", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		old := open(t, node, 7)
		must(t, node.Offer(ctx, old, billing, offers("old", 1)), "offer in term 7")
		if again := open(t, node, 7); again != old {
			t.Fatalf("term 7 has queue %q and queue %q", old, again)
		}
		got := take(ctx, worker, old, billing, 1) // opening again loses nothing
		must(t, got.err, "take in term 7")
		got.done()

		waiting := make(chan error, 1)
		go func() {
			_, _, err := worker.Take(ctx, old, billing, 1)
			waiting <- err
		}()
		next := h.As(t, second)
		queue := open(t, next, 8)
		if queue == old {
			t.Fatalf("terms 7 and 8 have the same queue %q", queue)
		}
		wantErr(t, come(t, waiting, "the end of a Take of term 7"), bus.ErrNoReceiver, "take in term 7")
		wantErr(t, node.Offer(ctx, old, billing, offers("older", 1)), bus.ErrNoReceiver, "offer in term 7, after term 8 began")
		_, _, err := worker.Take(ctx, old, billing, 1)
		wantErr(t, err, bus.ErrNoReceiver, "take in term 7, after term 8 began")

		must(t, next.Offer(ctx, queue, billing, offers("new", 1)), "offer in term 8")
		got = take(ctx, worker, queue, billing, 100)
		must(t, got.err, "take in term 8")
		if !slices.Equal(got.list, offers("new", 1)) {
			t.Fatalf("in term 8 came %v", got.list)
		}
		got.done()
	}},
	{"lists have 1 to 64 offers", func(t *testing.T, h Harness) {
		ctx, node := within(t), h.As(t, leader)
		queue := open(t, node, 7)
		for _, n := range []int{0, bus.MaxList + 1} {
			wantErr(t, node.Offer(ctx, queue, billing, offers("n", n)), jobs.BadInput, "offer")
			lane := billing
			lane.Worker = "w"
			wantErr(t, node.Hand(ctx, lane, offers("n", n)), jobs.BadInput, "hand")
		}
	}},
	{"only nodes offer, and no worker takes from another tenant", func(t *testing.T, h Harness) {
		ctx, node, worker, stranger := within(t), h.As(t, leader), h.As(t, ringer), h.As(t, foreign)
		queue := open(t, node, 7)
		_, err := worker.Open(ctx, 8)
		wantErr(t, err, jobs.Forbidden, "open by a worker")
		wantErr(t, worker.Offer(ctx, queue, billing, offers("x", 1)), jobs.Forbidden, "offer by a worker")
		wantErr(t, worker.Hand(ctx, bus.Lane{Tenant: "default", App: "a", Worker: "b"}, offers("x", 1)), jobs.Forbidden, "hand by a worker")
		_, _, err = stranger.Take(ctx, queue, billing, 1)
		wantErr(t, err, jobs.Forbidden, "take by another tenant's worker")
		err = stranger.Receive(ctx, bus.Lane{Tenant: "default", App: "a", Worker: foreign.Name}, func([]bus.Offer) {})
		wantErr(t, err, jobs.Forbidden, "receive by another tenant's worker")
	}},
}

func open(t *testing.T, node bus.Bus, term uint64) string {
	t.Helper()
	queue, err := node.Open(within(t), term)
	must(t, err, "open term %d", term)
	return queue
}

func manyTakers(t *testing.T, h Harness) {
	ctx, node := within(t), h.As(t, leader)
	queue := open(t, node, 7)
	const lists, each = 500, 3
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	got := make(chan []bus.Offer, lists)
	ended := make(chan struct{})
	takers := []bus.Bus{h.As(t, ringer), h.As(t, ringer), h.As(t, other)}
	for i := range 6 {
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				in := take(ctx, takers[i%3], queue, billing, 20)
				if in.err != nil {
					return
				}
				in.done()
				got <- in.list
			}
		}()
	}
	for i := range 10 {
		var some [][]bus.Offer
		for j := range lists / 10 {
			some = append(some, offers(string(rune('a'+i))+string(rune('a'+j)), each))
		}
		must(t, node.Offer(ctx, queue, billing, some...), "offer")
	}
	seen := map[jobs.ID]bool{}
	for len(seen) < lists*each {
		for _, o := range come(t, got, "the rest of the offers") {
			if seen[o.ID] {
				t.Fatalf("offer %s came twice", o.ID)
			}
			seen[o.ID] = true
		}
	}
	stop()
	for range 6 {
		come(t, ended, "the end of a taker")
	}
}

var personalCases = []Case{
	{"Hand reaches one worker only", func(t *testing.T, h Harness) {
		ctx, node, worker, rival := within(t), h.As(t, leader), h.As(t, ringer), h.As(t, other)
		mine := bus.Lane{Tenant: "default", App: "billing.eu", Worker: ringer.Name}
		theirs := bus.Lane{Tenant: "default", App: "billing.eu", Worker: other.Name}
		got, wrong := make(chan []bus.Offer, 100), make(chan []bus.Offer, 100)
		must(t, worker.Receive(ctx, mine, func(l []bus.Offer) { got <- l }), "receive")
		must(t, rival.Receive(ctx, theirs, func(l []bus.Offer) { wrong <- l }), "receive")
		must(t, handTo(ctx, node, mine, offers("mine", 5)), "hand")
		if len(got) == 0 {
			t.Fatal("Hand has returned, the worker has not got the list")
		}
		for len(got) > 0 { // more than once if it was sent again, and the last one comes last
			if l := <-got; !slices.Equal(l, offers("mine", 5)) {
				t.Fatalf("received: %v", l)
			}
		}
		must(t, handTo(ctx, node, theirs, offers("theirs", 1)), "hand to the other")
		if l := come(t, wrong, "the other's list"); !slices.Equal(l, offers("theirs", 1)) {
			t.Fatalf("the other got %v", l)
		}
		if len(got) != 0 {
			t.Fatalf("a worker got %v, which was sent to another", <-got)
		}
	}},
	{"Hand fails without a receiver", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		lane := bus.Lane{Tenant: "default", App: "billing.eu", Worker: ringer.Name}
		wantErr(t, handTo(ctx, node, lane, offers("x", 1)), bus.ErrNoReceiver, "hand before the worker is there")
		must(t, worker.Receive(ctx, lane, func([]bus.Offer) {}), "receive")
		must(t, handTo(ctx, node, lane, offers("x", 1)), "hand while the worker is there")
		must(t, worker.Close(), "close")
		eventuallyGone(t, func() error { return node.Hand(ctx, lane, offers("x", 1)) })
	}},
	{"Receive ends with its context", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		lane := bus.Lane{Tenant: "default", App: "billing.eu", Worker: ringer.Name}
		short, cancel := context.WithCancel(ctx)
		must(t, worker.Receive(short, lane, func([]bus.Offer) {}), "receive")
		must(t, handTo(ctx, node, lane, offers("x", 1)), "hand")
		cancel()
		eventuallyGone(t, func() error { return node.Hand(ctx, lane, offers("x", 1)) })
	}},
	{"Hand waits a second and no more", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		lane := bus.Lane{Tenant: "default", App: "billing.eu", Worker: ringer.Name}
		free := make(chan struct{})
		defer close(free)
		must(t, worker.Receive(ctx, lane, func([]bus.Offer) { <-free }), "receive")
		wantErr(t, node.Hand(ctx, lane, offers("x", 1)), context.DeadlineExceeded, "hand to a worker that hangs")
		if ctx.Err() != nil {
			t.Fatalf("Hand took longer than %v", patience)
		}
	}},
}

// handTo sends a list to a worker, and once more if the worker did not take it in its second: on a busy machine that
// may pass without the worker's process running.
func handTo(ctx context.Context, b bus.Bus, lane bus.Lane, list []bus.Offer) error {
	for {
		err := b.Hand(ctx, lane, list)
		if !isDeadline(err) || ctx.Err() != nil {
			return err
		}
	}
}

// eventuallyGone repeats what is refused with ErrNoReceiver as soon as the other end's going is known everywhere.
func eventuallyGone(t *testing.T, do func() error) {
	t.Helper()
	for ctx := within(t); ctx.Err() == nil; {
		if err := do(); err != nil {
			if isDeadline(err) {
				continue // it was asked while it ended
			}
			wantErr(t, err, bus.ErrNoReceiver, "after the other end has gone")
			return
		}
	}
	t.Fatal("the other end has gone and is still there")
}
