// Package httpjob runs jobs whose work is a chain of HTTP requests: what they call needs no library of ours.
//
// Where to start: [Runner.Run] is given to worker.Config.Others, and [Runner.Jobs] to the same worker; embed.Config.HTTPJobs
// does both. What a job says is read by httpspec.
//
// Sharp edges: by default nothing is called that is not public ([Guard]); a run whose call was blocked fails with the
// code blocked_address, and is not tried again. The outcome of an asynchronous job is asked for at its checkUrl, and only
// where there is none do others call back ([Config].FeedbackURL). A target that does not answer is left alone for a while
// ([Breaker]).
// What is told of the end of a run is told by the worker that ended it: of one whose workers all died, nobody is told.
package httpjob
