// Package kernel defines the rows that a store keeps, the commands that change them, the effects of commands, and the
// wire format of all three.
//
// Where to start: state.go (the table of states), run.go (the moves of a run), command.go (the commands), effect.go
// (their results), wire.go.
//
// Nothing here opens a file, a socket or a goroutine, and nothing reads a clock: time is an argument, fixed by the
// committer. One list of commands gives the same rows on every machine; the stores depend on it.
//
// Sharp edges: a row (Run, Definition, ...) is never changed in place once a store has it: copy it, change the copy,
// and put that back. Times are UTC, without a monotonic part. The package has no compatibility promise outside this
// module.
package kernel
