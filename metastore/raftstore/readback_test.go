package raftstore

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// spoiling writes other bytes than it gets into snapshots; raft's checksum is that of what it writes.
type spoiling struct {
	raft.SnapshotStore
	spoil func(at int64, b []byte) []byte
}

func (s spoiling) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, trans)
	return &spoiled{SnapshotSink: sink, spoil: s.spoil}, err
}

type spoiled struct {
	raft.SnapshotSink
	spoil func(at int64, b []byte) []byte
	at    int64
}

func (s *spoiled) Write(b []byte) (int, error) {
	_, err := s.SnapshotSink.Write(s.spoil(s.at, bytes.Clone(b)))
	s.at += int64(len(b))
	return len(b), err
}

// A snapshot that cannot be read back is not published: the one before and the log stay, and a start has all rows.
func TestASnapshotThatCannotBeReadBack(t *testing.T) {
	for name, spoil := range map[string]func(at int64, b []byte) []byte{
		"its title is another": func(at int64, b []byte) []byte {
			if at == 0 {
				b[0]++
			}
			return b
		},
		"a bit is another": func(at int64, b []byte) []byte {
			if at > 100 {
				b[len(b)-1] ^= 1
			}
			return b
		},
		"a block is too long": func(_ int64, b []byte) []byte {
			if len(b) == 4 {
				return []byte{0, 0, 0, 0xff}
			}
			return b
		},
		"its end is missing": func(at int64, b []byte) []byte {
			if at > 100 {
				return nil
			}
			return b
		},
		"it is empty": func(int64, []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			conf := Config{Dir: t.TempDir(), Log: LogBolt, SnapshotAfter: 1 << 30, Trailing: 1}
			s := open(t, conf)
			snapshots := func() (names []string) {
				for _, folder := range []string{snapshotsFolder, filepath.Join(unverifiedFolder, snapshotsFolder)} {
					for _, e := range must(os.ReadDir(filepath.Join(conf.Dir, folder))) {
						names = append(names, e.Name())
					}
				}
				return names
			}
			do(t, s, register("k"))
			do(t, s, creates(10)...)
			if err := s.snapshot(); err != nil {
				t.Fatal(err)
			}
			do(t, s, creates(10)...)
			first, before := must(s.log.FirstIndex()), snapshots()
			whole := s.snapshots.unverified
			s.snapshots.unverified = spoiling{whole, spoil}
			if err := s.snapshot(); err == nil || !strings.Contains(err.Error(), errReadBack.Error()) {
				t.Fatalf("it is taken: %v", err)
			}
			do(t, s, creates(10)...)
			if is, now := must(s.log.FirstIndex()), snapshots(); is != first || len(now) != 1 || now[0] != before[0] {
				t.Errorf("the log begins with entry %d, and there are %q; before with %d and %q", is, now, first, before)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, conf)
			if page := must(s.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: 100})); len(page.Runs) != 30 {
				t.Errorf("there are %d runs, want 30", len(page.Runs))
			}
			if err := s.snapshot(); err != nil {
				t.Fatal(err)
			}
			if is, now := must(s.log.FirstIndex()), snapshots(); is == first || len(now) != 2 {
				t.Errorf("the log begins with entry %d, and there are %q", is, now)
			}
		})
	}
}

// A store whose snapshot cannot be read back goes on, says so, and takes another one after a while.
func TestAnotherSnapshotIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := open(t, Config{Dir: t.TempDir(), Log: LogBolt, SnapshotAfter: 1 << 30, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		do(t, s, register("k"))
		var tries, whole atomic.Int32
		s.snapshots.unverified = spoiling{s.snapshots.unverified, func(at int64, b []byte) []byte {
			if at == 0 {
				tries.Add(1)
			}
			if whole.Load() > 0 {
				return b
			}
			return nil
		}}
		s.machine.Bounds.Ask()
		time.Sleep(3*snapshotAgain + snapshotAgain/2)
		synctest.Wait()
		if tries.Load() != 4 || strings.Count(log.String(), "a snapshot cannot be read back") != 1 {
			t.Errorf("%d snapshots were written, want 4, and the log has\n%s", tries.Load(), &log)
		}
		do(t, s, creates(10)...)
		whole.Store(1)
		time.Sleep(snapshotAgain)
		synctest.Wait()
		if newest, err := newestSnapshot(s.snapshots, s.cfg.Dir); err != nil || newest == nil || !strings.Contains(log.String(), "another one is taken: ended") {
			t.Errorf("the newest snapshot is %v (%v), and the log has\n%s", newest, err, &log)
		}
	})
}
