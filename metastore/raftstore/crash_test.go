package raftstore

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// small are limits that a test reaches in a moment.
func small(dir string, kind string) Config {
	return Config{Dir: dir, Log: kind, SnapshotAfter: 256 << 10, Trailing: 64 << 10, ArchiveBuffer: 64 << 10, ArchiveFile: 32 << 10}
}

var bothLogs = []string{LogBolt, LogWAL}

// TestMain is also the process that TestKill and TestKillLeaders kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CARILLON_TEST_CRASH_DIR"); dir != "" {
		c := small(dir, os.Getenv("CARILLON_TEST_CRASH_LOG"))
		if c.Listen = os.Getenv("CARILLON_TEST_LISTEN"); c.Listen != "" {
			c.Heartbeat = time.Second // three processes that all write may delay each other for longer than usual
			writeWhileLeading(c)
		}
		writeUntilKilled(c)
	}
	tests.InMemory()
	tests.Parallel(4) // the nodes of a cluster mostly wait for each other
	os.Exit(m.Run())
}

// writeUntilKilled prints what was acknowledged: a state and an id a line.
func writeUntilKilled(c Config) {
	s, err := Open(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out sync.Mutex
	apply := func(what string, id jobs.ID, k kernel.Command) {
		if r := s.Apply(ctx, []kernel.Envelope{envelope(k)})[0]; r.Err != nil {
			fmt.Fprintln(os.Stderr, r.Err)
			os.Exit(1)
		}
		out.Lock()
		defer out.Unlock()
		fmt.Println(what, id)
	}
	apply("registered", jobs.ID{}, register("k"))
	for n := range 8 {
		go func() {
			for {
				k := create("k")
				apply("created", k.ID, k)
				if n++; n%10 > 0 {
					apply("started", k.ID, kernel.Start{ID: k.ID, Worker: "w", Attempt: 1})
					apply("finished", k.ID, kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
				}
			}
		}()
	}
	select {}
}

// Acknowledged runs are there after kill -9, however often.
func TestKill(t *testing.T) {
	for _, kind := range bothLogs {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			acknowledged := map[jobs.ID]string{}
			for round := range 4 {
				readUntilKilled(t, dir, kind, 300+700*round, acknowledged)
				s, err := Open(small(dir, kind))
				if err != nil {
					t.Fatal(err)
				}
				lost := 0
				for id, what := range acknowledged {
					run, err := s.Run(ctx, jobs.DefaultTenant, id)
					if err != nil || what == "started" && run.Attempt == 0 || what == "finished" && run.State != jobs.Succeeded {
						if lost++; lost < 5 {
							t.Errorf("round %d: run %s was %s, and is %v, %v", round, id, what, run, err)
						}
					}
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d runs", len(acknowledged))
		})
	}
}

// readUntilKilled starts the writer, notes what it prints, and kills it after some lines.
func readUntilKilled(t *testing.T, dir string, kind string, lines int, acknowledged map[jobs.ID]string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CARILLON_TEST_CRASH_DIR="+dir, "CARILLON_TEST_CRASH_LOG="+kind)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	for n := 0; in.Scan(); n++ {
		if n == lines {
			_ = cmd.Process.Signal(syscall.SIGKILL) // and read what it had printed by then
		}
		what, text, _ := strings.Cut(in.Text(), " ")
		if id, err := jobs.ParseID(text); err == nil {
			acknowledged[id] = what
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
}

// sizeOf is the size of a directory on disk, without what grows with history.
func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, archiveFolder+string(filepath.Separator)) {
			return nil // a file may go while we look
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}

// The log stays short however much is written to it, and reopening gives the same rows after any command.
func TestBoundedAndReopened(t *testing.T) {
	tests.Long(t)
	for _, kind := range bothLogs {
		t.Run(string(kind), func(t *testing.T) {
			c := small(t.TempDir(), kind)
			s := open(t, c)
			do(t, s, register("k"))
			var live []jobs.ID
			var biggest int64
			reopened, written := 0, 0
			for step := range 140 {
				batch := creates(40)
				written += 40 * 300
				if len(live) > 400 {
					for _, id := range live[:60] {
						batch = append(batch, kernel.Start{ID: id, Worker: "w", Attempt: 1}, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
					}
					live = live[60:]
				}
				for _, k := range batch {
					if k, ok := k.(kernel.Create); ok {
						live = append(live, k.ID)
					}
				}
				do(t, s, batch...)
				biggest = max(biggest, sizeOf(t, c.Dir))
				if step%17 == 0 {
					hash := s.machine.Engine.Hash()
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, c)
					reopened++
					if s.machine.Engine.Hash() != hash {
						t.Fatalf("after step %d the rows are others", step)
					}
				}
			}
			t.Logf("%d KiB of log written, at most %d KiB on disk, reopened %d times", written>>10, biggest>>10, reopened)
			if most := int64(24 << 20); biggest > most {
				t.Errorf("the directory grew to %d bytes", biggest)
			}
			if first, _ := s.log.FirstIndex(); first < 2 {
				t.Error("the log was never cut")
			}
		})
	}
}

// A large store restarts soon.
func TestRestartTime(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	s := open(t, c)
	var batch []kernel.Command
	for i := range 10_000 {
		batch = append(batch, register(fmt.Sprint("job-", i)))
	}
	do(t, s, batch...)
	rounds := tests.Size(3, 25, 25)
	for range rounds {
		batch = batch[:0]
		for i := range 4000 {
			k := create(fmt.Sprint("job-", i))
			k.Delay = time.Hour
			batch = append(batch, k)
		}
		do(t, s, batch...)
	}
	reopen := func(what string) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s = open(t, c)
		took := time.Since(began)
		t.Logf("%d delayed runs and 10,000 definitions are back after %v, from %s", rounds*4000, took, what)
		if tests.Rough() && took > 30*time.Second { // ten times the promise
			t.Errorf("it took %v", took)
		}
		if counts, err := s.Counts(ctx, metastore.CountQuery{Tenant: jobs.DefaultTenant}); err != nil || counts.Live[jobs.Scheduled] != rounds*4000 {
			t.Errorf("counts are %v, %v", counts.Live, err)
		}
	}
	reopen("the log")
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	reopen("a snapshot")
}

// TestKillLeaders kills the process of the leader, again and again, while it acknowledges work of its own: three
// processes, kill -9.
func TestKillLeaders(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	c.same()
	for i := range c.stores {
		c.stop(i)
	}
	type printed struct {
		node       int
		what, text string
	}
	lines := make(chan printed, 1000)
	writers := make([]*exec.Cmd, 3)
	var reading sync.WaitGroup
	begin := func(i int) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CARILLON_TEST_CRASH_DIR="+c.configs[i].Dir, "CARILLON_TEST_CRASH_LOG="+LogWAL, "CARILLON_TEST_LISTEN="+c.configs[i].Listen)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		writers[i] = cmd
		reading.Go(func() {
			in := bufio.NewScanner(out)
			for in.Scan() {
				what, text, _ := strings.Cut(in.Text(), " ")
				lines <- printed{i, what, text}
			}
		})
	}
	kill := func(i int) {
		_ = writers[i].Process.Signal(syscall.SIGKILL)
		_ = writers[i].Wait()
	}
	for i := range writers {
		begin(i)
	}
	t.Cleanup(func() {
		for i := range writers {
			if writers[i].ProcessState == nil {
				kill(i)
			}
		}
	})
	acknowledged := map[jobs.ID]string{}
	random := tests.Random(t)
	leaders, since, next := 0, 0, 200
	silence := time.NewTimer(patience)
	for leaders < 5 {
		select {
		case l := <-lines:
			if id, err := jobs.ParseID(l.text); err == nil {
				acknowledged[id] = l.what
			}
			if since++; since > next { // it leads: it acknowledges
				kill(l.node)
				begin(l.node)
				leaders, since, next = leaders+1, 0, 100+random.IntN(500)
			}
			silence.Reset(patience)
		case <-silence.C:
			t.Fatalf("no node leads after %d leaders", leaders)
		}
	}
	for i := range writers {
		kill(i)
	}
	go func() {
		reading.Wait()
		close(lines)
	}()
	for l := range lines {
		if id, err := jobs.ParseID(l.text); err == nil {
			acknowledged[id] = l.what
		}
	}
	for i := range c.stores {
		c.start(i)
	}
	c.same()
	for _, s := range c.stores {
		lost := 0
		for id, what := range acknowledged {
			run, err := s.Run(ctx, jobs.DefaultTenant, id)
			if err != nil || what == "started" && run.Attempt == 0 || what == "finished" && run.State != jobs.Succeeded {
				if lost++; lost < 5 {
					t.Errorf("%s: run %s was %s, and is %v, %v", s.cfg.Node, id, what, run, err)
				}
			}
		}
	}
	t.Logf("%d runs, %d leaders killed", len(acknowledged), leaders)
}

