package raftstore

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// load runs jobs on the leader until it is stopped, and returns how many it has finished. Each caller rests between
// two rounds, so that others get their turn.
func (c *cluster) load(callers int, rest time.Duration) (stop func() int) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	leader := c.leader()
	for range callers {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				finish(c.t, leader, 5)
				mu.Lock()
				done += 5
				mu.Unlock()
				time.Sleep(rest)
			}
		})
	}
	return func() int {
		close(end)
		wg.Wait()
		return done
	}
}

// A node that joins, and one that was down while the log was cut, get the runs that have ended from others, while
// more end: none is lost, none is doubled.
func TestCatchUpBySnapshot(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	// raft-wal can read deleted entries while their segment exists, and no snapshot would be needed.
	adjust := func(c *Config) { c.Log, c.Heartbeat = LogBolt, calm }
	c := newCluster(t, 2, adjust)
	do(t, c.leader(), register("k"))
	stop := c.load(4, 5*time.Millisecond)
	eventually(t, "the log is cut", func() bool {
		for _, s := range c.stores {
			if s.log.GetLog(1, new(raft.Log)) == nil {
				return false
			}
		}
		return true
	})
	c.join(adjust)
	t.Logf("%d runs had ended when the third node had a vote", stop())
	c.same()

	away := c.index(c.follower())
	was := c.stores[away].archive.Last()
	c.stop(away)
	before, _ := c.leader().log.FirstIndex()
	stop = c.load(4, 0)
	eventually(t, "the log is cut beyond the absent node's last entry", func() bool {
		first, _ := c.leader().log.FirstIndex()
		return first > before && first > was>>24+10
	})
	c.start(away)
	eventually(t, "it gets the ended runs", func() bool { return c.stores[away].archive.Last() > was })
	n := stop()
	t.Logf("%d more", n)
	eventually(t, "it has caught up", func() bool { return c.stores[away].Age() < time.Second })
	c.same()
	// Each ended run is there once.
	seen := map[jobs.ID]int{}
	cursor := ""
	for {
		page, err := c.stores[away].Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, State: jobs.Succeeded, Limit: 200, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Runs {
			if seen[run.ID]++; seen[run.ID] > 1 {
				t.Fatalf("run %s is there twice", run.ID)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) < n {
		t.Errorf("%d runs are there, %d have ended", len(seen), n)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An interrupted fetch continues where it was, and refuses records that were changed on the way.
func TestFetchIsTakenUp(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	steady := func(c *Config) { c.Heartbeat, c.ArchiveFile = calm, 300_000 } // larger than the first budget
	c := newCluster(t, 2, steady)
	leader := c.leader()
	do(t, leader, register("k"))
	for range 30 {
		finish(t, leader, 100)
		if err := leader.archive.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	c.same()
	token := invite(t, leader)
	// The connections of the node that joins break after some bytes, at first soon and then later.
	var mu sync.Mutex
	budget, broken := int64(200_000), 0
	// The pause between its attempts.
	conf := nodeConfig(t, 2, func(c *Config) { c.Heartbeat = time.Second })
	conf.dialer = dialer(func(n int) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if budget -= int64(n); budget < 0 {
			budget = int64(200_000 * (1 + broken))
			broken++
			return 0, io.ErrUnexpectedEOF
		}
		return n, nil
	})
	s, err := Join(ctx, conf, token)
	if err != nil {
		t.Fatal(err)
	}
	c.configs, c.stores = append(c.configs, conf), append(c.stores, s)
	mu.Lock()
	t.Logf("the connection broke %d times", broken)
	if broken == 0 {
		t.Error("nothing was cut off")
	}
	budget = 1 << 60
	mu.Unlock()
	c.same()
	// It has segments of the others, byte by byte.
	var all [3]string
	for i := range c.stores {
		files, err := filepath.Glob(filepath.Join(c.configs[i].Dir, archiveFolder, "*.seg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			all[i] += fmt.Sprintf("%x\n", sha256.Sum256(must(os.ReadFile(f))))
		}
	}
	t.Logf("segments:\n%s\n%s\n%s", all[0], all[1], all[2])
	if first, _, _ := strings.Cut(all[2], "\n"); first == "" || !strings.Contains(all[0]+all[1], first) {
		t.Error("no segment was taken as it is")
	}
}

// alike is a state machine with an archive of its own.
func alike(t *testing.T) *machine {
	t.Helper()
	s := &Store{cfg: Config{Dir: t.TempDir(), SnapshotAfter: 1 << 30, Trailing: 1}.withDefaults(), failed: make(chan struct{}), failures: make(chan error, 1), stop: func() {}}
	if _, err := s.openFiles(logger{Logger: s.cfg.Logger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.machine
}

// sink keeps a snapshot in memory.
type sink struct{ bytes.Buffer }

func (*sink) Close() error  { return nil }
func (*sink) ID() string    { return "sink" }
func (*sink) Cancel() error { return nil }

// A snapshot taken after any entry, and the entries after it, make the same rows and the same archive.
func TestSnapshotAtEveryIndex(t *testing.T) {
	tests.Long(t)
	long := alike(t)
	var entries []*raft.Log
	var hashes [][sha256.Size]byte
	var snapshots []*sink
	var ended []uint64
	at := time.Now().UTC() // the time in the IDs
	apply := func(m *machine, e *raft.Log) {
		t.Helper()
		switch r := m.Apply(e).(type) {
		case error:
			t.Fatal(r)
		case []metastore.Result:
			for _, r := range r {
				if r.Err != nil && m == long {
					t.Fatal(r.Err)
				}
			}
		}
	}
	var live []jobs.ID
	for i := range 60 {
		var batch []kernel.Command
		switch {
		case i == 0:
			batch = append(batch, register("k"))
		case i%7 == 3:
			batch = append(batch, kernel.Pause{Key: "k", Reason: "r"}, kernel.Resume{Key: "k"})
		case i%3 == 2 && len(live) > 2:
			for _, id := range live[:2] {
				batch = append(batch, kernel.Start{ID: id, Worker: "w", Attempt: 1}, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
			}
			live = live[2:]
		default:
			for _, k := range creates(3) {
				batch = append(batch, k)
				live = append(live, k.(kernel.Create).ID)
			}
		}
		envelopes := make([]kernel.Envelope, len(batch))
		for j, k := range batch {
			envelopes[j] = envelope(k)
		}
		at = metastore.Stamp(envelopes, at.Add(20*time.Second), at)
		data := encodeEntry(envelopes)
		if i%11 == 5 {
			data = replica.Mark()
		}
		e := &raft.Log{Index: uint64(10 + 2*i), Type: raft.LogCommand, Data: data}
		entries = append(entries, e)
		if i%11 == 5 {
			live = nil // the entry above is not applied
		}
		apply(long, e)
		hashes = append(hashes, long.Engine.Hash())
		taken, err := long.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		to := new(sink)
		if err := taken.Persist(to); err != nil {
			t.Fatal(err)
		}
		snapshots, ended = append(snapshots, to), append(ended, taken.(*captured).head.Ended)
	}
	want := archivedBy(t, long)
	log := raft.NewInmemStore()
	for _, e := range entries {
		if err := log.StoreLogs([]*raft.Log{e, {Index: e.Index + 1, Type: raft.LogNoop}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range snapshots {
		m := alike(t)
		if err := m.copyFrom(long, ended[i]); err != nil {
			t.Fatal(err)
		}
		if err := m.Restore(io.NopCloser(bytes.NewReader(snapshots[i].Bytes()))); err != nil {
			t.Fatal(err)
		}
		if m.Engine.Hash() != hashes[i] {
			t.Fatalf("restored at entry %d, the rows are others", i)
		}
		for _, e := range entries[i+1:] {
			apply(m, e)
		}
		if m.Engine.Hash() != hashes[len(hashes)-1] {
			t.Fatalf("restored at entry %d and continued from there, the rows differ", i)
		}
		if archivedBy(t, m) != want {
			t.Fatalf("restored at entry %d, the archive is another", i)
		}
		// Without the archive nothing is applied before that is complete.
		if late := alike(t); ended[i] > 0 {
			if err := late.Restore(io.NopCloser(bytes.NewReader(snapshots[i].Bytes()))); err != nil {
				t.Fatal(err)
			}
			for rest := entries[i+1:]; len(rest) > 0; rest = rest[min(len(rest), 7):] {
				late.ApplyBatch(rest[:min(len(rest), 7)])
			}
			if _, lacks, err := late.catchUp(log); !lacks || err != nil || !late.isBehind() || late.Engine.Hash() != hashes[i] {
				t.Fatalf("restored at entry %d without the archive, it continues: %v", i, err)
			}
			if err := late.copyFrom(long, ended[i]); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; {
				var err error
				if done, _, err = late.catchUp(log); err != nil {
					t.Fatal(err)
				}
			}
			if late.isBehind() || late.Engine.Hash() != hashes[len(hashes)-1] || archivedBy(t, late) != want {
				t.Fatalf("restored at entry %d, and brought up to date later, rows or archive are others", i)
			}
		}
		// Truncated, or with a bit changed anywhere, it is not restored at all.
		was := m.Engine.Hash()
		for _, n := range []int{1, snapshots[i].Len() / 2, snapshots[i].Len() - 1} {
			hurt := bytes.Clone(snapshots[i].Bytes())
			hurt[n] ^= 4
			if m.Restore(io.NopCloser(bytes.NewReader(hurt))) == nil || m.Restore(io.NopCloser(bytes.NewReader(hurt[:n]))) == nil {
				t.Fatalf("a damaged snapshot is restored")
			}
		}
		if m.Engine.Hash() != was {
			t.Fatal("a damaged snapshot has changed the rows")
		}
	}
}

// copyFrom copies another replica's archive.
func (m *machine) copyFrom(from *machine, upTo uint64) error {
	return from.archive.Copy(ctx, m.archive.Last(), upTo, copyInto(m.archive, upTo))
}

func archivedBy(t *testing.T, m *machine) string {
	t.Helper()
	var b strings.Builder
	if err := m.archive.Copy(ctx, 0, m.archive.Last(), copyTo(&b)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(m.archive.Last(), "\n", b.String())
}

// A leader with a damaged snapshot does not send it, and makes another one for the node that needs it.
func TestRottenSnapshotIsNotSent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(c *Config) { c.SnapshotAfter, c.Trailing, c.Log = 1<<30, 1, LogBolt })
	s := c.leader()
	do(t, s, register("k"))
	for range 10 {
		do(t, s, creates(10)...)
	}
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	if s.log.GetLog(1, new(raft.Log)) == nil {
		t.Fatal("the log is not cut")
	}
	newest := must(newestSnapshot(must(raft.NewFileSnapshotStoreWithLogger(s.cfg.Dir, 2, logger{Logger: s.cfg.Logger})), s.cfg.Dir))
	change(t, filepath.Join(s.cfg.Dir, "snapshots", newest.ID, "state.bin"), func(b []byte) []byte { return b[:len(b)/2] })
	c.join(nil)
	c.same()
}
