//go:build nextrules

package busstore

import "github.com/carillon-scheduler/carillon/internal/kernel"

// The command that builds with the tag nextrules have more is for clients, which tests of upgrades are.
func init() { mayCommand[kernel.VerbAnnotate] = clients }
