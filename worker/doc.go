// Package worker runs jobs: it registers them in a store, takes offers from a bus, claims them and calls the handlers.
//
//	w, err := worker.New(worker.Config{App: "billing"}, store, bus, jobs.NewRecurring(...), jobs.NewTriggered(...))
//	err = w.Run(ctx) // until ctx ends; then it drains
//
// Most programs get store and bus from a URL, by carillon.NewWorker.
//
// Where to start: [Config], then a run's way through the files: take.go (a slot first, then an offer, then the claim),
// execute.go (the handler, its deadline and how it may end), report.go (the result is stored). Then heartbeat.go
// (leases), cancel.go (requests to stop) and drain.go (leaving).
//
// Sharp edges. A handler must heed its context: nothing can stop one that does not, and it keeps its slot until it
// returns. After its context has ended, it saves checkpoints under context.WithoutCancel(ctx). A worker without answers
// to its heartbeats continues its runs, so for a while another worker may run the next attempt of the same run, unless
// the job has LeaseCancel; [jobs.Attempt] returns the number that tells attempts apart. The store decides on every
// result: a run that was taken from this worker cannot be finished by it.
package worker
