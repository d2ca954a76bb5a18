package metastore

import (
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The rules have a version (kernel.ApplyVersion). A change of them is guarded by the one in force, which is part of
// the rows: programs of two versions compute the same until it is raised. The decisions here come before a commit.

// inForce reports whether a version of the rules, or a later one, is in force. Code that a version added checks this
// first.
//
//lint:ignore U1000 no version but the first has brought any, outside of builds with the tag nextrules
func (c *change) inForce(version uint32) bool {
	s := stateOf(c.tx)
	return s.InForce() >= version
}

func (c *change) finalizeUpgrade(k kernel.FinalizeUpgrade) error {
	s := stateOf(c.tx)
	was := s.InForce()
	if k.To <= was {
		c.effect.Existing = true
		return nil
	}
	s.ApplyVersion = k.To
	c.tx.Put(&s)
	c.audit("rules", fields{"version": was}, fields{"version": k.To})
	return nil
}

// Rules is what a committing store knows about the versions of the rules.
type Rules struct {
	Known uint32 // the newest that this program knows
	// InForce is the version in force, at least as of now if it is below needed.
	InForce func(needed uint32) (uint32, error)
	// MayRaise returns why the version cannot be raised yet; nil = it can be raised to Known.
	MayRaise func(to uint32) error
}

// Allowed refuses commands that may not be written under the version in force, passes on the rest, and puts the
// answers together. An older program could not read them, and would have to stop.
func (r Rules) Allowed(batch []kernel.Envelope, apply func([]kernel.Envelope) []Result) []Result {
	for i := range batch {
		if r.refuse(batch[i].Command) != nil {
			return sieve(batch, func(e *kernel.Envelope) (Result, bool) {
				err := r.refuse(e.Command)
				return Result{Err: err}, err != nil
			}, apply)
		}
	}
	return apply(batch)
}

func (r Rules) refuse(k kernel.Command) error {
	if k, ok := k.(kernel.FinalizeUpgrade); ok {
		switch {
		case r.MayRaise != nil:
			return r.MayRaise(k.To)
		case k.To > r.Known:
			return kernel.Refuse(jobs.Conflict, "not done: this program knows version %d of the rules, not version %d: start a newer program", r.Known, k.To)
		}
		return nil
	}
	inForce, err := r.InForce(kernel.FirstApplyVersion)
	if err != nil || inForce >= r.Known {
		return err
	}
	needed := kernel.Needs(k)
	if inForce < needed {
		inForce, err = r.InForce(needed)
	}
	if err == nil && inForce < needed {
		err = kernel.Refuse(jobs.Conflict, "not done: %s needs version %d of the rules, and version %d is in force until the upgrade of all nodes is finalized (carillon cluster finalize-upgrade)", k.Verb(), needed, inForce)
	}
	return err
}

// ErrTooOld is the error of a program that does not know the version of the rules under which its data was written.
var ErrTooOld = errors.New("this program is too old for its data")

// Readable returns ErrTooOld if a program that knows the rules up to a version cannot read what was written under
// another. Nothing must have been changed then.
func Readable(what string, written, known uint32) error {
	if written <= known {
		return nil
	}
	return fmt.Errorf("%w: %s was written under version %d of the rules, and this program knows version %d: start a program that knows version %d; nothing was changed",
		ErrTooOld, what, written, known, written)
}
