package kernel

import (
	"time"
)

// Denied records refused requests in the audit: failed sign-ins, and what callers may not do. A node adds up those that
// repeat, so that a program that retries, or an attacker, does not push other entries out of the audit.
type Denied struct {
	List []Denial
}

// The limits of a Denied.
const (
	MaxDenials    = 64  // in one command
	MaxDenialText = 300 // of each text, in bytes
)

// Denial is the same request, refused for the same reason, once or more often.
type Denial struct {
	Actor  string // who, as far as it is known; "" = unknown
	Target string // what was requested, such as "sign-in" or "POST /api/v1/jobs/{key}/runs"
	From   string // address; of IPv6 the /64 network
	Why    string
	Times  uint64
	First  time.Time
	Last   time.Time
}

// Verb returns the verb of the command.
func (Denied) Verb() Verb { return VerbDenied }

// Check validates the denials.
func (c Denied) Check() error {
	if len(c.List) == 0 || len(c.List) > MaxDenials {
		return Invalid("%d refused requests, want 1 to %d", len(c.List), MaxDenials)
	}
	for _, d := range c.List {
		for _, text := range []string{d.Actor, d.Target, d.From, d.Why} {
			if len(text) > MaxDenialText {
				return Invalid("text of a refused request: %d bytes, want at most %d, in UTF-8", len(text), MaxDenialText)
			}
		}
		if d.Target == "" || d.Times == 0 || d.Last.Before(d.First) {
			return Invalid("a refused request has a target, a number, and a first time that is not after its last")
		}
	}
	return nil
}

// UnknownActor is the actor of the audit of a Denial without one.
const UnknownActor = "unknown"

func wireDenial(c *coder, d *Denial) {
	text(c, &d.Actor)
	text(c, &d.Target)
	text(c, &d.From)
	text(c, &d.Why)
	number(c, &d.Times)
	c.time(&d.First)
	c.time(&d.Last)
}

func wireDenied(c *coder, k *Denied) { list(c, &k.List, leastDenial, wireDenial) }

// leastDenial is the size of an empty Denial on the wire.
const leastDenial = 7
