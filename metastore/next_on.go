//go:build nextrules

package metastore

import "github.com/carillon-scheduler/carillon/jobs"

func (c *change) applyNext() error {
	k, ok := c.env.Command.(jobs.Annotate)
	if !ok {
		return jobs.Invalid("command %T is unknown to this program, which knows version %d of the rules", c.env.Command, jobs.ApplyVersion)
	}
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	in := *row
	in.Note = k.Note
	c.tx.Put(&in)
	c.effect.Instances = append(c.effect.Instances, &in)
	return nil
}

// nextTally is the changed rule: attempts that begin are counted, too.
func (c *change) nextTally() bool { return c.inForce(jobs.ApplyVersion) }

// nextCreate needs no guard: a store lets no command have a note before the version is in force.
func nextCreate(in *jobs.Instance, k jobs.Create) { in.Note = k.Note }
