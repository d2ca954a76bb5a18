package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// line is one result. A line of the scenario "run" describes the lines after it: time, machine, versions.
type line struct {
	Part     string             `json:"part,omitempty"` // of the plan
	Scenario string             `json:"scenario"`
	System   string             `json:"system,omitempty"`
	Round    int                `json:"round,omitempty"`
	Workers  int                `json:"workers,omitempty"`
	Load     float64            `json:"load,omitempty"` // of the machine when the measurement began, over one minute
	Figures  map[string]float64 `json:"figures,omitempty"`
	Failed   string             `json:"failed,omitempty"`
	Run      *run               `json:"run,omitempty"`
	Trends   []trend            `json:"trends,omitempty"` // of a soak
}

// run describes a run of this program.
type run struct {
	At       time.Time `json:"at"`
	Command  string    `json:"command"`
	Machine  string    `json:"machine"`
	Versions []string  `json:"versions"`
	Load     float64   `json:"load"`
}

// turn lets a system do some measurements, each in a cluster of its own: what a measurement leaves behind (rows that
// are done, tables that want a vacuum) would be the next one's burden. What fails is reported and does not stop the
// run.
func turn(e entry, some []measure, round, workers int, out func(line)) {
	for _, m := range some {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		l := line{Scenario: m.name, System: e.name, Load: load()}
		ok := true
		err := e.with(ctx, workers, func(s system) error {
			l, ok = e.measure(ctx, s, m)
			return nil
		})
		cancel()
		if err != nil {
			l.Failed = err.Error()
		}
		if l.Round, l.Workers = round, workers; ok {
			out(l)
		}
		if l.Failed != "" {
			fmt.Fprintf(os.Stderr, "bench: %s: %s: %s\n", e.name, m.name, l.Failed)
		}
	}
}

// measure does one measurement; ok is false when the system has no such thing.
func (e entry) measure(ctx context.Context, s system, m measure) (_ line, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	n := m.n
	if !strings.HasPrefix(m.name, "latency") && !strings.HasPrefix(m.name, "second") && m.name != "delayed" {
		n /= e.slow
	}
	if *count > 0 {
		n = min(n, *count)
	}
	if m.name == "batch" || strings.HasPrefix(m.name, "x") { // warm up
		_, _ = m.run(ctx, s, max(n/10, 1))
	}
	runtime.GC()
	l := line{Scenario: m.name, System: e.name, Load: load()}
	var err error
	if l.Figures, err = m.run(ctx, s, n); err != nil {
		l.Failed = err.Error()
	}
	return l, !errors.Is(err, errNone)
}

// load is the machine's load over the last minute.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	var f float64
	fmt.Sscan(string(b), &f)
	return f
}

// aboutRun returns time, machine and versions of this run.
func aboutRun(command string) *run {
	r := &run{At: time.Now().UTC().Truncate(time.Second), Command: command, Machine: machine(), Load: load()}
	r.Versions = append(r.Versions, runtime.Version())
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			switch d.Path {
			case "github.com/riverqueue/river", "github.com/go-co-op/gocron/v2", "github.com/jackc/pgx/v5", "github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/nats-io/nats-server/v2":
				r.Versions = append(r.Versions, d.Path[strings.Index(d.Path, "/")+1:]+" "+d.Version)
			}
		}
	}
	for _, program := range []string{"postgres", "mariadbd", "redis-server"} {
		if v := version(program); v != "" {
			r.Versions = append(r.Versions, v)
		}
	}
	return r
}

// machine describes the processor, the memory, the kernel and the disk.
func machine() string {
	model := ""
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(b), "model name\t: ")
		model, _, _ = strings.Cut(rest, "\n")
	}
	var memory float64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		_, rest, _ := strings.Cut(string(b), "MemTotal:")
		fmt.Sscan(rest, &memory)
	}
	kernel := ""
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = strings.TrimSpace(string(b))
	}
	return fmt.Sprintf("%d cores (%s), %.0f GiB, Linux %s, %s on %s", runtime.NumCPU(), model, memory/(1<<20), kernel, os.TempDir(), filesystem(os.TempDir()))
}

// filesystem is the kind of the one that a directory is on.
func filesystem(dir string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "an unknown file system"
	}
	names := map[int64]string{0xef53: "ext4", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs"}
	if name, ok := names[int64(s.Type)]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", s.Type)
}

// readLines are the results of earlier runs.
func readLines(path string) (results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all results
	for text := range bytes.Lines(b) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, l)
	}
	return all, nil
}
