// Package httpjob runs jobs whose work is a chain of HTTP requests: what they call needs no library of ours.
//
// It is not promised to programs outside this module.
//
// Where to start: [Runner.Run] is given to worker.Config.Others, and [Runner.Jobs] to the same worker;
// embed.Config.HTTPJobs does both. Package httpspec reads the definitions.
//
// Sharp edges: by default only public addresses are called ([Guard]); a run whose call was blocked fails with the code
// blocked_address, and is not retried. The outcome of an asynchronous job is polled at its checkUrl; only without one
// do services call back ([Config].FeedbackURL). A target that does not answer is paused ([Breaker]). The worker that
// ends a run sends its notifications: if all its workers died, none are sent.
package httpjob
