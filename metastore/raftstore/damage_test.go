package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
)

// filled is a directory with a log, a snapshot and an archive.
func filled(t *testing.T, kind string) Config {
	t.Helper()
	c := Config{Dir: t.TempDir(), Log: kind, SnapshotAfter: 1 << 30, Trailing: 1, ArchiveFile: 16 << 10}
	s := open(t, c)
	do(t, s, register("k"))
	do(t, s, creates(500)...)
	finish(t, s, 60) // a segment
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		do(t, s, creates(50)...)
	}
	finish(t, s, 10)
	writeLines(t, s, 100) // two files
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// writeLines stores some log lines, a block each.
func writeLines(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		line := metastore.LogLine{Tenant: jobs.DefaultTenant, Run: jobs.ID{1}, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: uint64(i + 1)},
			At: time.Now(), Level: "INFO", Text: strings.Repeat("text ", 40)}
		if err := s.Logs().Append(ctx, []metastore.LogLine{line}); err != nil {
			t.Fatal(err)
		}
	}
}

// Finished runs and log lines share the bytes that they may take: lines use half of them at most, and runs what lines
// leave.
func TestS0_26RunsAndLinesShareTheBytes(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), Log: LogBolt, ArchiveFile: 16 << 10})
	do(t, s, register("k"))
	const most = 400 << 10
	retain := func() (runs int, lines int64) {
		t.Helper()
		now := time.Now()
		done, err := s.Retain(ctx, metastore.Retention{Now: now, Of: metastore.KeptBy(ctx, s, now), Bytes: most, Logs: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		lines = s.logs.Size()
		_, archived := s.archive.Size()
		if done.Bytes != archived+lines || done.Bytes > most || lines > most/2 {
			t.Fatalf("runs take %d bytes and lines %d, %d together, at most %d", archived, lines, done.Bytes, most)
		}
		runs, _, err = s.archive.Len(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return runs, lines
	}
	for range 15 {
		finish(t, s, 100)
		if err := s.archive.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	alone, _ := retain()
	if _, archived := s.archive.Size(); archived < most*3/4 {
		t.Fatalf("runs take %d bytes: without lines, they may take %d", archived, most)
	}
	writeLines(t, s, 3000)
	both, lines := retain()
	if both >= alone*3/4 || both < alone/4 || lines < most/4 {
		t.Errorf("%d runs are left of %d, and lines take %d bytes", both, alone, lines)
	}
}

func change(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, how(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// flip changes a bit in each copy of a run's arguments.
func flip(b []byte) []byte { return bytes.ReplaceAll(b, []byte("customer"), []byte("customes")) }

// rename replaces a word everywhere.
func rename(from, to string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(from), []byte(to)) }
}

// newestMeta changes a bit of the page that bbolt wrote last.
func newestMeta(b []byte) []byte {
	page := os.Getpagesize()
	if number := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at+64:]) }; number(0) > number(page) {
		page = 0
	}
	b[page+24] ^= 1
	return b
}

// circle has the branches of a bbolt file lead to themselves.
func circle(b []byte) []byte {
	page := os.Getpagesize()
	for at := 0; at+page <= len(b); at += page {
		if id := binary.NativeEndian.Uint64(b[at:]); id > 1 && binary.NativeEndian.Uint16(b[at+8:]) == 1 {
			binary.NativeEndian.PutUint64(b[at+16+8:], id)
		}
	}
	return b
}

// withoutEntry takes an entry out of the middle of a log.
func withoutEntry(b []byte) []byte {
	f := must(os.CreateTemp("", "raft"))
	defer os.Remove(f.Name())
	_, err := f.Write(b)
	db := must(bbolt.Open(f.Name(), 0o600, nil))
	err = errors.Join(err, f.Close(), db.Update(func(tx *bbolt.Tx) error {
		entries := tx.Bucket([]byte("logs"))
		last, _ := entries.Cursor().Last()
		return entries.Delete(binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(last)-2))
	}), db.Close())
	if err != nil {
		panic(err)
	}
	return must(os.ReadFile(f.Name()))
}

