package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// system is a job system under measurement: servers of its own in a directory of its own, one process or several
// that run handlers, and this process, which enqueues. Each is started anew for each measurement, alone on the machine.
type system interface {
	// start brings up the servers and hires so many worker processes.
	start(ctx context.Context, dir string, workers int) error
	// batch enqueues jobs numbered from first in one call, as fast as the system knows how. errNone if it cannot.
	batch(ctx context.Context, first, n int) error
	// one enqueues one job and returns when it is accepted.
	one(ctx context.Context, a noArgs) error
	// later enqueues a job for each due time; the job's number is the place of its due time.
	later(ctx context.Context, due []time.Time) error
	// everySecond dismisses the workers and hires one that has so many jobs, each due at every full second.
	everySecond(ctx context.Context, keys int) error
	// unsettled is how many jobs are not in their final state, as the system reports.
	unsettled(ctx context.Context) (int, error)
	// workerSet returns the worker processes.
	workerSet() *workerSet
	// pids are the processes whose processor time counts, without this one. What they have started counts, too.
	pids() []int
	stop()
}

// errNone: the system has no such thing.
var errNone = errors.New("the system has no such thing")

// entry is a system by name.
type entry struct {
	name  string
	about string // settings
	slow  int    // what a scenario's number of jobs is divided by, so that it ends
	needs []string
	make  func() system
}

// systems in the order in which they are shown. The first is the one that goals are about.
var systems = []entry{
	{"carillon", "raft log of one voter, synced; NATS over loopback, in the server", 1, nil, func() system { return &ours{} }},
	{"carillon postgres", "rows in PostgreSQL, fsync on", 1, []string{"postgres"}, func() system { return &ours{store: "postgres"} }},
	{"carillon mariadb", "rows in MariaDB, flushed at each commit", 1, []string{"mariadbd"}, func() system { return &ours{store: "mariadb"} }},
	{"carillon replicas", "two processes of one program on PostgreSQL, fsync on: one enqueues and leads, one works", 1, []string{"postgres"}, func() system { return &replicas{} }},
	{"carillon memory", "keeps nothing", 1, nil, func() system { return &ours{store: "memory"} }},
	{"carillon external", "raft log of one voter, synced; NATS in a process of its own", 1, nil, func() system { return &ours{external: true} }},
	{"carillon three", "three processes on this machine with a copy of the raft log each, synced, and a NATS server each", 1, nil, func() system { return &ours{nodes: 3} }},
	{"river tuned", "PostgreSQL, fsync on; 2,000 workers, fetch cooldown 2 ms, poll 20 ms", 1, []string{"postgres"}, func() system { return &riverQueue{tuned: true} }},
	{"river default", "PostgreSQL, fsync on; 100 workers, fetch cooldown 100 ms, poll 1 s", 20, []string{"postgres"}, func() system { return &riverQueue{} }},
	{"asynq tuned", "Redis, no AOF; concurrency 64, both check intervals 10 ms", 1, []string{"redis-server"}, func() system { return &asynqQueue{tuned: true, aof: "no"} }},
	{"asynq everysec", "as tuned; AOF, synced once a second", 1, []string{"redis-server"}, func() system { return &asynqQueue{tuned: true, aof: "everysec"} }},
	{"asynq always", "as tuned; AOF, synced before each answer: as durable as ours", 3, []string{"redis-server"}, func() system { return &asynqQueue{tuned: true, aof: "always"} }},
	{"asynq default", "Redis, no AOF; concurrency as many as cores, intervals 1 s and 5 s", 3, []string{"redis-server"}, func() system { return &asynqQueue{aof: "no"} }},
	{"gocron", "timers in this process; keeps nothing", 1, nil, func() system { return &gocronTimer{} }},
}

// pick finds systems by names with commas between them.
func pick(names string) ([]entry, error) {
	var picked []entry
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(systems, func(e entry) bool { return e.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no system %q", name)
		}
		picked = append(picked, systems[i])
	}
	return picked, nil
}

// missing returns what to install for a system, or "".
func (e entry) missing() string {
	packages := map[string]string{"postgres": "postgresql", "mariadbd": "mariadb-server", "redis-server": "redis-server"}
	for _, program := range e.needs {
		if _, err := find(program); err != nil {
			return fmt.Sprintf("%s is not measured: there is no %s on this machine; apt-get install -y --no-install-recommends %s", e.name, program, packages[program])
		}
	}
	return ""
}

// with starts a system, lets f use it, and stops it. f is not called when the start fails.
func (e entry) with(ctx context.Context, workers int, f func(system) error) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // databases do not run as root, and their directories are inside
		return err
	}
	s := e.make()
	defer s.stop()
	if err := s.start(ctx, dir, workers); err != nil {
		return fmt.Errorf("start %s: %w", e.name, err)
	}
	if err := f(s); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// find looks for a program where distributions put it.
func find(name string) (string, error) {
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/opt/homebrew/opt/postgresql*/bin/", "/usr/local/pgsql/bin/", "/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/usr/local/mysql/bin/"} {
		if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is not on this machine", name)
}
