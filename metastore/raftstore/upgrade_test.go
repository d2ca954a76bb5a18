package raftstore

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// In these tests a node "knows version 2" by its configuration alone. Package cmd/carillon/processtest builds
// programs of two versions and compares their results.

// encodeEntry encodes a commit under the first version of the rules.
func encodeEntry(batch []kernel.Envelope) []byte {
	return replica.AppendEntry(nil, kernel.FirstApplyVersion, batch)
}

const newer = kernel.ApplyVersion + 1

func raise() []kernel.Envelope { return []kernel.Envelope{envelope(kernel.FinalizeUpgrade{To: newer})} }

// knowing is a cluster of three whose nodes know the newer rules, except those named.
func knowing(t *testing.T, adjust func(*Config), but ...string) *cluster {
	return newCluster(t, 3, func(c *Config) {
		c.Heartbeat, c.knows = calm, newer
		for _, name := range but {
			if c.Node == name {
				c.knows = kernel.ApplyVersion
			}
		}
		if adjust != nil {
			adjust(c)
		}
	})
}

// unanswered reports that a version was not raised because a node was too slow to answer: the test repeats the
// request.
func unanswered(err error) bool {
	return hazy(err) || errors.Is(err, jobs.Conflict) && strings.Contains(err.Error(), "does not answer")
}

// The version of the rules is raised when all members answer and know it, and not before; a refusal affects no
// other command. From then on a program that does not know it opens nothing, and destroys nothing.
func TestFinalizeUpgrade(t *testing.T) {
	tests.Long(t)
	c := knowing(t, nil, "node-2")
	const old = 1
	c.lead(c.stores[0])
	do(t, c, register("k"))
	finish(t, c, 5)
	refused := func(from metastore.Applier, words ...string) {
		t.Helper()
		var err error
		eventually(t, "it is refused because "+words[0], func() bool {
			r := from.Apply(ctx, append(raise(), envelope(create("k"))))
			if err = r[0].Err; err == nil {
				t.Fatalf("it is not refused because %s", words[0])
			}
			return errors.Is(err, jobs.Conflict) && strings.Contains(err.Error(), words[0]) && r[1].Err == nil
		})
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q lacks %q", err, w)
			}
		}
	}
	refused(c.stores[0], fmt.Sprintf("node node-2 knows version %d", kernel.ApplyVersion), fmt.Sprintf("version %d of the rules", newer), "start a newer program")
	c.stop(old)
	refused(c.stores[0], "node node-2 does not answer", "or remove the node")
	c.start(old)
	c.lead(c.stores[old])
	refused(c.stores[old], fmt.Sprintf("node node-2 knows version %d", kernel.ApplyVersion))
	for i, s := range c.stores {
		if v := s.ApplyVersion(); v != kernel.FirstApplyVersion {
			t.Errorf("node %d follows version %d", i+1, v)
		}
	}

	c.lead(c.stores[0])
	c.stop(old)
	c.configs[old].knows = newer
	c.start(old)
	eventually(t, "the version is raised", func() bool {
		err := c.leader().Apply(ctx, raise())[0].Err
		if err != nil && !unanswered(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if r := c.Apply(ctx, raise()); r[0].Err != nil || !r[0].Existing {
		t.Errorf("raised again: %+v", r[0])
	}
	c.same()
	for i, s := range c.stores {
		if v := s.ApplyVersion(); v != newer {
			t.Errorf("node %d follows version %d", i+1, v)
		}
	}
	audits, err := c.leader().Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Target: "rules"})
	if err != nil || len(audits) != 1 || string(audits[0].After) != fmt.Sprintf(`{"version":%d}`, newer) {
		t.Errorf("the record has %+v, %v", audits, err)
	}

	conf := nodeConfig(t, 8, func(c *Config) { c.knows = kernel.ApplyVersion })
	if _, err := Join(ctx, conf, invite(t, c.leader())); !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), fmt.Sprintf("version %d is in force here", newer)) {
		t.Errorf("an older program joins: %v", err)
	}
	i := c.index(c.follower())
	c.stop(i)
	tooOld(t, c.configs[i])
	c.start(i)
	finish(t, c, 5)
	c.same()
}

// tooOld opens a directory as a program that does not know the newer rules.
func tooOld(t *testing.T, c Config) {
	t.Helper()
	before := digests(t, c.Dir)
	c.knows = kernel.ApplyVersion
	s, err := Open(c)
	if err == nil {
		_ = s.Close()
		t.Fatal("a program that is too old opens the directory")
	}
	if want := fmt.Sprintf("written under version %d of the rules, and this program knows version %d", newer, kernel.ApplyVersion); !errors.Is(err, metastore.ErrTooOld) || !strings.Contains(err.Error(), want) {
		t.Errorf("it returns %v", err)
	}
	for path, sum := range digests(t, c.Dir) {
		// Opening these makes their library write.
		if before[path] != sum && !strings.HasPrefix(path, "wal/") {
			t.Errorf("%s has changed", path)
		}
	}
}

