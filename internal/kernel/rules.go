package kernel

// The rules are the effects of commands on rows, and the existing commands, fields and values. All members of a cluster
// must follow the same ones, so the rules have a version. A program supports every version up to ApplyVersion; the one
// in force is StoreRow.ApplyVersion, part of the replicated rows. See docs/change-a-rule.md.
// force is StoreRow.ApplyVersion, part of the replicated rows. See docs/change-a-rule.md.

// FirstApplyVersion is in force in a store until FinalizeUpgrade raises it.
const FirstApplyVersion uint32 = 1

// FinalizeUpgrade puts a version of the rules in force, for good: a program that does not support it can no longer read
// the store. A store refuses it while a member does not support that version. Existing if it, or a later one, is in
// force.
type FinalizeUpgrade struct{ To uint32 }

// Verb returns the verb of the command.
func (FinalizeUpgrade) Verb() Verb { return VerbFinalizeUpgrade }

// Check validates the version.
func (c FinalizeUpgrade) Check() error {
	if c.To < FirstApplyVersion {
		return Invalid("invalid version %d of the rules: want at least %d", c.To, FirstApplyVersion)
	}
	return nil
}

// Needs returns the version of the rules that must be in force before a command may be written: the one that added its
// verb, or a field that it sets.
func Needs(k Command) uint32 {
	c := coder{needs: FirstApplyVersion}
	wireCommand(&c, &k)
	return c.needs
}
