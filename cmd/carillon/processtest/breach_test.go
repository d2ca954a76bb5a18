//go:build unix

package processtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func second(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }

// made is a history that keeps all promises, to be spoilt: a delayed run, a run whose first worker was killed, a
// run asked for twice under one key, and a recurring job of which two due times fired and two were missed.
type made struct {
	history
	delayed, killed, unique *jobs.Instance
	ticks                   []*jobs.Instance
}

func newMade() *made {
	m := &made{}
	m.limits = map[jobs.Key]int{"a": 2}
	m.gone = map[int]time.Time{}
	m.delayed = m.run("a", second(3), 3.1, 3.3)
	m.wish(asked{at: noon, wish: jobs.Create{ID: m.delayed.ID, Key: "a", Delay: 3 * time.Second}, run: m.delayed.ID})

	m.killed = m.run("a", second(4), 20, 21)
	m.killed.Attempt, m.killed.Result = 2, []byte(`{"attempt":2}`)
	m.lines[len(m.lines)-1].Attempt, m.lines[len(m.lines)-2].Attempt = 2, 2
	m.line(began, m.killed, 1, 7, 4.1)
	m.gone[7] = second(5)
	m.wish(asked{at: second(4), wish: jobs.Create{ID: m.killed.ID, Key: "a"}, run: m.killed.ID})

	m.unique = m.run("b", second(6), 6.1, 6.2)
	m.wish(asked{at: second(6), wish: jobs.Create{ID: m.unique.ID, Key: "b", Unique: "u", Idempotency: "i"}, run: m.unique.ID})
	m.wish(asked{at: second(6), wish: jobs.Create{ID: jobs.NewID(noon), Key: "b", Unique: "u", Idempotency: "i"}, run: m.unique.ID, duplicate: true})

	for _, at := range []float64{1, 4} {
		in := m.run("tick", second(at), at+.1, at+.2)
		in.Origin = jobs.FromCron
		m.ticks = append(m.ticks, in)
	}
	m.ledger = []*jobs.Missed{{Key: "tick", From: second(2), To: second(3), Count: 2, Reason: jobs.MissedLate}}
	m.dues = map[jobs.Key][]time.Time{"tick": {second(1), second(2), second(3), second(4)}}
	return m
}

func (m *made) wish(a asked) { m.asked = append(m.asked, a) }

// run is one that succeeds in its first attempt, in process 1.
func (m *made) run(key jobs.Key, due time.Time, from, to float64) *jobs.Instance {
	in := &jobs.Instance{ID: jobs.NewID(noon), Key: key, State: jobs.Succeeded, Origin: jobs.FromCode, Due: due, Created: due, Ended: second(to), Attempt: 1, Result: []byte(`{"attempt":1}`)}
	m.runs = append(m.runs, in)
	m.line(began, in, 1, 1, from)
	m.line(ended, in, 1, 1, to)
	return in
}

func (m *made) line(what string, in *jobs.Instance, attempt uint32, pid int, at float64) {
	m.lines = append(m.lines, line{What: what, Run: in.ID, Key: in.Key, Due: in.Due, Attempt: attempt, PID: pid, At: second(at)})
}

// without takes away what the journals say of a run.
func (m *made) without(in *jobs.Instance, what string) {
	m.lines = slices.DeleteFunc(m.lines, func(l line) bool { return l.Run == in.ID && l.What == what })
}

func (m *made) drop(in *jobs.Instance) {
	m.runs = slices.DeleteFunc(m.runs, func(other *jobs.Instance) bool { return other == in })
}