// digests are the files of a directory.
func digests(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	sums := map[string][sha256.Size]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		sums[path] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// A member that became an older program between its answer and the raise stops at that entry, and continues from
// there when it is the newer one again.
func TestTooOldFollowerStops(t *testing.T) {
	tests.Long(t)
	c := knowing(t, nil, "node-3")
	const old = 2
	c.lead(c.stores[0])
	do(t, c, register("k"))
	finish(t, c, 5)
	c.same()
	leader := c.leader()
	batch := raise()
	metastore.Stamp(batch, time.Now(), time.Time{})
	if err := leader.raft.Apply(replica.AppendEntry(nil, kernel.FirstApplyVersion, batch), patience).Error(); err != nil {
		t.Fatal(err)
	}
	stopped := c.stores[old]
	ended(t, stopped, metastore.ErrTooOld)
	_ = stopped.Close()
	c.stores[old] = nil
	finish(t, c, 5) // the others continue
	tooOld(t, c.configs[old])
	c.configs[old].knows = newer
	c.start(old)
	c.same()
}

// A snapshot names the version that was in force, so that a program that does not know it changes nothing.
func TestSnapshotOfNewerRules(t *testing.T) {
	c := Config{Dir: t.TempDir(), Log: LogWAL, knows: newer, Trailing: 1}
	s := open(t, c)
	do(t, s, register("k"))
	do(t, s, creates(3)...)
	do(t, s, kernel.FinalizeUpgrade{To: newer})
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	taken := new(sink)
	captured, err := s.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := captured.Persist(taken); err != nil {
		t.Fatal(err)
	}
	hash := s.machine.Engine.Hash()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tooOld(t, c)
	s = open(t, c)
	if s.ApplyVersion() != newer || s.machine.Engine.Hash() != hash {
		t.Errorf("version %d is in force after a restart", s.ApplyVersion())
	}

	// The same snapshot sent by a leader.
	var reported error
	m := alike(t)
	m.fail = func(err error) { reported = cmp.Or(reported, err) }
	if r, ok := m.Apply(&raft.Log{Index: 1, Type: raft.LogCommand, Data: encodeEntry([]kernel.Envelope{envelope(register("other"))})}).([]metastore.Result); !ok || r[0].Err != nil {
		t.Fatal(r)
	}
	before := m.Engine.Hash()
	if err := m.Restore(io.NopCloser(bytes.NewReader(taken.Bytes()))); !errors.Is(err, metastore.ErrTooOld) || !errors.Is(reported, metastore.ErrTooOld) {
		t.Errorf("it is restored with %v; reported was %v", err, reported)
	}
	if m.Engine.Hash() != before {
		t.Error("rows have changed")
	}
}

// The leader raises the version by itself, once all members have known it for a while.
func TestUpgradeIsFinalizedAfterADay(t *testing.T) {
	tests.Long(t)
	c := knowing(t, func(c *Config) { c.finalizeAfter = 50 * time.Millisecond })
	eventually(t, "all follow the newer version", func() bool {
		for _, s := range c.stores {
			if s.ApplyVersion() != newer {
				return false
			}
		}
		return true
	})
	audits, err := c.leader().Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Target: "rules"})
	if err != nil || len(audits) != 1 || !strings.HasPrefix(audits[0].Actor, "node:") || !strings.Contains(audits[0].Reason, "all nodes have known it") {
		t.Errorf("the record has %+v, %v", audits, err)
	}
}

// A field that this program does not know must not be skipped: rows would differ from those of members that know it.
func TestUnknownFieldStopsTheStore(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	do(t, s, register("k"))
	k := create("k")
	b := encodeEntry([]kernel.Envelope{envelope(k)})
	frame := len(b) - len(kernel.AppendCommand(nil, k)) - 4 // the last command's length
	b = append(b, 1)
	binary.LittleEndian.PutUint32(b[frame:], uint32(len(b)-frame-4))
	binary.LittleEndian.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	f := s.raft.Apply(b, patience)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	if err, failed := f.Response().(error); !failed || !strings.Contains(err.Error(), "unknown fields") {
		t.Errorf("the entry is answered with %v", f.Response())
	}
	ended(t, s, jobs.BadInput)
	if _, err := s.Run(ctx, jobs.DefaultTenant, k.ID); !errors.Is(err, jobs.NotFound) {
		t.Errorf("the run is there: %v", err)
	}
}

// Content of newer rules is not filled into a store of this program.
func TestFillWithNewerRules(t *testing.T) {
	from := open(t, Config{Dir: t.TempDir(), knows: newer})
	do(t, from, register("k"))
	do(t, from, kernel.FinalizeUpgrade{To: newer})
	dir := filepath.Join(t.TempDir(), "new")
	check := func(metastore.Content) error { return nil }
	if err := Fill(ctx, Config{Dir: dir}, from.Content(), check); !errors.Is(err, metastore.ErrTooOld) {
		t.Errorf("it is filled with %v", err)
	}
	if err := Fill(ctx, Config{Dir: dir, knows: newer}, from.Content(), check); err != nil {
		t.Fatal(err)
	}
	if s := open(t, Config{Dir: dir, knows: newer}); s.ApplyVersion() != newer {
		t.Errorf("version %d is in force", s.ApplyVersion())
	}
}
