package bus

import (
	"context"
	"strconv"
)

// ServiceIn is where the leader of a term answers what is asked of a service: it and no other. Of several who serve the
// same one may be frozen, or cut off from all but the bus, and each of them gets its share of the calls.
func ServiceIn(service string, term uint64) string {
	return service + "." + strconv.FormatUint(term, 10)
}

// InTerm are the calls of a leader: what it serves it serves for all who ask for the service, and for those who ask for
// its term.
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
