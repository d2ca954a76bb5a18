package natsbus_test

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
)

// BenchmarkPush is one push after the other, over TCP, of one run and of many.
func BenchmarkPush(b *testing.B) {
	for _, size := range []int{200, 20_000} {
		for what, then := range map[string]func(){"": nil, ", and then": func() {}} {
			b.Run(fmt.Sprintf("bytes=%d%s", size, what), func(b *testing.B) {
				server := start(b, embedded.Config{})
				leader := connect(b, "", natsbus.Config{As: node, InProcess: server})
				taker := connect(b, server.URL(), natsbus.Config{As: worker})
				must(b, taker.Accept(b.Context(), here, func([]byte) ([]byte, func()) { return nil, then }))
				push := make([]byte, size)
				for b.Loop() {
					if _, err := leader.Push(b.Context(), here, push); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
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
