//go:build nextrules

package busstore

import "github.com/carillon-scheduler/carillon/internal/kernel"

// The command that builds with the tag nextrules add is for clients: tests of upgrades are clients.
func init() { mayCommand[kernel.VerbAnnotate] = clients }
