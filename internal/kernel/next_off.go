//go:build !nextrules

package kernel

// ApplyVersion is the newest version of the rules that this program knows. A build with the tag nextrules knows one
// more, which exists for tests of upgrades alone: one field, one command and one changed rule (next_on.go).
const ApplyVersion = FirstApplyVersion

type (
	nextCreate struct{}
	nextRun    struct{}
)

func wireNextCreate(*coder, *Create) {}
func wireNextRun(*coder, *Run)       {}

func wireNextCommand(*coder, Verb, *Command) bool { return false }
