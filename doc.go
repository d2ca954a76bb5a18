// Package carillon runs jobs on a schedule or on request, on any number of machines. A control plane decides when runs
// start, workers run them, a bus carries the messages, and a store keeps every run.
//
// This package opens a worker or a client from the address of a bus, which is all that most programs need:
//
//	w, err := carillon.NewWorker("nats://127.0.0.1:4222", worker.Config{App: "billing"}, jobs.NewRecurring(...), ...)
//	http.Handle("/worker/", carillon.Handler(w, carillon.HandlerConfig{})) // optional: a page of this worker
//	err = w.Run(ctx)
//
//	c, err := carillon.Dial("nats://127.0.0.1:4222")
//	run, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"}, jobs.After(time.Hour))
//
// # Packages
//
// A package imports only packages of lower lines. Each package comment names where to start.
//
//	cmd/carillon  embed  carillon                     programs, and this package
//	controlplane  worker  client  api  ui             the scheduler, on any store and bus
//	ops                                               one function for each operation of users
//	memstore replica raftstore busstore | membus natsbus      implementations of stores and buses
//	metastore                   | bus                 interface of stores       | interface of buses
//	jobs  jobs/schedule                               jobs and runs             | due times
//
// # The life of a run
//
//  1. A worker registers its jobs: a definition each, in the store.
//  2. A due time arrives (controlplane/fire.go), or a program, the API or a user enqueues a run: Fire or Create.
//  3. The store applies the command by metastore.Apply, which has all rules, and creates a run: Scheduled, or Enqueued
//     if it is due.
//  4. The run gets a slot of each concurrency limit, all or none; if a limit is full, it waits or is Skipped, as the
//     job's settings require.
//  5. The leader starts the run on a worker with a free slot (controlplane/start.go): Processing, attempt 1. The number of
//     the attempt fences older attempts.
//  6. After that commit, the leader pushes the run to the worker, which answers before it begins (worker/accept.go).
//  7. The handler runs until its deadline at most (worker/execute.go). A heartbeat every three seconds renews its lease.
//  8. The worker reports the outcome: Succeeded; Failed, and back to step 5 while retries are left; or Terminated.
//  9. The freed slots go, in the same commit, to the next run that waits.
//  10. What is lost is repaired: an unanswered push is repeated, an expired lease ends the attempt, and a sweep of the
//     store finds ready runs that the leader does not know.
//
// docs/life-of-a-job.md describes each step with its code.
package carillon