// A damaged file is refused by its name; nothing panics, and nothing continues without it.
func TestDamage(t *testing.T) {
	half := func(b []byte) []byte { return b[:len(b)/2] }
	for _, test := range []struct {
		what string
		kind string
		file string
		how  func([]byte) []byte
	}{
		{"snapshot, a bit", LogBolt, "snapshots/*/state.bin", flip},
		{"snapshot, cut", LogBolt, "snapshots/*/state.bin", half},
		{"snapshot, empty", LogBolt, "snapshots/*/state.bin", func([]byte) []byte { return nil }},
		{"snapshot, meta", LogBolt, "snapshots/*/meta.json", half},
		{"snapshot, no meta", LogBolt, "snapshots/*/meta.json", nil},
		{"bolt, empty", LogBolt, "raft.db", func([]byte) []byte { return nil }},
		{"bolt, an entry missing", LogBolt, "raft.db", withoutEntry},
		{"bolt, a bit", LogBolt, "raft.db", flip},
		{"bolt, cut", LogBolt, "raft.db", func(b []byte) []byte { return b[:3*4096] }},
		{"bolt, zeros", LogBolt, "raft.db", func(b []byte) []byte { clear(b[2*4096:]); return b }},
		{"bolt, no file of ours", LogBolt, "raft.db", func(b []byte) []byte { return bytes.Repeat([]byte("no"), 20_000) }},
		{"wal, a bit", LogWAL, "wal/*.wal", flip},
		{"wal, its end cut", LogWAL, "wal/*.wal", func(b []byte) []byte { return b[:len(bytes.TrimRight(b, "\x00"))*3/4] }},
		{"wal, nothing", LogWAL, "wal/*.wal", func([]byte) []byte { return nil }},
		{"wal, index of zeros", LogWAL, "wal/wal-meta.db", func(b []byte) []byte { clear(b); return b }},
		{"wal, its list of files", LogWAL, "wal/wal-meta.db", rename(`"NextSegmentID":`, `"NextSegmentIC":`)},
		{"wal, a meta page", LogWAL, "wal/wal-meta.db", newestMeta},
		{"wal, no vote", LogWAL, "wal/wal-meta.db", rename("LastVoteTerm", "LastVoteTerl")},
		{"bolt, a meta page", LogBolt, "raft.db", newestMeta},
		{"bolt, no vote", LogBolt, "raft.db", rename("LastVoteTerm", "LastVoteTerl")},
		{"bolt, a circle", LogBolt, "raft.db", circle},
		{"wal, index empty", LogWAL, "wal/wal-meta.db", func([]byte) []byte { return nil }},
		{"wal, cut", LogWAL, "wal/wal-meta.db", func(b []byte) []byte { return b[:5000] }},
		{"archive, a bit", LogBolt, "archive/open", flip},
		{"archive, its end cut", LogBolt, "archive/open", func(b []byte) []byte { return b[:len(b)-1] }},
		{"archive, an index", LogBolt, "archive/*.seg", func(b []byte) []byte { b[len(b)-40] ^= 1; return b }},
		{"archive, no mark", LogBolt, "archive/mark", func(b []byte) []byte { clear(b); return b }},
		{"archive, no file of ours", LogBolt, "archive/open", func(b []byte) []byte { return bytes.Repeat([]byte("no"), 20_000) }},
	} {
		t.Run(test.what, func(t *testing.T) {
			c := filled(t, test.kind)
			files, _ := filepath.Glob(filepath.Join(c.Dir, test.file))
			if len(files) != 1 {
				t.Fatalf("files are %v", files)
			}
			if test.how != nil {
				change(t, files[0], test.how)
			} else if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
			s, err := Open(c)
			if err == nil {
				_ = s.Close()
				t.Fatal("it opens all the same")
			}
			if named := filepath.Dir(files[0]); !strings.Contains(err.Error(), named) {
				t.Errorf("the error does not name %s: %v", named, err)
			}
			if _, damaged := errors.AsType[*disk.Damaged](err); !damaged {
				t.Errorf("it is not reported as damage: %v", err)
			}
			if strings.Contains(err.Error(), "runtime error") {
				t.Errorf("the error does not name the damage: %v", err)
			}
			t.Log(err)
		})
	}
}

