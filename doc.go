// Package carillon runs jobs on a schedule or on request, on any number of machines. A control plane decides when runs
// start, workers run them, a bus carries the messages, and a store keeps every run.
//
// This package opens a worker or a client from the address of a bus, which is all that most programs need:
//
//	w, err := carillon.NewWorker("nats://127.0.0.1:4222", worker.Config{App: "billing"}, jobs.NewRecurring(...), ...)
//	err = w.Run(ctx)
//
//	c, err := carillon.Dial("nats://127.0.0.1:4222")
//	run, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"}, jobs.After(time.Hour))
//
// # Packages
//
// Imports go down, never up. Each package comment names where to start.
//
//	cmd/carillon  embed  carillon                     programs, and this package
//	controlplane  worker  client  api  ui             the scheduler, on any store and bus
//	ops                                               one function for each operation of people
//	memstore raftstore busstore | membus natsbus      implementations of stores and buses
//	metastore                   | bus                 interface of stores       | interface of buses
//	jobs  jobs/schedule                               jobs and runs             | due times
//
// # The life of a run
//
//  1. A worker registers its jobs: a definition each, in the store.
//  2. A due time comes (controlplane/fire.go), or a program, the API or a person enqueues a run: Fire or Create.
//  3. metastore.Apply, which has all rules of state changes, makes a run: Scheduled, or Enqueued if it is due.
//  4. The run gets a slot of each concurrency limit, all or none; if a limit is full, it waits or is Skipped, as the
//     job's settings require.
//  5. Once the store has made it durable, the leader announces it (controlplane/announce.go) as an offer on the bus.
//  6. A worker with a free slot takes the offer (worker/take.go) and claims it: Processing, attempt 1. If several
//     workers claim it, the store accepts one. The number of the attempt fences older attempts.
//  7. The handler runs under its deadline (worker/execute.go). A heartbeat every three seconds keeps its lease.
//  8. The worker reports the outcome: Succeeded; Failed, and back to step 5 while retries are left; or Terminated.
//  9. The freed slots go, in the same commit, to the next run that waits.
//  10. A sweep finds runs of lost messages, workers and leaders: the bus only hints, the store decides.
//
// docs/life-of-a-job.md describes each step with its code.
package carillon
