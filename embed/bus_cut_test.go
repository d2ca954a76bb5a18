package embed_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A node that knows a leader, but gets none of its messages over the bus, says that the bus is cut.
func TestReadyNamesTheBus(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	next := three(t, func(p *place) { p.Routes, p.Number = p.Routes[p.Number:p.Number+1], 0 }) // each knows only its own
	next().start(t)
	alone := next()
	alone.start(t)
	eventually(t, "the node says that the bus is cut", func() bool {
		err := alone.node.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "the bus does not carry its messages")
	})
}