func TestTwoProcesses(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	open(t, c)
	began := time.Now()
	_, err := Open(c)
	if err == nil || !strings.Contains(err.Error(), c.Dir) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second store opens with %v", err)
	}
	if d := time.Since(began); d > 20*raftlog.LockTimeout {
		t.Errorf("that took %v", d)
	}
}

// An existing log is used, and not ignored for one of another kind.
func TestLogOfAnotherKind(t *testing.T) {
	c := filled(t, LogBolt)
	c.Log = ""
	if err := open(t, c).Close(); err != nil {
		t.Fatal(err)
	}
	c.Log = LogWAL
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), c.Dir) {
		t.Errorf("it opens with %v", err)
	}
}

func TestLead(t *testing.T) {
	c := Config{Dir: t.TempDir()}
	s := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	terms := make(chan uint64)
	led := make(chan error, 1)
	go func() {
		led <- s.Lead(ctx, func(ctx context.Context, term uint64) error {
			terms <- term
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	first := <-terms
	// A node that loses its leadership and wins it again begins another term, after the old one has ended.
	s.standForElection()
	if second := <-terms; second <= first {
		t.Errorf("term %d follows %d", second, first)
	}
	cancel()
	if err := <-led; !errors.Is(err, context.Canceled) {
		t.Errorf("Lead ended with %v", err)
	}
}

func TestLeadEndsWithTheStore(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	begun, led := make(chan struct{}), make(chan error, 1)
	go func() {
		led <- s.Lead(context.Background(), func(ctx context.Context, _ uint64) error {
			close(begun)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-begun
	s.fail(errors.New("the disk is gone"))
	if err := <-led; err == nil || !strings.Contains(err.Error(), "disk is gone") {
		t.Errorf("Lead ended with %v", err)
	}
	if err := <-s.Err(); err == nil || !strings.Contains(err.Error(), "disk is gone") {
		t.Errorf("Err is %v", err)
	}
	if r := s.Apply(context.Background(), []kernel.Envelope{envelope(register("k"))}); !errors.Is(r[0].Err, jobs.Unknown) && !errors.Is(r[0].Err, jobs.Unavailable) {
		t.Errorf("a failed store answers %v", r[0].Err)
	}
}

// refusing is a log on a disk that refuses all writes.
type refusing struct {
	raft.LogStore
	asked int
}

func (r *refusing) StoreLogs([]*raft.Log) error {
	r.asked++
	return errors.New("no space left on device")
}

// A failed write is reported once and never tried again.
func TestFailedWriteIsNotRepeated(t *testing.T) {
	var reported []error
	inner := &refusing{}
	l := &raftLog{LogStore: inner, path: "/data/wal", fail: func(err error) { reported = append(reported, err) }}
	for range 3 {
		if err := l.StoreLogs(nil); err == nil || !strings.Contains(err.Error(), "/data/wal") {
			t.Errorf("the write ends with %v", err)
		}
	}
	if inner.asked != 1 || len(reported) != 1 {
		t.Errorf("the disk was written to %d times, and %d errors were reported", inner.asked, len(reported))
	}
	if err := l.SetUint64(nil, 1); err == nil {
		t.Error("it writes on")
	}
}

// rotten is a log in which an entry has changed since it was written.
type rotten struct{ raft.LogStore }

func (rotten) GetLog(index uint64, entry *raft.Log) error {
	*entry = raft.Log{Index: index, Type: raft.LogCommand, Data: flip(encodeEntry([]kernel.Envelope{envelope(create("k"))}))}
	return nil
}

// An entry that is damaged while the store is open is not passed on to a node that lags.
func TestRottenEntryIsNotPassedOn(t *testing.T) {
	var reported error
	l := &raftLog{LogStore: rotten{}, path: "/data/wal", knows: kernel.ApplyVersion, fail: func(err error) { reported = err }}
	if err := l.GetLog(7, new(raft.Log)); err == nil || reported == nil || !strings.Contains(reported.Error(), "/data/wal") || !strings.Contains(reported.Error(), "entry 7") {
		t.Errorf("it is read with %v; reported was %v", err, reported)
	}
}
