//go:build nextrules

package kernel

import "github.com/carillon-scheduler/carillon/jobs"

// ApplyVersion is the newest version of the rules that this program supports: one more than a release, for tests of
// upgrades.
const ApplyVersion = FirstApplyVersion + 1

// A run may have a note: the new field, of the row and of the command that makes it.
type (
	nextCreate struct{ Note string }
	nextRun    struct{ Note string }
)

// VerbAnnotate is the verb of the new command.
const VerbAnnotate Verb = NewestVerb + 1

// Annotate changes the note of a live run: the new command.
type Annotate struct {
	ID   jobs.ID
	Note string
}

// Tests of upgrades are programs.
func init() { maySend[VerbAnnotate] = programs }

// Verb returns the verb of the command.
func (Annotate) Verb() Verb { return VerbAnnotate }

// Check validates the command.
func (c Annotate) Check() error { return checkRun(c.ID, "-", 1) }

func wireNextCreate(c *coder, k *Create) { later(c, ApplyVersion, &k.Note, text[string]) }

func wireNextRun(c *coder, run *Run) { later(c, ApplyVersion, &run.Note, text[string]) }

func wireNextCommand(c *coder, verb Verb, v *Command) bool {
	if verb != VerbAnnotate {
		return false
	}
	c.since(ApplyVersion)
	wireValue(c, v, func(c *coder, a *Annotate) { c.id(&a.ID); text(c, &a.Note) })
	return true
}
