// Package jobs says what a job is: its definition, its runs, and the moves a run may make.
//
// It is the ground floor. Nothing here opens a file, a socket or a goroutine, and nothing reads a clock: time
// comes in as an argument, already agreed upon by whoever commits. So one list of commands gives the same
// rows on every machine, which is what the stores rest on.
//
// Where to start:
//   - to write a job: [RecurringJob], [TriggeredJob], [NewRecurring], [NewTriggered], [Options]
//   - to start one from afar: [Trigger]
//   - to see what may happen to a run: state.go (the table of states) and run.go (the moves)
//   - to see what can be asked of a store: command.go, and what it answers: effect.go
//
// Sharp edges: a row ([Run], [Definition], ...) is never changed in place once a store holds it; copy,
// change the copy, put that back. Times are UTC, without a monotonic part. Durations are time.Duration.
package jobs
