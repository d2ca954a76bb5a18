package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// A leader whose database was restored beneath it writes no finished runs of its lost past, and so does not move the
// mark past the runs of the leader that follows the restored log.
func TestHistoryOfALostPastIsNotWritten(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		at, past := time.Now().UTC(), dblog.Hash{}
		row := func(seq byte, nonce byte) dblog.Hash { // the log gets an entry
			hash := dblog.Hash{seq, nonce}
			r := dblog.Row{Seq: uint64(seq), Term: 1, Prev: past, Hash: hash, Entry: replica.TermEntry()}
			done, _, err := logTable{s, s.db}.Insert(t.Context(), []dblog.Row{r})
			if err != nil || !done {
				t.Fatalf("row %d is not inserted: %v", seq, err)
			}
			past = hash
			return hash
		}
		node := func() *history {
			h := newHistory(historyConfig{db: s.db, dialect: s.dialect, episodes: episode.New(nil),
				leads: func() bool { return true }})
			t.Cleanup(h.close)
			return h
		}
		ends := func(h *history, seq byte, hash dblog.Hash, n int) {
			h.applying(uint64(seq), hash)
			h.settle(uint64(seq), over(n, at))
		}
		step := func(h *history) error { return h.step(t.Context()) }
		old, next := node(), node()
		first := row(1, 1)
		ends(old, 1, first, 1)
		if err := step(old); err != nil || count(t, s, "SELECT COUNT(*) FROM carillon_runs") != 1 {
			t.Fatalf("a run of the log is not written: %v", err)
		}
		// The database goes on from here, in another history than the old leader's.
		for seq := byte(2); seq < 6; seq++ {
			ends(old, seq, dblog.Hash{seq, 1}, int(seq))
			if err := step(old); err == nil || !strings.Contains(err.Error(), "no longer has entry") {
				t.Errorf("a run of a lost entry is written: %v", err)
			}
			ends(next, seq, row(seq, 2), 100+int(seq))
			if err := step(next); err != nil {
				t.Error(err)
			}
		}
		for seq := byte(2); seq < 6; seq++ {
			for n, want := range map[int]bool{int(seq): false, 100 + int(seq): true} {
				id := over(n, at).ID
				found := 0
				err := s.db.QueryRow(s.dialect.ask("SELECT COUNT(*) FROM carillon_runs WHERE id = ?"), bytesOf(id)).
					Scan(&found)
				if err != nil || (found > 0) != want {
					t.Errorf("run %d is there: %v, want %v (%v)", n, found > 0, want, err)
				}
			}
		}
	})
}

// A restored database may lack the partitions that were made since.
func TestAFailedWriteMakesPartitionsAgain(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		if s.dialect.partition == nil {
			t.Skip("it has none")
		}
		h, lead := historyOf(t, s, 0)
		h.settle(1, over(1, time.Now()))
		lead(true)
		if err := h.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		for day := range daysAhead + 1 {
			exec(t, s.db, "DROP TABLE IF EXISTS "+partitionName(time.Now().UTC().AddDate(0, 0, day)))
		}
		h.settle(2, over(2, time.Now()))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := h.settled(ctx); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM carillon_runs"); n != 1 {
			t.Errorf("%d runs are there, want 1", n)
		}
	})
}

// A term that the database has not given, or not any more, writes no table.
func TestOnlyTheTermThatLeadsWritesTables(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		for _, table := range [][2]string{{"carillon_mark", "jobs"}, {"carillon_live_term", "term"}} {
			exec(t, s.db, "UPDATE carillon_leader SET term = 5")
			for _, c := range []struct {
				term uint64
				want error
			}{{7, errLaterTerm}, {5, nil}, {5, nil}, {4, errLaterTerm}} {
				err := s.history.within(t.Context(), func(tx *sql.Tx) error {
					return s.inTerm(t.Context(), tx, table[0], table[1], c.term)
				})
				if !errors.Is(err, c.want) {
					t.Errorf("%s in term %d: %v, want %v", table[0], c.term, err, c.want)
				}
			}
			exec(t, s.db, "UPDATE carillon_leader SET term = 6")
			err := s.history.within(t.Context(), func(tx *sql.Tx) error {
				return s.inTerm(t.Context(), tx, table[0], table[1], 5)
			})
			if !errors.Is(err, errLaterTerm) {
				t.Errorf("%s in a term that has ended: %v", table[0], err)
			}
		}
	})
}
