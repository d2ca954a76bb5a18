//go:build nextrules

package busstore

import "github.com/carillon-scheduler/carillon/jobs"

// The command that builds with the tag nextrules have more is for clients, which tests of upgrades are.
func init() { mayCommand[jobs.VerbAnnotate] = clients }
