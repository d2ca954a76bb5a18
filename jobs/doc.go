// Package jobs is what the author of a job writes and calls: jobs and their options, requests for runs, and what a
// handler can do while it runs.
//
// Start with [RecurringJob] and [TriggeredJob], which a type of yours implements; [NewRecurring] and [NewTriggered],
// which make a [Job] of it for a worker; and [Trigger], which enqueues runs from any program. In a handler, [Log],
// [Progress], [Save], [Load], [Result] and [Attempt] take its context.
//
// Sharp edges: a handler can be called again after a crash, so it must be idempotent or check [Attempt]; its context
// ends with a cause, see [ErrTimeout]; a zero field of [Options] means "the default", and [None] means "none".
package jobs
