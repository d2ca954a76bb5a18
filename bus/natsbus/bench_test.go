package natsbus_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
)

var (
	node    = bus.Principal{Tenant: "default", Role: bus.Node, Name: "node-1"}
	worker  = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w1", App: "billing"}
	billing = bus.Lane{Tenant: "default", App: "billing"}
)

func list(n int) []bus.Offer {
	l := make([]bus.Offer, n)
	for i := range l {
		l[i] = bus.Offer{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "billing.charge"}
	}
	return l
}

// BenchmarkOffer is one leader that offers, and no worker that takes.
func BenchmarkOffer(b *testing.B) {
	for _, size := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("lists=%d", size), func(b *testing.B) {
			leader := connect(b, "", natsbus.Config{As: node, InProcess: start(b, embedded.Config{})})
			queue, err := leader.Open(b.Context(), 1)
			if err != nil {
				b.Fatal(err)
			}
			lists := slices.Repeat([][]bus.Offer{list(size)}, 1000)
			for b.Loop() {
				if err := leader.Offer(b.Context(), queue, billing, lists...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(b.N*size)*1000/b.Elapsed().Seconds(), "offers/s")
		})
	}
}

// BenchmarkThrough is a leader that offers while one worker, with four Takes under way, takes and acknowledges.
func BenchmarkThrough(b *testing.B) {
	for _, size := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("lists=%d", size), func(b *testing.B) {
			server := start(b, embedded.Config{})
			leader := connect(b, "", natsbus.Config{As: node, InProcess: server})
			taker := connect(b, server.URL(), natsbus.Config{As: worker})
			queue, err := leader.Open(b.Context(), 1)
			if err != nil {
				b.Fatal(err)
			}
			const at = 1000
			lists := slices.Repeat([][]bus.Offer{list(size)}, at)
			took := make(chan int, 64)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for {
						l, done, err := taker.Take(b.Context(), queue, billing, 512)
						if b.Context().Err() != nil {
							return
						}
						if err == nil {
							done()
							took <- len(l)
						}
					}
				})
			}
			sent, came := 0, 0
			for b.Loop() {
				if err := leader.Offer(b.Context(), queue, billing, lists...); err != nil {
					b.Fatal(err)
				}
				sent += at * size
				for sent-came > 4*at*size { // a leader's window is bounded
					came += <-took
				}
			}
			for came < sent {
				came += <-took
			}
			b.ReportMetric(float64(sent/size)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "offers/s")
		})
	}
}

// BenchmarkLatency is the time from Offer to a Take that waits, one at a time, over TCP.
func BenchmarkLatency(b *testing.B) {
	server := start(b, embedded.Config{})
	leader := connect(b, server.URL(), natsbus.Config{As: node})
	taker := connect(b, server.URL(), natsbus.Config{As: worker})
	queue, err := leader.Open(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	if err := leader.Offer(b.Context(), queue, billing); err != nil {
		b.Fatal(err)
	}
	came := make(chan time.Time, 1)
	go func() {
		for {
			_, done, err := taker.Take(b.Context(), queue, billing, 100)
			if b.Context().Err() != nil {
				return
			}
			if err == nil {
				came <- time.Now()
				done()
			}
		}
	}()
	var took []time.Duration
	one := list(1)
	for b.Loop() {
		began := time.Now()
		if err := leader.Offer(b.Context(), queue, billing, one); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-came).Sub(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkCall is one question after the other, over TCP.
func BenchmarkCall(b *testing.B) {
	server := start(b, embedded.Config{})
	leader := connect(b, server.URL(), natsbus.Config{As: node})
	asker := connect(b, server.URL(), natsbus.Config{As: worker})
	if err := leader.Serve(b.Context(), bus.ServiceStore, echo); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := asker.Call(b.Context(), bus.ServiceStore, []byte("hello")); err != nil {
			b.Fatal(err)
		}
	}
}
