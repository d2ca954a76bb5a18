package sqlstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

const liveCount = "SELECT COUNT(*) FROM carillon_live"

// tableIs waits until the table has exactly the unfinished runs of a store, as they are.
func tableIs(t *testing.T, s *Store) {
	t.Helper()
	within(t, "the table has the unfinished runs as they are", func() bool {
		want := map[string]bool{}
		for run := range s.machine.Engine.Capture().Runs() {
			want[fmt.Sprintf("%s %s %s %d %s %s", run.ID, run.Key, run.State, run.Attempt, run.Worker, run.Args)] = true
		}
		rows, err := s.db.Query("SELECT " + s.dialect.idBytes + ", job, state, attempts, worker, COALESCE(args, '') FROM carillon_live")
		same := 0
		err = each(rows, err, func(scan func(...any) error) error {
			var id []byte
			var job, state, worker, args string
			var attempts int
			err := scan(&id, &job, &state, &attempts, &worker, &args)
			if !want[fmt.Sprintf("%s %s %s %d %s %s", jobs.ID(id), job, state, attempts, worker, args)] {
				same = -1 << 30
			}
			same++
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return same == len(want)
	})
}

func start(id jobs.ID) kernel.Start { return kernel.Start{ID: id, Worker: "w", Attempt: 1} }

func finish(id jobs.ID) kernel.Finish {
	return kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess}
}

// The table has the unfinished runs that are older than five seconds, as the leader has them, after a change of leader, too.
func TestLive(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		clock := storetest.NewClock()
		conf := func(node string, live bool) Config {
			return Config{URL: url, Node: node, Now: clock.Now, Live: live, liveEvery: 10 * time.Millisecond}
		}
		a, b, c := open(t, conf("a", true)), open(t, conf("b", true)), open(t, conf("c", false))
		stop := leading(t, a)
		do(t, a, register("k"))
		var runs []kernel.Create
		for i := range 4 {
			k := create("k")
			k.Args = fmt.Appendf(nil, `{"n":%d}`, i)
			runs = append(runs, k)
			do(t, a, k)
		}
		do(t, a, start(runs[0].ID), finish(runs[0].ID))
		time.Sleep(100 * time.Millisecond)
		if n := count(t, a, liveCount); n != 0 {
			t.Errorf("%d runs are there already", n)
		}
		clock.Advance(liveAge)
		tableIs(t, a)
		do(t, a, start(runs[1].ID))
		tableIs(t, a)
		do(t, a, start(runs[2].ID), finish(runs[2].ID), finish(runs[1].ID))
		tableIs(t, a)
		if n := count(t, a, liveCount); n != 1 {
			t.Errorf("%d runs are there, want the last one", n)
		}
		if n := count(t, a, liveCount+" WHERE app = 'app' AND priority = 0 AND code = '' AND error = '' AND parent IS NULL AND due_at IS NOT NULL AND created_at IS NOT NULL AND started_at IS NULL"); n != 1 {
			t.Error("its other columns are wrong")
		}
		// What the leader before has left there is wrong, and it may not even have had all.
		do(t, a, create("k"), create("k"))
		stop()
		if _, err := a.db.Exec(a.dialect.ask("UPDATE carillon_live SET id = ?"), a.dialect.uuid(jobs.NewID(time.Now()))); err != nil {
			t.Fatal(err)
		}
		stop = leading(t, b)
		within(t, "the old row is gone", func() bool { return count(t, b, liveCount+" WHERE created_at > '1971-01-01'") == 1 })
		clock.Advance(liveAge)
		tableIs(t, b)
		if err := a.emptyLive(t.Context(), 1); !errors.Is(err, errLaterTerm) {
			t.Errorf("a former leader writes the table: %v", err)
		}
		stop()
		leading(t, c)
		within(t, "a leader without the setting empties the table", func() bool { return count(t, c, liveCount) == 0 })
	})
}

// Many runs are written in parts, and those that nothing changes cost nothing from then on.
func TestLiveInParts(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		clock := storetest.NewClock()
		const every = 500 * time.Millisecond
		a := open(t, Config{URL: url, Node: "a", Now: clock.Now})
		stop := leading(t, a)
		do(t, a, register("k"))
		const many = 2*liveRows + 100
		var all []kernel.Command
		for range many {
			all = append(all, create("k"))
		}
		do(t, a, all...)
		clock.Advance(liveAge)
		stop()
		began := time.Now()
		b := led(t, Config{URL: url, Node: "b", Now: clock.Now, Live: true, liveEvery: every})
		for n := 0; n < many; time.Sleep(5 * time.Millisecond) {
			n = count(t, b, liveCount)
			if most := liveRows * (1 + int(time.Since(began)/every)); n > most {
				t.Errorf("%d rows, want at most %d", n, most)
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("%d rows after a minute", n)
			}
		}
		tableIs(t, b)
		var version string
		written := func() (v string) {
			if b.dialect == postgres {
				if err := b.db.QueryRow("SELECT xmin FROM carillon_live_term").Scan(&v); err != nil {
					t.Fatal(err)
				}
			}
			return v
		}
		time.Sleep(2 * every)
		version = written()
		time.Sleep(3 * every)
		if written() != version {
			t.Error("it writes although nothing has changed")
		}
		do(t, b, start(all[7].(kernel.Create).ID))
		tableIs(t, b)
	})
}

// Notes that nothing takes are bounded.
func TestLiveNotesAreBounded(t *testing.T) {
	l := live{on: true}
	for range liveNotes {
		l.note(&kernel.Run{})
	}
	if !l.on || len(l.notes) != liveNotes {
		t.Errorf("%d notes, on: %v", len(l.notes), l.on)
	}
	l.note(&kernel.Run{})
	if notes, on := l.take(); on || len(notes) > 0 {
		t.Errorf("%d notes, on: %v", len(notes), on)
	}
}

// Whatever happens to runs, and even if too much happens to be noted, the table ends up with those that are unfinished.
func TestLiveAtRandom(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		clock, dice := storetest.NewClock(), tests.Random(t)
		s := led(t, Config{URL: url, Now: clock.Now, Live: true, liveEvery: 5 * time.Millisecond})
		do(t, s, register("k"))
		var waiting, running []jobs.ID
		pick := func(from *[]jobs.ID) (id jobs.ID) {
			i := dice.IntN(len(*from))
			id = (*from)[i]
			*from = append((*from)[:i], (*from)[i+1:]...)
			return id
		}
		for i := range tests.Size(600, 1_000, 20_000) {
			switch n := dice.IntN(10); {
			case n < 4 || len(waiting) == 0:
				k := create("k")
				waiting = append(waiting, k.ID)
				do(t, s, k)
			case n < 6:
				id := pick(&waiting)
				running = append(running, id)
				do(t, s, start(id))
			case n < 7:
				do(t, s, kernel.Cancel{ID: pick(&waiting)})
			case n < 9 && len(running) > 0:
				do(t, s, finish(pick(&running)))
			default:
				clock.Advance(time.Duration(dice.IntN(4)) * time.Second)
			}
			if i == 300 {
				s.live.mu.Lock() // as if there were too many notes
				s.live.on, s.live.notes = false, nil
				s.live.mu.Unlock()
			}
		}
		clock.Advance(liveAge)
		tableIs(t, s)
	})
}
