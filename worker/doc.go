// Package worker runs jobs: it tells a store what it can run, takes offers from a bus, claims them and calls the
// handlers.
//
//	w, err := worker.New(worker.Config{App: "billing", Slots: 32}, store, bus, jobs.NewRecurring(...), jobs.NewTriggered(...))
//	err = w.Run(ctx) // until ctx ends; then it drains
//
// Most programs get store and bus from a URL, by carillon.NewWorker.
//
// Where to start: [Config], then one run's way through the files: take.go (a slot first, then an offer, then the
// claim), execute.go (the handler, its deadline and how it may end), report.go (telling the store). Beside it go
// heartbeat.go (staying alive in the leader's eyes), cancel.go (being told to stop) and drain.go (leaving).
//
// Sharp edges. A handler must heed its context: nothing can stop one that does not, and it keeps its slot until
// it returns. What it wants to keep for its next attempt when its context has ended, it saves under
// context.WithoutCancel(ctx). A worker that nobody answers goes on with what it runs, so for a while another
// worker may run the next attempt of the same run, unless the job says LeaseCancel; [jobs.Attempt] has the number
// that tells the two apart. And the store has the last word on every result: what was taken from this worker
// meanwhile cannot be finished by it.
package worker
