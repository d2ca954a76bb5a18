//go:build nextrules

package metastore

import "github.com/carillon-scheduler/carillon/internal/kernel"

func (c *change) applyNext() error {
	k, ok := c.env.Command.(kernel.Annotate)
	if !ok {
		return kernel.Invalid("command %T is unknown to this program, which knows version %d of the rules", c.env.Command, kernel.ApplyVersion)
	}
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	run := *row
	run.Note = k.Note
	c.put(&run)
	c.effect.Runs = append(c.effect.Runs, &run)
	return nil
}

// nextTally is the changed rule: attempts that begin are counted, too.
func (c *change) nextTally() bool { return c.inForce(kernel.ApplyVersion) }

// nextCreate needs no guard: a store accepts no command with a note before the version is in force.
func nextCreate(run *kernel.Run, k kernel.Create) { run.Note = k.Note }