// The checker finds nothing in a history that is well, and each breach in one that is not.
func TestCheckerFindsEachBreach(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*made)
		want  string
	}{
		{"all is well", func(*made) {}, ""},
		{"an outcome that is unknown may be nothing", func(m *made) {
			m.wish(asked{wish: jobs.Create{ID: jobs.NewID(noon), Key: "a"}, err: errors.New("no answer")})
		}, ""},
		{"a run that has failed for good has ended", func(m *made) { m.unique.State = jobs.Terminated }, ""},

		{"acknowledged and not there", func(m *made) { m.without(m.delayed, began); m.without(m.delayed, ended); m.drop(m.delayed) }, lost},
		{"still waiting at the end", func(m *made) { m.delayed.State = jobs.Enqueued }, lost},
		{"skipped", func(m *made) { m.delayed.State, m.delayed.Cause = jobs.Skipped, jobs.ByOverlap }, lost},
		{"cancelled by nobody", func(m *made) { m.delayed.State = jobs.Cancelled }, lost},
		{"succeeded without a handler", func(m *made) { m.without(m.delayed, began); m.without(m.delayed, ended) }, lost},
		{"succeeded before its handler had ended", func(m *made) { m.without(m.delayed, ended) }, lost},
		{"succeeded with an error", func(m *made) { m.lines[1].Cause = "no" }, lost},

		{"an attempt that begins twice", func(m *made) { m.line(began, m.delayed, 1, 9, 9); m.line(ended, m.delayed, 1, 9, 9.1) }, doubled},
		{"a second attempt without need", func(m *made) { m.once = true }, doubled},
		{"two runs for one due time", func(m *made) { m.run("tick", second(4), 5, 5.1).Origin = jobs.FromMisfire }, doubled},
		{"two rows for one run", func(m *made) { m.runs = append(m.runs, m.unique) }, doubled},
		{"a run that nobody asked for", func(m *made) { m.run("a", second(7), 7, 7.1) }, doubled},
		{"work for a run that is not there", func(m *made) { m.drop(m.ticks[0]); m.dues["tick"] = m.dues["tick"][1:] }, doubled},
		{"a wish answered by two runs", func(m *made) { m.wish(asked{wish: jobs.Create{ID: m.delayed.ID, Key: "a"}, run: m.unique.ID}) }, doubled},
		{"a duplicate that was made all the same", func(m *made) { m.asked[len(m.asked)-1].wish.ID = m.run("b", second(7), 7, 7.1).ID }, doubled},
		{"one idempotency key, two runs", func(m *made) {
			in := m.run("b", second(7), 7, 7.1)
			m.wish(asked{at: second(7), wish: jobs.Create{ID: in.ID, Key: "b", Idempotency: "i"}, run: in.ID})
		}, doubled},
		{"one unique key, two runs at once", func(m *made) {
			in := m.run("b", second(6.15), 6.15, 6.3)
			m.wish(asked{at: second(6.15), wish: jobs.Create{ID: in.ID, Key: "b", Unique: "u"}, run: in.ID})
		}, doubled},

		{"begun before its due time", func(m *made) { m.lines[0].At = second(2.999) }, early},
		{"due before it was asked for", func(m *made) {
			m.delayed.Due = second(2.9)
			m.lines[0].Due = m.delayed.Due
		}, early},
		{"a handler that is told another due time", func(m *made) { m.lines[0].Due = second(1) }, early},

		{"an attempt that begins while another is at work", func(m *made) { m.gone[7] = second(20.1) }, overlapping},
		{"an attempt that begins while another never ends", func(m *made) { delete(m.gone, 7) }, overlapping},
		{"three runs of a job for two", func(m *made) {
			for range 2 {
				in := m.run("a", second(3), 3.2, 3.25)
				m.wish(asked{at: second(3), wish: jobs.Create{ID: in.ID, Key: "a"}, run: in.ID})
			}
		}, overlapping},

		{"a late result that counts", func(m *made) { m.killed.Result = []byte(`{"attempt":1}`) }, stale},
		{"a late attempt that counts", func(m *made) {
			m.line(ended, m.killed, 1, 7, 4.9)
			m.killed.Attempt, m.killed.Result = 1, []byte(`{"attempt":1}`)
		}, stale},
		{"a token that shrinks", func(m *made) {
			m.line(began, m.killed, 1, 8, 22)
			m.line(ended, m.killed, 1, 8, 23)
			m.lines[4].Attempt = 3
		}, stale},

		{"a due time without a record", func(m *made) { m.dues["tick"] = append(m.dues["tick"], second(5)) }, undecided},
		{"a due time with a run and a range", func(m *made) { m.ledger[0].To, m.ledger[0].Count = second(4), 3 }, undecided},
		{"a due time in two ranges", func(m *made) {
			m.ledger = append(m.ledger, &jobs.Missed{Key: "tick", From: second(3), To: second(3), Count: 1, Reason: jobs.MissedPaused})
		}, undecided},
		{"a range that counts wrong", func(m *made) { m.ledger[0].Count = 3 }, undecided},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMade()
			c.spoil(m)
			slices.SortStableFunc(m.lines, func(a, b line) int { return a.At.Compare(b.At) })
			all := m.breaches()
			switch found := slices.ContainsFunc(all, func(b breach) bool { return b.name == c.want }); {
			case c.want == "" && len(all) > 0:
				t.Errorf("found %v", all)
			case c.want != "" && !found:
				t.Errorf("it is %s, found %v", c.want, all)
			}
		})
	}
}

// What a process writes while it is killed is either a line or nothing, and what it wrote before is kept.
func TestJournalKeepsWholeLines(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []line{{What: ended, At: second(2)}, {What: began, At: second(1)}} {
		if err := j.write(l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.file.WriteString(`{"what":"beg`); err != nil {
		t.Fatal(err)
	}
	lines, err := readJournals(dir)
	if err != nil || len(lines) != 2 || lines[0].What != began {
		t.Errorf("read %v (%v)", lines, err)
	}
}
