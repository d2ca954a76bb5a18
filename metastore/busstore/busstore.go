// Package busstore is a store at the other end of a bus: [New] makes a [metastore.Store] of calls, and [Serve]
// answers them from a real one. So a worker or a program needs the address of the bus and nothing else.
//
// The courier carries words and decides nothing, but for one thing: who may say them. The server takes tenant and
// actor from the connection and holds a table of commands and roles (authority.go).
//
// Sharp edges. A batch too large for one message becomes several commits. An answer that was lost on the way is
// asked for again with the same words, so Effect.Existing may be set although the command was this caller's and
// new. Workers and clients are answered with less than nodes (see trim).
package busstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// patience is how long words are repeated. Stores answer repetitions for twice as long (metastore: KeepFinal).
	patience = 30 * time.Second
	// attempt is how long a call of a command may take before it is sent again. After so many of those, each next one
	// may take twice as long.
	attempt, soon = 3 * time.Second, 3
	// Between calls that brought nothing, the client waits from the one to the other, doubling.
	firstPause, longestPause = 20 * time.Millisecond, 500 * time.Millisecond
	// inFlight is how many requests of commands one client has under way, if they are large: small ones wait for each
	// other and grow (see metastore.Group). With small ones side by side, 256 callers got 20k to 57k commands a second
	// through instead of 90k.
	inFlight = 3
	// maxCommands is the most commands in a request, whatever its bytes.
	maxCommands = 4096
)

// store is the client's side.
type store struct {
	calls bus.Calls
	as    bus.Principal
	group *metastore.Group
	wait  time.Duration // for the first answers: attempt
	heard atomic.Pointer[heard]
	plain atomic.Bool // receipts are not asked for: this end is a node, or whoever serves is older than they are
}

// New makes a store of the calls of a bus. as is who this end is: envelopes and queries that name no tenant or
// actor are given its own. Concurrent callers of Apply share requests.
func New(calls bus.Calls, as bus.Principal) metastore.Store {
	s := &store{calls: calls, as: as, wait: attempt}
	s.plain.Store(as.Role == bus.Node)
	s.group = metastore.NewGroup(maxCommands, inFlight, s.commit)
	return s
}

// Apply sends the batch to whoever serves the store, and repeats it until it is answered, ctx ends or half a minute
// is over. Commands that nobody took are then refused as jobs.Unavailable; of those that may have been taken, the
// outcome is jobs.Unknown.
func (s *store) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Checked(s.signed(batch), func(batch []kernel.Envelope) []metastore.Result { return s.group.Apply(ctx, batch) })
}

// signed fills in who asks, in a copy if need be.
func (s *store) signed(batch []kernel.Envelope) []kernel.Envelope {
	whole := true
	for i := range batch {
		whole = whole && batch[i].Tenant != "" && batch[i].Actor != ""
	}
	if whole {
		return batch
	}
	batch = append([]kernel.Envelope(nil), batch...)
	for i := range batch {
		if batch[i].Tenant == "" {
			batch[i].Tenant = s.as.Tenant
		}
		if batch[i].Actor == "" {
			batch[i].Actor = s.as.Actor()
		}
	}
	return batch
}

// commit carries one commit's commands until each has its answer. It outlives the callers, who may lose patience
// earlier: their commands are under way all the same.
func (s *store) commit(batch []kernel.Envelope) []metastore.Result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n := len(batch)
	d := delivery{store: s, batch: batch, open: make([]int, n), maybe: make([]bool, n)}
	for i := range d.open {
		d.open[i] = i
	}
	d.carry(ctx)
	return d.results
}

// delivery is a commit's commands on their way.
type delivery struct {
	store   *store
	batch   []kernel.Envelope
	results []metastore.Result // nil until there is one
	open    []int              // those without a final answer, in order
	maybe   []bool             // by command: it may have been done
	closed  bool               // our end of the bus: nothing more can be sent
}

// carry goes round until everything is answered or time is up.
func (d *delivery) carry(ctx context.Context) {
	var p pause
	for tries := 0; ; tries++ {
		before := len(d.open)
		d.round(ctx, tries)
		if len(d.open) == 0 || d.closed {
			return
		}
		if len(d.open) < before {
			p, tries = pause{}, 0
			continue
		}
		if !p.wait(ctx) {
			return
		}
	}
}

