// Package carillon runs jobs: on a schedule or when asked, on any number of machines, each run once or until it has
// succeeded, and remembered. One keyboard, many bells: a control plane decides when, workers ring, a bus carries
// the strokes, a store remembers.
//
// This package opens a worker or a client from the address of a bus, which is all that most programs need:
//
//	w, err := carillon.NewWorker("nats://127.0.0.1:4222", worker.Config{App: "billing"}, jobs.NewRecurring(...), ...)
//	err = w.Run(ctx)
//
//	c, err := carillon.Dial("nats://127.0.0.1:4222")
//	run, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"}, jobs.After(time.Hour))
//
// # The house
//
// Imports go down, never up. Each package says in its own first lines where to start in it.
//
//	cmd/carillon  embed  carillon                     programs, and this package
//	controlplane  worker  client  api  ui             what happens; none of them knows which store or bus it has
//	ops                                               one function for each thing that a person can do
//	memstore raftstore busstore | membus natsbus      bodies of stores and of buses
//	metastore                   | bus                 what a store promises     | what a bus promises
//	jobs  jobs/schedule                               what a job and a run are  | when one is due
//
// # One job's life
//
//  1. A worker registers its jobs: a definition each, in the store.
//  2. A due time comes (controlplane/fire.go), or a program, the API or a person asks: Fire or Create.
//  3. metastore.Apply, the only code that knows the rules, makes a run of it: Scheduled, or Enqueued if it is due.
//  4. At its gates it gets its slots, all or none; where one is full, it waits or is Skipped, as its job says.
//  5. The store has made it durable; only then is it announced (controlplane/announce.go), as an offer on the bus.
//  6. A worker with a free slot takes the offer (worker/take.go) and claims it: Processing, attempt 1. Of several that
//     claim, the store lets one have it. The number of the attempt fences all older ones.
//  7. The handler runs under its deadline (worker/execute.go). A heartbeat every three seconds keeps its lease.
//  8. The worker says how it ended: Succeeded, or Failed and, while retries are left, from step 5 again; else Terminated.
//  9. The freed slots go, in the same commit, to the next run that waits.
//  10. Whatever got lost on the way - a message, a worker, a leader - a sweep finds: the bus hints, the store decides.
//
// docs/life-of-a-job.md walks the same way with the code beside it.
package carillon
