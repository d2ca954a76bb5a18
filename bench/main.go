// Command bench measures Carillon as its users meet it: a server process, worker processes and a client, over
// loopback, with the durable store. Beside it, and at turns with it, it measures River on PostgreSQL and asynq on
// Redis in the same way: the servers are started in temporary directories, a worker process runs handlers that only
// count, this process enqueues. Each measurement prints one JSON line.
//
//	go run . short       ours and the peers, in about five minutes; writes docs/benchmarks-tables.md
//	go run . full        everything, in about an hour and a half; writes docs/benchmarks-tables.md
//	go run . full peers  one part of it, within a quarter of an hour; the other parts keep what was measured before
//	go run . databases   rows in PostgreSQL and MariaDB, beside River, in 15 minutes; writes docs/benchmarks-tables.md
//	go run . history     every page and list with ten million finished runs, in 20 minutes; writes docs/benchmarks-tables.md
//	go run . peers       -systems "carillon,river tuned" -measures x1,second1000 -rounds 3
//	go run . soak        half of the peak load for an hour or -for: what grows; writes docs/benchmarks-tables.md
//	go run . table full  writes docs/benchmarks-tables.md from the lines of earlier runs
//
// Ours alone:
//
//	go run . batch       enqueue in bulk to the final state, jobs/s
//	go run . latency     enqueue to start at 200 jobs/s
//	go run . delayed     how late 2,000 delayed jobs start
//	go run . flood       a million runs and no worker: messages, and the first start once there is one
//	go run . heap        100,000 delayed runs and 10,000 jobs: heap, and restart to the first fire
//	go run . http        runs of an HTTP job, a small request each, by carillon worker
//	go run . onekey      1,000 runs of one job through one slot
//	go run . uneven      two workers, of which one is ten times slower
//	go run . deadhost    three workers under load, of which one's machine dies
//	go run . tenants     one tenant's ten runs a second, alone and while another one enqueues a million
//	go run . flooded     one app's ten runs a second while another one enqueues 200,000 at once
//	go run . pages       how fast pages are with a million finished runs, and what 200 dashboards cost
//	go run . lists       every page and list with ten million finished runs; listsdb: of a database
//	go run . definitions a million recurring jobs: to register, to keep, to start again with
//	go run . idle        what the server costs with 100,000 jobs of which none is due
//	go run . finished    ten million finished runs: what they weigh, and whether the last are as fast as the first
//	go run . sizes       throughput by the number of runs in a call; payloads: by the bytes of a run; backlog: by what waits
//	go run . takeover    a million unfinished runs, with -database: until another process leads them
//	go run . tenmillion  in PostgreSQL: the same work before and after ten million finished runs are in the table
//	go run . held        with -database: requests while another transaction holds a snapshot for ten minutes
//	go run . all         the quicker ones of them
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

var (
	memory      = flag.Bool("memory", false, "use the memory store")
	store       = flag.String("database", "postgres", "of scenarios that are about one: postgres or mariadb")
	count       = flag.Int("n", 0, "how many jobs (default: the scenario's)")
	slots       = flag.Int("slots", 0, "slots of the worker; 0 = no limit")
	profile     = flag.String("profile", "", "write CPU profiles of the client, the worker and the server's first 20 seconds to this directory")
	verbose     = flag.Bool("v", false, "show what the processes log")
	callers     = flag.Int("callers", 4, "batch: how many enqueue at the same time")
	size        = flag.Int("size", 1000, "batch: runs in one call")
	among       = flag.String("systems", "carillon,river tuned,asynq tuned", "peers: which systems take turns, with commas between them")
	which       = flag.String("measures", "batch,x16,latency200,delayed", "peers: what each does at its turn")
	times       = flag.Int("rounds", 3, "peers: how many turns each has")
	length      = flag.Duration("for", time.Hour, "soak: how long")
	pace        = flag.Int("rate", 0, "soak: runs a second; 0 = half of what goes through just before")
	only        = flag.String("pages", "", "lists: only pages with this in their names")
	workerCount = flag.Int("workers", 1, "peers: worker processes")
)

// lateGC is how late garbage is collected in what makes and does jobs, this process and workers of every system alike:
// a worker that keeps nothing has a heap of a few MiB, and Go's default would be measured for collecting it all the
// time.
const lateGC = 400

func main() {
	flag.Parse()
	if err := begin(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func begin() error {
	if address := os.Getenv(natsEnv); address != "" {
		return beNATS(address)
	}
	debug.SetGCPercent(lateGC)
	if text := os.Getenv(handEnv); text != "" {
		return workProcess(text)
	}
	if url := os.Getenv(workEnv); url != "" {
		var p post
		if err := json.Unmarshal([]byte(os.Getenv(postEnv)), &p); err != nil {
			return err
		}
		return profiled("worker", func() error { return work(url, p) })
	}
	if url := os.Getenv(floodEnv); url != "" {
		return beFlood(url)
	}
	names := flag.Args()
	if len(names) == 0 {
		flag.Usage()
		return errors.New("no scenario: give what to measure")
	}
	if i := slices.IndexFunc(names, func(n string) bool { return n != "" && n[0] == '-' }); i > 0 {
		return fmt.Errorf("flag %s comes after %s and would be ignored: give flags first", names[i], names[0])
	}
	switch names[0] {
	case "short", "full", "databases", "history":
		return campaign(names[0], names[1:])
	case "peers":
		return profiled("client", func() error { return turns{*among, *which, *times, []int{*workerCount}}.play(print) })
	case "soak":
		return soak()
	case "table":
		return table(flag.Arg(1))
	case "all":
		names = []string{"batch", "http", "latency", "delayed", "onekey", "heap", "pages", "flood"}
	}
	for _, name := range names {
		if _, ok := scenarios[name]; !ok {
			return fmt.Errorf("there is no scenario %q", name)
		}
	}
	return profiled("client", func() error {
		for _, name := range names {
			if err := one(name, print); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// scenarios are those that only we run: each has a cluster of its own.
var scenarios = map[string]func(context.Context, *fixture) (map[string]float64, error){
	"batch": batch, "latency": latency, "delayed": delayed, "flood": flood, "heap": heap, "onekey": onekey, "pages": pages,
	"uneven": uneven, "deadhost": deadHost, "flooded": flooded, "tenants": tenantsFlooded,
	"definitions": definitions, "idle": idle, "finished": finished, "takeover": takeover, "tenmillion": tenMillion, "held": held, "lists": lists, "listsdb": lists, "http": httpJobs, "sizes": sizes, "payloads": payloads, "backlog": backlog,
}

func print(l line) { _ = json.NewEncoder(os.Stdout).Encode(l) }

// percentile of durations, in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return -1
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return float64(s[min(len(s)-1, int(p*float64(len(s))))].Microseconds()) / 1000
}
