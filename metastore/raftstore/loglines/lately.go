package loglines

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/carillon-scheduler/carillon/metastore"
)

// What is known of an attempt, its account and its sequence numbers, is in memory while it writes, and is read from
// the files when it writes again much later, or after a restart.

// written is what is stored of an attempt.
type written struct {
	account int    // bytes against metastore.MaxLog; beyond it once a line was dropped
	spans   []span // of sequence numbers, ascending, without neighbours
}

type span struct{ first, last uint64 }

// place is the first span that ends at a number or later.
func (w *written) place(sequence uint64) (i int, in bool) {
	return slices.BinarySearchFunc(w.spans, sequence, func(s span, n uint64) int {
		if s.first <= n && n <= s.last {
			return 0
		}
		return cmp.Compare(s.last, n)
	})
}

// add adds numbers that are not known yet.
func (w *written) add(first, last uint64) {
	i, _ := w.place(first)
	joins, joined := i > 0 && w.spans[i-1].last+1 == first, i < len(w.spans) && last+1 == w.spans[i].first
	switch {
	case joins && joined:
		w.spans[i-1].last = w.spans[i].last
		w.spans = slices.Delete(w.spans, i, i+1)
	case joins:
		w.spans[i-1].last = last
	case joined:
		w.spans[i].first = first
	default:
		w.spans = slices.Insert(w.spans, i, span{first, last})
	}
}

// keep notes lines of the attempt, without those that are stored already, and those beyond its limit.
func (w *written) keep(lines []metastore.LogLine) (kept []metastore.LogLine) {
	kept = lines[:0]
	for _, line := range lines {
		if _, known := w.place(line.Sequence); known || w.account > metastore.MaxLog {
			continue
		}
		if w.account += line.Size(); line.IsCut() { // of a store from which lines are copied
			w.account = max(w.account, metastore.MaxLog+1)
		} else if w.account > metastore.MaxLog {
			line = line.Cut()
		}
		w.add(line.Sequence, line.Sequence)
		kept = append(kept, line)
	}
	return kept
}

// lately is what is known of attempts that wrote lately.
type lately struct {
	young, old map[attempt]*written
	size       int // of young: attempts and spans
}

// mostYoung bounds what is remembered: beyond it, the young become the old ones.
const mostYoung = 8192

func (y *lately) forget() { *y = lately{} }

func (y *lately) get(a attempt) *written {
	w := y.young[a]
	if w == nil {
		if w = y.old[a]; w != nil {
			y.put(a, w)
		}
	}
	return w
}

func (y *lately) put(a attempt, w *written) {
	if y.young == nil || y.size >= mostYoung {
		y.young, y.old, y.size = make(map[attempt]*written), y.young, 0
	}
	y.young[a] = w
	y.size += 1 + len(w.spans)
}

// keep is [written.keep] of an attempt.
func (y *lately) keep(w *written, lines []metastore.LogLine) []metastore.LogLine {
	before := len(w.spans)
	kept := w.keep(lines)
	y.size += len(w.spans) - before
	return kept
}

// known is what is stored of an attempt of which a line arrives. An attempt begins with line 1: whether there are
// others is only asked where that may be sent again.
func (l *Logs) known(a attempt, sequence uint64) (*written, error) {
	if w := l.lately.get(a); w != nil {
		return w, nil
	}
	w := &written{}
	for _, f := range slices.Backward(l.files) {
		if sequence <= 1 && f != l.open && !(f.old && l.cfg.Now().Sub(l.opened) < resend) {
			continue
		}
		err := l.each(f, a.name, end(a.number-1), false, func(e entry) bool {
			if e.number != a.number {
				return false
			}
			if r, _, err := l.record(f, e); err == nil && r.attempt == a {
				w.account = max(w.account, r.account)
				if _, known := w.place(r.first); !known {
					w.add(r.first, r.first+r.count-1)
				}
			}
			return true
		})
		if err != nil && !errors.Is(err, os.ErrClosed) {
			return nil, err
		}
	}
	l.lately.put(a, w)
	return w, nil
}
