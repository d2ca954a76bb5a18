package embed_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/ops"
)

// childReplica makes this program one of several that share the database of this URL.
const childReplica = "CARILLON_TEST_REPLICA"

// replica enqueues runs and runs them, until its input ends; then it only runs them. It writes what it does.
func replica(database string) error {
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	s, err := embed.Start(context.Background(), embed.Config{Database: database},
		jobs.NewTriggered(jobs.TriggeredFunc[ring](func(_ context.Context, r ring) error {
			say("ran %d", r.N)
			return nil
		}), jobs.Options{Key: "test.ring", Retries: 9}))
	if err != nil {
		return err
	}
	say("ready")
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	go func() {
		for leads := false; ; time.Sleep(5 * time.Millisecond) {
			if now := s.Leads(context.Background()) == nil; now != leads {
				if leads = now; now {
					say("leads")
				}
			}
		}
	}()
	for n := os.Getpid() * 100_000; ; n++ {
		select {
		case <-over:
			say("enough")
			<-s.Done()
			return s.Stop()
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := ringJob.Enqueue(context.Background(), s.Client(), ring{n}); err != nil {
			say("failed %v", err)
			continue
		}
		say("asked %d", n)
	}
}

// replicas are processes of one program.
type replicas struct {
	t        *testing.T
	database string

	mu     sync.Mutex
	all    []*oneReplica // that live
	leader *oneReplica
	ready  int
	enough int
	asked  map[int]bool
	ran    map[int]int
	errors []string
}

type oneReplica struct {
	cmd *exec.Cmd
	in  io.Closer
}

func (r *replicas) start() {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childReplica+"="+r.database)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	one := &oneReplica{cmd, in}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.take(one, lines.Text())
		}
	}()
}

func (r *replicas) take(one *oneReplica, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n int
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "ready":
		r.ready++
	case "enough":
		r.enough++
	case "leads":
		r.leader = one
	case "asked":
		_, _ = fmt.Sscan(rest, &n)
		r.asked[n] = true
	case "ran":
		_, _ = fmt.Sscan(rest, &n)
		r.ran[n]++
	default:
		r.errors = append(r.errors, line)
	}
}

func (r *replicas) look(fn func() bool) func() bool {
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fn()
	}
}

// kill kills the leader, or one of the others.
func (r *replicas) kill(leader bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.all, func(one *oneReplica) bool { return (one == r.leader) == leader })
	one := r.all[i]
	r.all = slices.Delete(r.all, i, i+1)
	if leader {
		r.leader = nil
	}
	_ = one.cmd.Process.Kill()
}

// Five processes of one program share a database and nothing else: each enqueues and runs, and one leads. The leader is
// killed, others are killed, and new ones come, under load: what was enqueued is run.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			r := &replicas{t: t, database: kind.New(t), asked: map[int]bool{}, ran: map[int]int{}}
			for range 5 {
				r.start()
			}
			eventually(t, "all five are ready", r.look(func() bool { return r.ready == 5 && r.leader != nil }))
			more := tests.Size(100, 500, 500)
			for i := range tests.Size(2, 4, 8) {
				r.mu.Lock()
				before := len(r.ran)
				r.mu.Unlock()
				eventually(t, fmt.Sprintf("%d more runs", more), r.look(func() bool { return len(r.ran) >= before+more }))
				r.kill(i%2 == 0)
				took := eventually(t, "one leads", r.look(func() bool { return r.leader != nil }))
				r.start()
				again := eventually(t, "the new one is ready", r.look(func() bool { return r.ready == 6+i }))
				t.Logf("led after %v, the new one is ready after %v", took, again)
			}
			r.mu.Lock()
			for _, one := range r.all {
				_ = one.in.Close()
			}
			r.mu.Unlock()
			eventually(t, "all have enqueued enough", r.look(func() bool { return r.enough == 5 }))
			r.mu.Lock()
			asked := len(r.asked)
			r.mu.Unlock()
			missing := func() (n int) {
				for a := range r.asked {
					if r.ran[a] == 0 {
						n++
					}
				}
				return n
			}
			eventually(t, "all is run", r.look(func() bool { return missing() == 0 }))
			again := 0
			for _, times := range r.ran {
				again += times - 1
			}
			t.Logf("%d runs enqueued, %d run again, errors: %q", asked, again, r.errors)
			if len(r.errors) > 0 {
				t.Errorf("requests failed: %q", r.errors)
			}
		})
	}
}

// A process that cannot connect to the leader reaches it through the database, and says so, until it leads itself.
func TestThroughTheDatabase(t *testing.T) {
	database := sqltest.Postgres.New(t)
	var log bytes.Buffer
	ran := make(chan int, 10)
	handler := jobs.NewTriggered(jobs.TriggeredFunc[ring](func(_ context.Context, r ring) error { ran <- r.N; return nil }), jobs.Options{Key: "test.ring"})
	leader, err := embed.Start(t.Context(), embed.Config{Database: database, Node: "a", Advertise: "192.0.2.1"}, handler) // an address for documentation
	if err != nil {
		t.Fatal(err)
	}
	away, err := embed.Start(t.Context(), embed.Config{Database: database, Node: "b", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	run, err := ringJob.Enqueue(t.Context(), away.Client(), ring{1})
	if err != nil {
		t.Fatal(err)
	}
	if n := <-ran; n != 1 {
		t.Errorf("run %d", n)
	}
	if r, err := away.Client().Wait(t.Context(), run.ID); err != nil || r.State != jobs.Succeeded {
		t.Errorf("%+v (%v)", r, err)
	}
	who := ops.Who{Actor: "person:ann", Role: ops.Admin}
	if _, err := away.Ops().Pause(t.Context(), who, kernel.Pause{Key: "test.ring"}); err != nil {
		t.Error(err)
	}
	if w := away.Ops().Live().Workers(jobs.DefaultTenant); len(w) != 1 {
		t.Errorf("workers: %+v", w)
	}
	if l := away.Ops().Live().Leader(); l.Node != "a" || l.Here {
		t.Errorf("the leader is %+v", l)
	}
	if _, err := jobs.Trigger[ring]("test.unknown").Enqueue(t.Context(), away.Client(), ring{2}); !errors.Is(err, jobs.NotFound) {
		t.Errorf("an unknown job: %v", err)
	}
	if err := leader.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, "the other one leads", func() bool { return away.Leads(t.Context()) == nil })
	if _, err := ringJob.Enqueue(t.Context(), away.Client(), ring{2}); err != nil {
		t.Error(err)
	}
	if err := away.Stop(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "the leader's bus cannot be reached") {
		t.Errorf("the log does not say that the bus cannot be reached: %s", log.String())
	}
}
