// Package worker runs jobs: it registers them in a store, accepts the runs that the leader pushes over a bus, calls the
// handlers and reports the results.
//
//	w, err := worker.New(worker.Config{App: "billing"}, store, bus, jobs.NewRecurring(...), jobs.NewTriggered(...))
//	err = w.Run(ctx) // until ctx ends; then it drains
//
// Most programs get store and bus from a URL, by carillon.NewWorker.
//
// Where to start: [Config], then the files in the order of a run: accept.go (which pushed runs begin here), execute.go
// (the handler and its deadline), report.go (the result). Then heartbeat.go (leases), cancel.go (requests to stop),
// drain.go (shutdown) and remote.go (workers that poll over HTTP).
//
// Sharp edges. A handler must return when its context ends: a worker cannot stop it, and it keeps its slot until it
// returns. After its context has ended, a handler saves checkpoints with context.WithoutCancel(ctx). A worker whose
// heartbeats get no answer continues its runs, so another worker may run the next attempt of the same run meanwhile,
// unless the job has LeaseCancel; [jobs.Attempt] returns the number of the attempt. The store refuses the result of an
// attempt that lost its lease.
package worker
