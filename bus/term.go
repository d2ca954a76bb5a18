package bus

import (
	"context"
	"strconv"
)

// ServiceIn returns the service by which only the leader of a term answers. Of several that serve the same service one
// may be frozen, or cut off from all but the bus, and each of them gets its share of the calls.
func ServiceIn(service string, term uint64) string {
	return service + "." + strconv.FormatUint(term, 10)
}

// InTerm returns the calls of a leader: it serves both the service and the service of its term.
func InTerm(c Calls, term uint64) Calls { return inTerm{c, term} }

type inTerm struct {
	Calls
	term uint64
}

func (t inTerm) Serve(ctx context.Context, service string, fn Handler) error {
	if err := t.Calls.Serve(ctx, ServiceIn(service, t.term), fn); err != nil {
		return err
	}
	return t.Calls.Serve(ctx, service, fn)
}
