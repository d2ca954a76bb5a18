//go:build !nextrules

package kernel

// ApplyVersion is the newest version of the rules that this program supports. A build with the tag nextrules supports
// one more, which exists only for tests of upgrades: one field, one command and one changed rule (next_on.go).
const ApplyVersion = FirstApplyVersion

type (
	nextCreate struct{}
	nextRun    struct{}
)

func wireNextCreate(*coder, *Create) {}
func wireNextRun(*coder, *Run)       {}

func wireNextCommand(*coder, Verb, *Command) bool { return false }
