// Package stdlog gives package log back what another package has changed when it was imported.
//
// It imports only the standard library: Go initializes packages by their path as soon as their imports are, so it
// comes before any module whose name follows ours, such as github.com/coreos/pkg.
package stdlog

import "log"

var flags, prefix, output = log.Flags(), log.Prefix(), log.Writer()

// Restore makes the standard logger the one that it was. It is for an init function, before a program has its turn.
func Restore() {
	log.SetFlags(flags)
	log.SetPrefix(prefix)
	log.SetOutput(output)
}
