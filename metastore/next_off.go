//go:build !nextrules

package metastore

import "github.com/carillon-scheduler/carillon/internal/kernel"

// Behaviour that differs in a build with the tag nextrules, to test upgrades: see next_on.go, and package jobs.

func (c *change) applyNext() error {
	return kernel.Invalid("command %T is unknown to this program, which knows version %d of the rules", c.env.Command, kernel.ApplyVersion)
}

func (c *change) nextTally() bool { return false }

func nextCreate(*kernel.Run, kernel.Create) {}
