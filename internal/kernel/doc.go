// Package kernel has the rows that a store keeps, the commands that change them, the effects that tell of it, and how
// all three are written on the wire.
//
// Nothing here opens a file, a socket or a goroutine, and nothing reads a clock: time is an argument, fixed by the
// committer. One list of commands gives the same rows on every machine; the stores depend on it.
//
// Where to start: state.go (the table of states), run.go (the moves of a run), command.go (what a store can be asked),
// effect.go (what it answers), wire.go.
//
// Sharp edges: a row (Run, Definition, ...) is never changed in place once a store has it; copy it, change the copy, put
// that back. Times are UTC, without a monotonic part. The package is not promised to programs outside this module.
package kernel
