package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// heard listens and passes on what comes.
func heard(t *testing.T, b bus.Bus, tenant jobs.Tenant, topic bus.Topic, to string) <-chan bus.Signal {
	t.Helper()
	ch := make(chan bus.Signal, 1000)
	must(t, b.Listen(t.Context(), tenant, topic, to, func(s bus.Signal) { ch <- s }), "listen to %s", topic)
	return ch
}

// say signals text.
func say(t *testing.T, b bus.Bus, topic bus.Topic, tenant jobs.Tenant, to, text string) {
	t.Helper()
	err := b.Signal(within(t), bus.Signal{Topic: topic, Tenant: tenant, To: to, Data: []byte(text)})
	must(t, err, "signal %q", text)
}

// hears ends the test unless exactly these texts come, in this order. The last one should be one that comes last.
func hears(t *testing.T, ch <-chan bus.Signal, who string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if s := come(t, ch, fmt.Sprintf("%q to %s", want, who)); string(s.Data) != want {
			t.Fatalf("%s heard %q, not %q", who, s.Data, want)
		}
	}
}

var signalCases = []Case{
	{"a signal reaches all who listen to its topic, and says who sent it", func(t *testing.T, h Harness) {
		node, worker, rival := h.As(t, leader), h.As(t, ringer), h.As(t, other)
		ears := map[string]<-chan bus.Signal{
			"the worker":       heard(t, worker, "default", bus.TopicChanged, ""),
			"the other worker": heard(t, rival, "default", bus.TopicChanged, other.Name),
			"the node":         heard(t, node, "*", bus.TopicChanged, ""),
		}
		from := bus.Principal{Role: bus.Node, Name: "forged"}
		err := node.Signal(within(t), bus.Signal{Topic: bus.TopicChanged, From: from, Data: []byte("a\x00b")})
		must(t, err, "signal")
		for who, ear := range ears {
			got := come(t, ear, "the signal to "+who)
			if string(got.Data) != "a\x00b" || got.From != leader || got.Tenant != "default" || got.To != "" || got.Topic != bus.TopicChanged {
				t.Fatalf("%s heard %+v", who, got)
			}
		}
	}},
	{"a signal that nobody hears is no error", func(t *testing.T, h Harness) {
		say(t, h.As(t, ringer), bus.TopicLog, "", "", "x")
	}},
	{"signals to a worker reach it, those to others do not", func(t *testing.T, h Harness) {
		node, worker, rival := h.As(t, leader), h.As(t, ringer), h.As(t, other)
		mine := heard(t, worker, "default", bus.TopicCancel, ringer.Name)
		his := heard(t, rival, "default", bus.TopicCancel, other.Name)
		all := heard(t, node, "default", bus.TopicCancel, "")
		say(t, node, bus.TopicCancel, "", ringer.Name, "to the first")
		say(t, node, bus.TopicCancel, "default", other.Name, "to the second")
		say(t, node, bus.TopicCancel, "default", "", "to both")
		hears(t, mine, "the first", "to the first", "to both")
		hears(t, his, "the second", "to the second", "to both")
		hears(t, all, "one who hears all", "to the first", "to the second", "to both")
	}},
	{"topics are apart", func(t *testing.T, h Harness) {
		node := h.As(t, leader)
		live := heard(t, node, "default", bus.TopicLive, "")
		say(t, node, bus.TopicChanged, "", "", "changed")
		say(t, node, bus.TopicLive, "", "", "live")
		hears(t, live, "one who listens to live", "live")
	}},
	{"tenants are apart, and nodes hear all", func(t *testing.T, h Harness) {
		node, worker, stranger := h.As(t, leader), h.As(t, ringer), h.As(t, foreign)
		ours := heard(t, worker, "", bus.TopicChanged, "")
		theirs := heard(t, stranger, "acme.eu", bus.TopicChanged, "")
		every := heard(t, node, "*", bus.TopicChanged, "")
		say(t, node, bus.TopicChanged, "acme.eu", "", "theirs")
		say(t, node, bus.TopicChanged, "default", "", "ours")
		say(t, node, bus.TopicChanged, "acme.eu", "", "end")
		say(t, node, bus.TopicChanged, "default", "", "end")
		hears(t, ours, "our worker", "ours", "end")
		hears(t, theirs, "their worker", "theirs", "end")
		hears(t, every, "the node", "theirs", "ours", "end", "end")

		ctx := within(t)
		wantErr(t, stranger.Signal(ctx, bus.Signal{Topic: bus.TopicBack, Tenant: "default", Data: []byte("x")}), jobs.Forbidden, "signal to another tenant")
		wantErr(t, stranger.Listen(ctx, "default", bus.TopicLive, "", func(bus.Signal) {}), jobs.Forbidden, "listen to another tenant")
		wantErr(t, stranger.Listen(ctx, "*", bus.TopicLive, "", func(bus.Signal) {}), jobs.Forbidden, "listen to all tenants")
	}},
	{"a role sends and hears its topics and no others", func(t *testing.T, h Harness) {
		ctx := within(t)
		for _, p := range []bus.Principal{leader, ringer, caller} {
			b := h.As(t, p)
			for _, topic := range bus.Topics() {
				sent, listened := b.Signal(ctx, bus.Signal{Topic: topic, Data: []byte("x")}), b.Listen(t.Context(), "", topic, "", func(bus.Signal) {})
				for what, c := range map[string]struct {
					err error
					may bool
				}{"send": {sent, topic.MaySend(p.Role)}, "listen to": {listened, topic.MayReceive(p.Role)}} {
					if c.may && c.err != nil || !c.may && !errors.Is(c.err, jobs.Forbidden) {
						t.Errorf("%s may %s %s: %t; the answer is %v", p.Actor(), what, topic, c.may, c.err)
					}
				}
			}
		}
	}},
	{"a signal without data is refused", func(t *testing.T, h Harness) {
		wantErr(t, h.As(t, leader).Signal(within(t), bus.Signal{Topic: bus.TopicLive}), jobs.BadInput, "an empty signal")
	}},
	{"a listener is called with one signal after the other, in order", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		inside := make(chan struct{}, 1)
		got, ended := make([]string, 0, 300), make(chan struct{})
		err := node.Listen(t.Context(), "*", bus.TopicLog, "", func(s bus.Signal) {
			select {
			case inside <- struct{}{}:
			default:
				t.Error("called while a call was going on")
			}
			got = append(got, string(s.Data))
			<-inside
			if len(got) == 300 {
				close(ended)
			}
		})
		must(t, err, "listen")
		for i := range 300 {
			say(t, worker, bus.TopicLog, "", "", fmt.Sprint(i))
		}
		come(t, ended, "the last signal")
		for i, text := range got {
			if text != fmt.Sprint(i) {
				t.Fatalf("signal %d was %s", i, text)
			}
		}
	}},
	{"a listener that hangs holds nobody up", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		free := make(chan struct{})
		defer close(free)
		must(t, node.Listen(t.Context(), "*", bus.TopicLog, "", func(bus.Signal) { <-free }), "listen")
		quick := heard(t, node, "*", bus.TopicLog, "")
		for i := range 100 {
			say(t, worker, bus.TopicLog, "", "", fmt.Sprint(i))
		}
		for i := range 100 {
			hears(t, quick, "the quick listener", fmt.Sprint(i))
		}
	}},
	{"Listen ends with its context", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		ctx, cancel := context.WithCancel(t.Context())
		count := make(chan bus.Signal, 100)
		must(t, worker.Listen(ctx, "", bus.TopicLive, "", func(s bus.Signal) { count <- s }), "listen")
		stays := heard(t, worker, "", bus.TopicLive, "")
		say(t, node, bus.TopicLive, "default", "", "before")
		hears(t, stays, "who stays", "before")
		hears(t, count, "who goes", "before")
		cancel()
		say(t, node, bus.TopicLive, "default", "", "after")
		hears(t, stays, "who stays", "after")
		if len(count) != 0 {
			t.Fatal("a signal came after the listener's context had ended")
		}
	}},
}
