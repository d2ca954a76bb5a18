package kernel

// The rules are what a command does to rows, and which commands, fields and values there are. All members of a cluster
// must follow the same ones, so the rules have a version. A program knows every version up to ApplyVersion; the one in
// force is StoreRow.ApplyVersion, part of the replicated rows. See docs/change-a-rule.md.

// FirstApplyVersion is in force in a store until FinalizeUpgrade raises it.
const FirstApplyVersion uint32 = 1

// FinalizeUpgrade puts a version of the rules in force, for good: a program that does not know it can no longer read the
// store. A store refuses it while a member does not know that version. Existing if it is in force, or a later one is.
type FinalizeUpgrade struct{ To uint32 }

// Verb of the command.
func (FinalizeUpgrade) Verb() Verb { return VerbFinalizeUpgrade }

// Check says what is wrong with the version.
func (c FinalizeUpgrade) Check() error {
	if c.To < FirstApplyVersion {
		return Invalid("version %d of the rules: versions begin with %d", c.To, FirstApplyVersion)
	}
	return nil
}

// Needs is the version of the rules that must be in force before a command may be written: the one that brought its verb,
// or a field that it sets.
func Needs(k Command) uint32 {
	c := coder{needs: FirstApplyVersion}
	wireCommand(&c, &k)
	return c.needs
}
