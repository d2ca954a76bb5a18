//go:build linux

// Command chaos runs control planes, workers and clients as processes on this machine, injects faults of machines and
// networks, and lets a judge check the guarantees.
//
//	go run ./chaos -store raft -for 3m -seed 7
//
// See README.md beside this file.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// campaign has the flags.
type campaign struct {
	store   string
	lasts   time.Duration
	gap     time.Duration
	seed    uint64
	faults  string
	fires   string // triggering: leader or distributed
	dues    int    // leaders to kill around due times
	workers int
	clients int
	rate    int
	dir     string
	keep    bool
	least   guard
}

// guard has the minimum of events for a verdict.
type guard struct{ faults, dues int }

// settle is how long after the last fault all runs must be final.
const settle = 4 * time.Minute

func main() {
	var c campaign
	flag.StringVar(&c.store, "store", raft, "where rows are kept: raft, postgres or mariadb")
	flag.DurationVar(&c.lasts, "for", 3*time.Minute, "how long faults are made")
	flag.DurationVar(&c.gap, "gap", 3*time.Second, "time between a fault and the next, on average")
	flag.Uint64Var(&c.seed, "seed", 1, "which faults, in which order")
	flag.StringVar(&c.faults, "faults", "", "kinds of faults, with commas: kill, stop, cut, slow, clock, disk, roll, one by its name, or none; default all")
	flag.StringVar(&c.fires, "triggering", "leader", "which nodes fire due times: leader, or distributed (each node a share of the jobs; needs a database)")
	flag.IntVar(&c.dues, "due-kills", 0, "kill the leader within a second around a due time so many times, before everything else")
	flag.IntVar(&c.workers, "workers", 3, "worker processes")
	flag.IntVar(&c.clients, "clients", 2, "client processes")
	flag.IntVar(&c.rate, "rate", 5, "runs that each client asks for in a second")
	flag.StringVar(&c.dir, "dir", "", "directory for everything; default a temporary one, which is kept if a promise was broken")
	flag.BoolVar(&c.keep, "keep", false, "keep the directory in any case")
	flag.IntVar(&c.least.faults, "least-faults", 0, "fewer faults than this are a failure")
	flag.IntVar(&c.least.dues, "least-dues", 0, "fewer due times than this are a failure")
	again := flag.String("judge", "", "only judge again what is in this directory")
	flag.Parse()
	if *again != "" {
		os.Exit(code(conclude(*again, guard{})))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(code(c.run(ctx)))
}

func code(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return 0
}

var started = time.Now()

// logf prints an event with its time.
func logf(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
}

func (c *campaign) check() error {
	if !slices.Contains([]string{raft, postgres, mariadb}, c.store) {
		return fmt.Errorf("-store %s: give raft, postgres or mariadb", c.store)
	}
	known := []string{"none"}
	for _, f := range slices.Concat(strikes, pinpricks) {
		known = append(known, f.kind, f.name)
	}
	for _, kind := range c.kinds() {
		if !slices.Contains(known, kind) {
			return fmt.Errorf("-faults %s: there are %s", kind, strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", "))
		}
	}
	return nil
}

func (c *campaign) kinds() []string {
	if c.faults == "" {
		return nil
	}
	return strings.Split(c.faults, ",")
}

func (c *campaign) run(ctx context.Context) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "carillon-chaos-"); err != nil {
			return err
		}
	} else if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	s := &system{dir: c.dir, records: filepath.Join(c.dir, "records"), store: c.store, fires: c.fires, ports: ports{next: 12_000 + os.Getpid()%150*100}}
	if s.faults, err = judge.Open(s.records, judge.FaultFile("driver")); err != nil {
		return err
	}
	logf("chaos on %s, seed %d, in %s", c.store, c.seed, c.dir)
	defer func() {
		if err != nil {
			s.keep = err.Error()
		}
		s.end()
		if err == nil && !c.keep {
			_ = os.RemoveAll(c.dir)
			return
		}
		logf("the records are in %s; run again: -store %s -seed %d; judge again: -judge %s", c.dir, c.store, c.seed, s.records)
	}()
	if err := c.play(ctx, s); err != nil {
		return err
	}
	err = conclude(s.records, c.least)
	if len(s.crashes) > 0 {
		err = errors.Join(err, fmt.Errorf("ended by themselves: %s", strings.Join(s.crashes, ", ")))
	}
	return err
}

