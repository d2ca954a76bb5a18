package sqlstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// Entries are read back to the last bit whatever their sizes, and however many a statement has: a driver may send it in
// one way or another, because of its size.
func TestEntriesOfAnySize(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		l := func() logTable { s := open(t, Config{URL: url}); _ = s.log.Close(); return logTable{s, s.logDB} }() // no node applies them
		bytesOf := rand.NewChaCha8([32]byte{34})
		for _, sizes := range [][]int{{1 << 10}, {1 << 20, 3, 1 << 20}, {9 << 20, 9 << 20}, {15 << 20}} {
			seq, prev, _, err := l.End(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var rows []dblog.Row
			for i, n := range sizes {
				r := dblog.Row{Seq: seq + 1 + uint64(i), Term: 1, Prev: prev, Entry: make([]byte, n)}
				_, _ = bytesOf.Read(r.Entry)
				_, _ = bytesOf.Read(r.Hash[:])
				rows, prev = append(rows, r), r.Hash
			}
			if done, _, err := l.Insert(t.Context(), rows); !done || err != nil {
				t.Errorf("entries of %v bytes: %v, %v", sizes, done, err)
			}
			for i := range rows {
				found, err := l.Rows(t.Context(), rows[i].Seq-1, 1)
				if err != nil || len(found) != 1 || found[0].Prev != rows[i].Prev || found[0].Hash != rows[i].Hash || !bytes.Equal(found[0].Entry, rows[i].Entry) {
					t.Fatalf("of entries of %v bytes number %d is read back as another one (%v)", sizes, i, err)
				}
			}
		}
	})
}

// A MariaDB that takes too little at once is refused by the setting's name. With as little as it may have, much that is
// requested at once is stored as it was given.
func TestSmallPackets(t *testing.T) {
	url := sqltest.MariaDB.New(t)
	db := sqltest.MariaDB.Open(t, url)
	set := func(n int) {
		t.Helper()
		if _, err := db.Exec(fmt.Sprint("SET GLOBAL max_allowed_packet = ", n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(16 << 20) })
	set(1 << 20)
	if s, err := Open(t.Context(), Config{URL: url}); err == nil || !strings.Contains(err.Error(), "max_allowed_packet of this MariaDB is 1048576 bytes: at least 4194304 are required") {
		if err == nil {
			_ = s.Close()
		}
		t.Errorf("a packet of 1 MiB: %v", err)
	}
	set(leastPacket)
	c := Config{URL: url}
	s := led(t, c)
	do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	args := []byte(`{"a":"` + strings.Repeat(`\"é`, 50_000) + `"}`)
	var ids sync.Map
	var clients sync.WaitGroup
	for range 10 {
		clients.Go(func() {
			for range 4 {
				k := create("k")
				k.Args = args
				if err := s.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err; err != nil {
					t.Error(err)
				}
				ids.Store(k.ID, true)
			}
		})
	}
	clients.Wait()
	other := open(t, c)
	ids.Range(func(id, _ any) bool {
		run, err := other.Run(t.Context(), jobs.DefaultTenant, id.(jobs.ID))
		if err != nil || !bytes.Equal(run.Args, args) {
			t.Errorf("run %s is not as it was requested (%v)", id, err)
		}
		return err == nil
	})
}

// A list that does not fit into an entry is cut; one command that does not fit is refused by the limit's name.
func TestTooLargeForThePacket(t *testing.T) {
	s := led(t, Config{URL: sqltest.Postgres.New(t)})
	do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	small := replica.New(replica.Config{Machine: s.machine, Log: s.log, Now: s.now, MaxEntry: 1000, Largest: 1000})
	var list []kernel.Command
	for range 50 {
		list = append(list, create("k"))
	}
	do(t, small, list...)
	k := create("k")
	k.Args = []byte(`{"a":"` + strings.Repeat("a", 2000) + `"}`)
	if err := small.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err; !errors.Is(err, jobs.Exhausted) || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("a command that does not fit: %v", err)
	}
}
