// Package bustest tests every bus: one case for each sentence that package bus promises.
//
// It is not promised to programs outside this module.
//
// An implementation has one test that calls [Run]:
//
//	func TestBus(t *testing.T) {
//		bustest.Run(t, func(t *testing.T) bustest.Harness { ... })
//	}
//
// Implementations may differ in what they can show (whether there is a server to stop, for one): the fields of a
// [Harness] state that, and the cases follow them, none is skipped. One that works in virtual time runs [Cases] in
// bubbles, too. No case sleeps: that something does not come is shown by something later that does.
package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

// Harness is a bus of its own for one case.
type Harness struct {
	// As opens the bus as a principal. It is called several times, and for the same principal, too. The harness closes
	// what it opened when the test ends.
	As func(t *testing.T, p bus.Principal) bus.Bus
	// Restart stops the bus's server, with all that it remembers, and starts it again; nil: there is no server.
	Restart func(t *testing.T)
}

// Case is one promise.
type Case struct {
	Name string
	Test func(t *testing.T, h Harness)
}

// Cases returns all promises.
func Cases() []Case {
	var all []Case
	all = append(all, pushCases...)
	all = append(all, signalCases...)
	all = append(all, callCases...)
	all = append(all, closeCases...)
	return append(all, restartCases...)
}

// Run tests a bus; open makes a new one for each case.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel() // most wait for a server
			c.Test(t, open(t))
		})
	}
}

// The principals that appear in the cases.
var (
	leader  = bus.Principal{Tenant: "default", Role: bus.Node, Name: "node-1"}
	second  = bus.Principal{Tenant: "default", Role: bus.Node, Name: "node-2"}
	ringer  = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w1.host-7", App: billing}
	other   = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w2", App: billing}
	foreign = bus.Principal{Tenant: "acme.eu", Role: bus.Worker, Name: "w1.host-7", App: billing}
	caller  = bus.Principal{Tenant: "default", Role: bus.Client, Name: "shop"}
)

// Principals returns the principals of the cases, for a server that must know its users beforehand.
func Principals() []bus.Principal {
	return []bus.Principal{leader, second, ringer, other, foreign, caller}
}

// Apps returns the apps whose runs workers take in the cases.
func Apps() []string { return []string{billing, "billing", "billing_eu", "Billing.eu-"} }

// billing is the app of most cases. It has a dot: names may.
const billing = "billing.eu"

// rings is the address of ringer.
var rings = bus.Address{Tenant: "default", App: billing, Worker: ringer.Name}

// patience is how long a case waits for an event: on a busy machine everything may stand still for seconds, also while
// a lost connection is tried again. In a bubble it costs nothing.
const patience = time.Minute

// attempt is how long one of several attempts waits for an answer that may have been lost.
const attempt = time.Second

// within is a context for what must happen.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// come returns what arrives on a channel, or ends the test.
func come[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("%s did not come within %v", what, patience)
		panic("not reached")
	}
}

// must ends the test if what was attempted did not succeed.
func must(t *testing.T, err error, what string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// wantErr ends the test if err is not (in the sense of errors.Is) what it should be.
func wantErr(t *testing.T, err, target error, what string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s: error is %v; it should be %v", what, err, target)
	}
}

func isDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

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
