// Package dispatch is the protocol by which a leader has workers run what it has started: both ends as step functions
// without clocks, goroutines or messages, so that a test can explore every order of events. Start with Sender, the
// leader's end, and Receiver, the worker's.
//
// The leader commits that an attempt is a worker's, then pushes it. The worker answers before it begins. A push without
// an answer is repeated to the same process of the same worker as the same attempt; what takes an attempt back is the
// worker's own refusal or an expired lease. Rule has the rules that make this safe, each with what happens without it.
package dispatch

import (
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Run names a run. Clients may choose a run's ID, so that those of two tenants may be the same.
type Run struct {
	Tenant jobs.Tenant
	ID     jobs.ID
}

// Attempt names an attempt of a run. Numbers of attempts only grow.
type Attempt struct {
	Run
	N uint32
}

// Worker names one start of a worker.
type Worker struct {
	Tenant jobs.Tenant
	Name   string
}

// Rule is a rule of the protocol.
type Rule uint8

// The rules. Tests switch single ones off, to show what each is for.
const (
	// FirstOnly: that no process received a push proves that the attempt never begins only if it is the first push of
	// the attempt. An earlier one may still arrive.
	FirstOnly Rule = iota
	// Fresh: a push is accepted only within two thirds of a lease since the worker sent the last heartbeat that the
	// leader had received, and its handler begins only within a lease since the last one that was answered. Pushes
	// delayed for longer may be of attempts that have expired, and so may attempts whose process stood still after it
	// had answered.
	Fresh
	// Sure: a leader pushes only while it has confirmed within a third of a lease that it leads. Workers that cannot
	// reach the new leader would otherwise go on to receive attempts that the new leader has let expire.
	Sure
	// Grant: a new leader lets leases run for a third longer, because the one before may have renewed them that much
	// after the new one was elected.
	Grant
	// Once: a worker remembers for two leases which attempts it has ended or refused, and begins none of them.
	Once
	// AnswerFirst: the answer to a push is sent before a handler begins, so that a run that ends its worker's process
	// counts as one that began.
	AnswerFirst
	// Reserve: a slot is taken when a start is proposed, not when it is committed: two entries in flight cannot use it.
	Reserve
	// Repeat: an attempt that a worker's heartbeat does not name, and that was not answered, is pushed again.
	Repeat
	// Renew: pushing again renews the lease.
	Renew
	// Unstart: a refused attempt is taken back. Its number is spent, so that late copies of its push begin nothing.
	Unstart
	// Certain: a cancel is acknowledged when its attempt has begun, by its worker's word, or never does. A push may be on
	// its way.
	Certain

	numRules
)

// String returns the rule's name.
func (r Rule) String() string {
	return [numRules]string{"FirstOnly", "Fresh", "Sure", "Grant", "Once", "AnswerFirst", "Reserve", "Repeat", "Renew", "Unstart", "Certain"}[r]
}

// rules are those that are off: none, but in tests.
type rules uint16

func (r rules) off(of Rule) bool { return r&(1<<of) != 0 }

// sabotaged returns the rules that a build for tests of the judge turns off.
func sabotaged() (r rules) {
	for rule, m := range map[Rule]sabotage.Mechanism{FirstOnly: sabotage.FirstOnly, Fresh: sabotage.Fresh, Once: sabotage.Once, Repeat: sabotage.Repeat, Unstart: sabotage.Unstart} {
		if sabotage.Off(m) {
			r |= 1 << rule
		}
	}
	return r
}
