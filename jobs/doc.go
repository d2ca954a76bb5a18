// Package jobs is for authors of jobs: it defines jobs and their options, requests for runs, and the functions that a
// handler calls.
//
// Start with [RecurringJob] and [TriggeredJob], which your type implements; [NewRecurring] and [NewTriggered], which
// make a [Job] of it for a worker; and [Trigger], which enqueues runs from any program. In a handler, [Log],
// [Progress], [Save], [Load], [Result] and [Attempt] take its context.
//
// Sharp edges: a handler can be called again after a crash, so it must be idempotent or check [Attempt]; its context
// ends with a cause, see [ErrTimeout]; a zero field of [Options] has its default, and [None] sets it to nothing.
package jobs
