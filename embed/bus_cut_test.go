package embed_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A node that knows a leader, but gets none of its messages over the bus, says that the bus is cut.
func TestReadyNamesTheBus(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	next := three(t, func(p *place) { p.Routes, p.Number = p.Routes[p.Number:p.Number+1], 0 }) // each knows only its own
	first := next()
	first.start(t)
	cfg, server, err := next().open()
	if err != nil {
		t.Fatal(err)
	}
	if server != nil {
		t.Cleanup(func() { _ = server.Stop() })
	}
	second, err := embed.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the node that does not lead says that the bus is cut", func() bool {
		return slices.ContainsFunc([]*embed.Scheduler{first.node, second}, func(node *embed.Scheduler) bool {
			err := node.Ready(t.Context())
			return err != nil && strings.Contains(err.Error(), "the bus does not carry its messages")
		})
	})
}