// round sends what is open, in as many requests as it takes. It stops at the first that is not answered, so that
// the order is kept.
func (d *delivery) round(ctx context.Context, tries int) {
	open := d.open
	d.open = nil
	for len(open) > 0 {
		plain := d.store.plain.Load()
		request, n := d.request(open, plain)
		if n == 0 {
			d.result(open[0]).Err = kernel.Invalid("the command has %d bytes on the wire, the bus carries %d", len(request), d.store.calls.Limit())
			open = open[1:]
			continue
		}
		asking := time.Now()
		answers, err := d.store.call(ctx, request, tries)
		code := refusal(err)
		if code == jobs.BadInput && !plain { // whoever serves does not know of receipts, most likely
			d.store.plain.Store(true)
			continue
		}
		asked := open[:n]
		open = open[n:]
		switch {
		case err == nil:
			if err = d.answered(asked, answers, asking); err == nil {
				continue
			}
			d.doubtful(asked, kernel.Refuse(jobs.Unknown, "outcome unknown: %v", err))
		case errors.Is(err, bus.ErrNobody), code == jobs.Unavailable:
			d.undone(asked, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		case code != jobs.Unknown: // the server's word about the whole request
			for _, i := range asked {
				d.result(i).Err = err
			}
			continue
		default:
			d.closed = errors.Is(err, bus.ErrClosed)
			d.doubtful(asked, kernel.Refuse(jobs.Unknown, "outcome unknown: %v", err))
		}
		d.undone(open, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		return
	}
}

// request is the wire form of as many of the commands as one message holds; 0 of them if not even the first fits.
func (d *delivery) request(open []int, plain bool) ([]byte, int) {
	ask := askBrief
	if plain {
		ask = askApply
	}
	n := min(len(open), maxCommands)
	for {
		part := d.batch
		if n < len(d.batch) {
			part = make([]kernel.Envelope, n)
			for i := range part {
				part[i] = d.batch[open[i]]
			}
		}
		b := appendApply(make([]byte, 0, 64+160*n), ask, part)
		switch {
		case len(b) <= d.store.calls.Limit():
			return b, n
		case n == 1:
			return b, 0
		}
		n /= 2
	}
}

// answered notes the answers to the commands of one request. Those that are missing did not fit, those that say
// "unknown" or "unavailable" are not answers: both are asked for again.
func (d *delivery) answered(asked []int, answers []byte, asking time.Time) error {
	results, now, err := decodeAnswers(answers, len(asked))
	if err != nil {
		return err
	}
	d.store.heard.Store(&heard{now, asking})
	if d.results == nil && len(results) == len(d.batch) && !slices.ContainsFunc(results, unanswered) {
		d.results = results // as mostly
		return nil
	}
	for k, i := range asked[:len(results)] {
		switch r := results[k]; refusal(r.Err) {
		case jobs.Unknown:
			d.doubtful(asked[k:k+1], r.Err)
		case jobs.Unavailable:
			d.undone(asked[k:k+1], r.Err)
		default:
			*d.result(i) = r
		}
	}
	d.doubtful(asked[len(results):], kernel.Refuse(jobs.Unknown, "outcome unknown: the answer has not come"))
	return nil
}

// unanswered says that an answer is none.
func unanswered(r metastore.Result) bool {
	code := refusal(r.Err)
	return code == jobs.Unknown || code == jobs.Unavailable
}

// result is where the answer to a command is noted.
func (d *delivery) result(i int) *metastore.Result {
	if d.results == nil {
		d.results = make([]metastore.Result, len(d.batch))
	}
	return &d.results[i]
}

// undone keeps commands open that were surely not done this time.
func (d *delivery) undone(which []int, err error) {
	for _, i := range which {
		if !d.maybe[i] {
			d.result(i).Err = err
		}
	}
	d.open = append(d.open, which...)
}

// doubtful keeps commands open that may have been done.
func (d *delivery) doubtful(which []int, err error) {
	for _, i := range which {
		d.maybe[i], d.result(i).Err = true, err
	}
	d.open = append(d.open, which...)
}

// call asks once. The first times it waits for a few seconds: of the nodes that serve, one may be frozen or cut off,
// and the bus will go on asking that one in turn until it notices. Then longer: a store under load is not helped by
// being asked more often.
func (s *store) call(ctx context.Context, request []byte, tries int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait<<min(max(tries+1-soon, 0), 3))
	defer cancel()
	if verb(request[1]).commands() {
		until, _ := ctx.Deadline()
		s.heard.Load().deadline(until).put(request[2:])
	}
	return s.calls.Call(ctx, bus.ServiceStore, request)
}

func refusal(err error) jobs.Code {
	if err == nil {
		return ""
	}
	return jobs.CodeOf(err)
}

// pause is the wait between calls that brought nothing. It is spread, so that the workers of a fallen leader do not
// all come back at once.
type pause struct{ next time.Duration }

// wait is false when ctx ended first.
func (p *pause) wait(ctx context.Context) bool {
	p.next = min(max(firstPause, 2*p.next), longestPause)
	t := time.NewTimer(p.next/2 + rand.N(p.next/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