// writeWhileLeading is the process that TestKillLeaders kills. It writes while it leads, and prints what was
// acknowledged.
func writeWhileLeading(c Config) {
	s, err := Open(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out sync.Mutex
	for range 8 {
		go func() {
			for {
				k := create("k")
				for _, step := range []struct {
					what string
					k    kernel.Command
				}{
					{"created", k},
					{"started", kernel.Start{ID: k.ID, Worker: "w", Attempt: 1}},
					{"finished", kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess}},
				} {
					if s.Apply(ctx, []kernel.Envelope{envelope(step.k)})[0].Err != nil {
						time.Sleep(10 * time.Millisecond)
						break
					}
					out.Lock()
					fmt.Println(step.what, k.ID)
					out.Unlock()
				}
			}
		}()
	}
	fmt.Fprintln(os.Stderr, <-s.Err())
	os.Exit(1)
}

// A log whose last entries were deleted, as on a node that followed a deposed leader, opens again.
func TestReopenAfterEndIsTakenBack(t *testing.T) {
	for _, kind := range bothLogs {
		t.Run(string(kind), func(t *testing.T) {
			c := small(t.TempDir(), kind).withDefaults()
			for round := range uint64(3) {
				l, err := openLog(&c, func(err error) { t.Error(err) })
				if err != nil {
					t.Fatal(err)
				}
				if err := l.check(0); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				// Raft does this before it stores an entry of that term.
				if err := l.SetUint64(keyTerm, round); err != nil {
					t.Fatal(err)
				}
				first := 1 + 5*round
				for i := first; i < first+10; i++ {
					if err := l.StoreLog(&raft.Log{Index: i, Term: round, Type: raft.LogNoop}); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.DeleteRange(first+5, first+9); err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// An end or a beginning of any length can be deleted, and the log opens again.
func TestDeleteLongRange(t *testing.T) {
	const entries = 2*perDelete + 100
	for _, kind := range bothLogs {
		for _, r := range []struct{ first, last, begins, ends uint64 }{
			{100, entries, 1, 99},
			{1, entries - 100, entries - 99, entries},
			{1, entries, 0, 0},
		} {
			t.Run(fmt.Sprint(kind, r.first, "to", r.last), func(t *testing.T) {
				c := small(t.TempDir(), kind).withDefaults()
				l, err := openLog(&c, func(err error) { t.Error(err) })
				if err != nil {
					t.Fatal(err)
				}
				batch := make([]*raft.Log, entries)
				for i := range batch {
					batch[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogNoop}
				}
				if err := errors.Join(l.SetUint64(keyTerm, 1), l.StoreLogs(batch), l.DeleteRange(r.first, r.last), l.Close()); err != nil {
					t.Fatal(err)
				}
				if l, err = openLog(&c, func(err error) { t.Error(err) }); err != nil {
					t.Fatal(err)
				}
				first, last := must(l.FirstIndex()), must(l.LastIndex())
				if r.ends == 0 {
					first = 0 // raft-wal returns the entry with which an empty log would begin
				}
				if first != r.begins || last != r.ends {
					t.Errorf("the log holds %d to %d, want %d to %d", first, last, r.begins, r.ends)
				}
				if err := errors.Join(l.check(r.begins-min(r.begins, 1)), l.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// failsAfter is a log whose disk fails after some deletions.
type failsAfter struct {
	raft.LogStore
	deletions int
}

func (f *failsAfter) DeleteRange(first, last uint64) error {
	if f.deletions--; f.deletions < 0 {
		return errors.New("the disk is full")
	}
	return f.LogStore.DeleteRange(first, last)
}

// A deletion that is interrupted leaves no gap in the log.
func TestDeleteLongRangeInterrupted(t *testing.T) {
	const entries = 2*perDelete + 100
	for _, r := range []struct{ first, last uint64 }{{1, entries - 10}, {10, entries}} {
		c := small(t.TempDir(), LogBolt).withDefaults()
		l, err := openLog(&c, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		batch := make([]*raft.Log, entries)
		for i := range batch {
			batch[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogNoop}
		}
		if err := l.StoreLogs(batch); err != nil {
			t.Fatal(err)
		}
		l.LogStore = &failsAfter{l.LogStore, 1}
		if err := l.DeleteRange(r.first, r.last); err == nil {
			t.Error("a disk that is full is not reported")
		}
		for i := must(l.FirstIndex()); i <= must(l.LastIndex()); i++ {
			if err := l.GetLog(i, new(raft.Log)); err != nil {
				t.Fatalf("entry %d of %d to %d is missing: %v", i, must(l.FirstIndex()), must(l.LastIndex()), err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
