// Command bench measures Carillon as its users meet it: a server process, a worker process and a client, over
// loopback, with the durable store. Each scenario prints one JSON line.
//
//	go run . batch       enqueue in bulk to the final state, jobs/s
//	go run . latency     enqueue to start at 200 jobs/s
//	go run . delayed     how late 2,000 delayed jobs start
//	go run . flood       a million runs and no worker: messages, and the first start once there is one
//	go run . heap        100,000 delayed runs and 10,000 jobs: heap, and restart to the first fire
//	go run . onekey      1,000 runs of one job through one slot
//	go run . all         all of them
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

var (
	memory  = flag.Bool("memory", false, "use the memory store")
	count   = flag.Int("n", 0, "how many jobs (default: the scenario's)")
	slots   = flag.Int("slots", 0, "slots of the worker; 0 = no limit")
	profile = flag.String("profile", "", "write CPU profiles of client and worker to this directory")
	verbose = flag.Bool("v", false, "show what the processes log")
	callers = flag.Int("callers", 4, "batch: how many enqueue at the same time")
	size    = flag.Int("size", 1000, "batch: runs in one call")
)

// line is one result.
type line struct {
	Scenario string             `json:"scenario"`
	Store    string             `json:"store"`
	Figures  map[string]float64 `json:"figures"`
}

func main() {
	flag.Parse()
	if flag.Arg(0) == "worker" {
		if err := work(flag.Arg(1), *slots); err != nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1)
		}
		return
	}
	scenarios := map[string]func(context.Context, *house) (map[string]float64, error){
		"batch": batch, "latency": latency, "delayed": delayed, "flood": flood, "heap": heap, "onekey": onekey,
	}
	names := flag.Args()
	if len(names) == 1 && names[0] == "all" {
		names = []string{"batch", "latency", "delayed", "onekey", "heap", "flood"}
	}
	if len(names) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	for _, name := range names {
		run, ok := scenarios[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "bench: there is no scenario %q\n", name)
			os.Exit(2)
		}
		if err := one(name, run); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func one(name string, run func(context.Context, *house) (map[string]float64, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	h, err := build(ctx)
	if err != nil {
		return err
	}
	defer h.close()
	figures, err := run(ctx, h)
	if err != nil {
		return err
	}
	store := "raft, one voter"
	if *memory {
		store = "memory"
	}
	figures["cores"] = float64(runtime.NumCPU())
	return json.NewEncoder(os.Stdout).Encode(line{name, store, figures})
}

// percentile of durations, in milliseconds.
func percentile(d []time.Duration, p float64) float64 {
	if len(d) == 0 {
		return -1
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return float64(s[min(len(s)-1, int(p*float64(len(s))))].Microseconds()) / 1000
}