// play starts everything, injects faults, heals them, and reads the store at the end.
func (c *campaign) play(ctx context.Context, s *system) error {
	setup := judge.Setup{Name: fmt.Sprintf("chaos on %s, seed %d", c.store, c.seed), Store: c.store, Began: judge.Now(), Faults: c.least.faults}
	if err := s.build(ctx); err != nil {
		return err
	}
	if err := s.raise(ctx); err != nil {
		return err
	}
	recurring, bothered, triggered := specs(time.Now())
	all := slices.Concat(recurring, bothered, triggered)
	history, err := judge.Open(s.records, judge.HistoryFile("driver"))
	if err != nil {
		return err
	}
	defer history.Close()
	began := judge.Now()
	if err := s.hire(c.workers, all); err != nil {
		return err
	}
	if err := s.known(ctx, history, began, all); err != nil {
		return err
	}
	logf("%d control planes, %d workers, %d jobs", len(s.nodes), len(s.workers), len(all))
	if err := s.invite(c.clients, c.rate, c.seed, triggered, bothered); err != nil {
		return err
	}
	z := newNemesis(s, c.seed, c.kinds())
	watching, enough := context.WithCancel(ctx)
	defer enough()
	go s.watch(watching, z)

	if err := z.aroundDue(ctx, c.dues); err != nil {
		return err
	}
	raging, calm := context.WithTimeout(ctx, c.lasts)
	defer calm()
	half := time.AfterFunc(c.lasts/2, func() {
		if _, err := s.read(ctx, "1-half", all); err != nil {
			logf("the store could not be read half-way: %v", err)
		}
	})
	defer half.Stop()
	z.rage(raging, c.gap)
	if err := z.heal(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	setup.Healed = judge.Now()
	n, which := z.counts()
	logf("healed, after %d faults: %s", n, which)
	if err := s.rest(ctx, history, slices.Concat(recurring, bothered)); err != nil {
		logf("%v", err) // the judge finds runs that are not final
	}
	enough()
	if _, err := s.read(ctx, "9-end", all); err != nil {
		return err
	}
	setup.Repairs = s.repairs()
	return judge.WriteSetup(s.records, setup)
}

// known waits until the jobs are registered, and records that.
func (s *system) known(ctx context.Context, history *judge.Writer, began judge.Moment, all []judge.Spec) error {
	for _, spec := range all {
		err := until(ctx, "job "+spec.Key+" is known", func(ctx context.Context) bool {
			var j api.Job
			return s.get(ctx, "/api/v1/jobs/"+spec.Key, &j) == nil
		})
		if err != nil {
			return err
		}
		if err := history.Write(judge.Op{What: judge.Define, Client: "driver", Invoked: began, Returned: judge.Now(), Outcome: judge.OK, Key: spec.Key, Spec: &spec}); err != nil {
			return err
		}
	}
	return nil
}

// watch prints progress.
func (s *system) watch(ctx context.Context, z *nemesis) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(15 * time.Second):
		}
		n, _ := z.counts()
		logf("so far: %d faults, %d attempts begun, %d processes ended by themselves", n, s.attempts(), s.fallen())
	}
}

func (s *system) fallen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.crashes)
}

// attempts is how many handlers have begun, by the journals.
func (s *system) attempts() (n int) {
	names, _ := filepath.Glob(filepath.Join(s.records, judge.JournalFile("*")))
	for _, name := range names {
		if raw, err := os.ReadFile(name); err == nil {
			n += bytes.Count(raw, []byte(`{"what":"`+judge.Start+`"`))
		}
	}
	return n
}

// repairs is how many times sweeps have found ready runs that the leader had lost, by the logs of all control planes.
func (s *system) repairs() (n int) {
	for _, node := range s.nodes {
		if raw, err := os.ReadFile(node.log); err == nil {
			n += bytes.Count(raw, []byte("the leader had lost ready runs"))
		}
	}
	return n
}

// held is how many runs wait until their jobs are resumed.
func (s *system) held(ctx context.Context) (n int, err error) {
	for next := ""; ; {
		var page struct {
			Items []api.Run
			Next  string
		}
		if err := s.get(ctx, "/api/v1/runs?state=Scheduled&limit=200&cursor="+url.QueryEscape(next), &page); err != nil {
			return 0, err
		}
		for i := range page.Items {
			if page.Items[i].Cause == "paused" {
				n++
			}
		}
		if next = page.Next; next == "" {
			return n, nil
		}
	}
}

// rest has the clients end, pauses recurring jobs and waits until no run lives but those that a pause holds.
func (s *system) rest(ctx context.Context, history *judge.Writer, recurring []judge.Spec) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	for _, c := range s.clients {
		if err := c.signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, c := range s.clients {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return errors.New("a client has not ended: it waits for a response")
		}
	}
	for _, spec := range recurring {
		op := judge.Op{What: judge.Pause, Client: "driver", Key: spec.Key, Outcome: judge.OK, Invoked: judge.Now()}
		err := until(ctx, "job "+spec.Key+" is paused", func(ctx context.Context) bool {
			for _, n := range s.nodes {
				if s.ask(ctx, n, "POST", "/api/v1/jobs/"+spec.Key+"/pause", struct{}{}, nil) == nil {
					return true
				}
			}
			return false
		})
		if err != nil {
			return err
		}
		op.Returned = judge.Now()
		if err := history.Write(op); err != nil {
			return err
		}
	}
	var left atomic.Pointer[map[string]int]
	err := until(ctx, "all runs have come to an end", func(ctx context.Context) bool {
		var o api.Overview
		if s.get(ctx, "/api/v1/overview", &o) != nil {
			return false
		}
		held, err := s.held(ctx)
		if o.Runs["Scheduled"] -= held; err != nil {
			return false
		}
		left.Store(&o.Runs)
		for _, n := range o.Runs {
			if n > 0 {
				return false
			}
		}
		return true
	})
	if err != nil && left.Load() != nil {
		return fmt.Errorf("%w: %v", err, *left.Load())
	}
	return err
}
