package memstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// How much one read may cost: rows and time. Readers release the lock every stretch rows.
const (
	mostRows  = 20_000
	mostTime  = 100 * time.Millisecond
	stretch   = 512
	shortList = 10_000 // a list of up to this many is read at once and sorted
)

// Runs lists runs: live ones, newest first, then those that ended, last ended first.
func (e *Engine) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	at, err := parseCursor(q.Cursor)
	if err != nil {
		return metastore.Page{}, err
	}
	if q.Ended {
		at.phase = phaseArchive
	}
	size := q.Size()
	var page metastore.Page
	if at.phase == phaseLive {
		w := walk{engine: e, query: &q, after: at, size: size}
		if err := w.run(ctx); err != nil {
			return page, err
		}
		page.Runs = w.found
		if w.more {
			page.Next, page.Searched = w.last.String(), w.searched
			return page, nil
		}
	}
	if kernel.ValidState(q.State) && !q.State.Final() {
		return page, nil
	}
	return e.archived(ctx, q, at, page, size)
}

// archived fills a page up with runs that ended.
func (e *Engine) archived(ctx context.Context, q metastore.RunQuery, at cursor, page metastore.Page, size int) (metastore.Page, error) {
	live := page.Runs
	q.Cursor, q.Limit = at.archive, max(1, size-len(live))
	rest, err := e.archive.List(ctx, q)
	if err != nil {
		return page, err
	}
	if len(live) >= size { // only whether there is any
		if len(rest.Runs) > 0 || rest.Next != "" {
			page.Next = cursor{phase: phaseArchive}.String()
		}
		return page, nil
	}
	for _, run := range rest.Runs {
		// A run that has ended since the live ones were read would be here twice.
		if !slices.ContainsFunc(live, func(l *kernel.Run) bool { return l.ID == run.ID }) {
			page.Runs = append(page.Runs, run)
		}
	}
	if rest.Next != "" {
		page.Next = cursor{phase: phaseArchive, archive: rest.Next}.String()
	}
	page.Searched = rest.Searched
	return page, nil
}

// walk searches the live runs for those of a query.
type walk struct {
	engine *Engine
	query  *metastore.RunQuery
	after  cursor
	size   int

	found    []*kernel.Run
	last     cursor // the last run of the page, or the last one read if the walk was cut short
	more     bool   // something may follow last
	searched time.Time
}

// source chooses the list to search: the shortest that has all that the query selects. A list that is not in the
// order of creation serves only if it is short enough to be sorted.
func (s *space) source(q *metastore.RunQuery) (best *list, kind int) {
	best, kind = &s.all, inAll
	none := new(list)
	consider := func(l *list, k int) {
		if l == nil {
			l = none
		}
		if l.n < best.n && (ordered(k) || l.n <= shortList) {
			best, kind = l, k
		}
	}
	if q.Job != "" {
		var l *list
		if j := s.jobs[q.Job]; j != nil {
			l = &j.list
		}
		consider(l, inJob)
	}
	if !q.Parent.IsZero() {
		consider(s.parents[q.Parent], inParent)
	}
	if kernel.ValidState(q.State) {
		consider(&s.states[q.State], inState)
	}
	if q.Worker != "" {
		consider(s.workers[q.Worker], inWorker)
	}
	return best, kind
}

func (w *walk) run(ctx context.Context) error {
	w.engine.mu.RLock()
	s := w.engine.rows.spaces[w.query.Tenant]
	if s == nil {
		w.engine.mu.RUnlock()
		return nil
	}
	l, kind := s.source(w.query)
	if !ordered(kind) {
		nodes := w.gather(l, kind)
		w.engine.mu.RUnlock()
		w.sorted(nodes)
		return nil
	}
	n := l.last
	if known := s.nodes[w.after.id]; known != nil && known.links[kind].list == l {
		n = known
	}
	deadline, looked := time.Now().Add(mostTime), 0
	for n != nil {
		for i := 0; n != nil && i < stretch; i++ {
			if n.links[kind].list != nil && w.below(n) { // else it ended meanwhile, and is in the archive
				if looked++; w.look(n) {
					w.engine.mu.RUnlock()
					return nil
				}
			}
			n = n.links[kind].older
		}
		w.engine.mu.RUnlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		if n != nil && looked > 0 && (looked >= mostRows || time.Now().After(deadline)) {
			w.more = true
			if len(w.found) < w.size {
				w.searched = time.Unix(0, w.last.created).UTC()
			}
			return nil
		}
		w.engine.mu.RLock()
	}
	w.engine.mu.RUnlock()
	return nil
}

// below reports whether a run follows the cursor.
func (w *walk) below(n *node) bool {
	return w.query.Cursor == "" || n.moment().before(w.after.moment)
}

// look takes a run if the query selects it, and reports whether the walk is done.
func (w *walk) look(n *node) bool {
	row := n.get()
	if !w.query.From.IsZero() && row.Created.Before(w.query.From) {
		return true
	}
	if !w.query.Matches(row) {
		if len(w.found) < w.size {
			w.last = cursorAt(n)
		}
		return false
	}
	if len(w.found) == w.size {
		w.more = true
		return true
	}
	w.found, w.last = append(w.found, row), cursorAt(n)
	return false
}

// placed is a run with its place, which may be read without the lock.
type placed struct {
	row *kernel.Run
	at  cursor
}

// gather takes all that a query selects from a short list.
func (w *walk) gather(l *list, kind int) []placed {
	var found []placed
	for n := l.first; n != nil; n = n.links[kind].newer {
		if w.below(n) {
			if row := n.get(); w.query.Matches(row) {
				found = append(found, placed{row, cursorAt(n)})
			}
		}
	}
	return found
}

func (w *walk) sorted(found []placed) {
	slices.SortFunc(found, func(a, b placed) int {
		if b.at.before(a.at.moment) {
			return -1
		}
		return 1
	})
	for i, p := range found {
		if i == w.size {
			w.more = true
			return
		}
		w.found, w.last = append(w.found, p.row), p.at
	}
}

// cursor is where a page ended: at a live run, or within the archive.
type cursor struct {
	phase byte
	moment
	id      jobs.ID
	archive string
}

const (
	phaseLive    = 'l'
	phaseArchive = 'a'
)

func cursorAt(n *node) cursor {
	return cursor{phase: phaseLive, moment: n.moment(), id: n.id}
}

func (c cursor) String() string {
	if c.phase == phaseArchive {
		return string(rune(phaseArchive)) + c.archive
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(c.created))
	b = binary.BigEndian.AppendUint32(b, c.rank)
	return string(rune(phaseLive)) + base64.RawURLEncoding.EncodeToString(append(b, c.id[:]...))
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{phase: phaseLive}, nil
	}
	c := cursor{phase: s[0], archive: s[1:]}
	switch c.phase {
	case phaseArchive:
		return c, nil
	case phaseLive:
		b, err := base64.RawURLEncoding.Strict().DecodeString(s[1:])
		if err == nil && len(b) == 8+4+len(c.id) {
			c.created = int64(binary.BigEndian.Uint64(b))
			c.rank = binary.BigEndian.Uint32(b[8:])
			copy(c.id[:], b[12:])
			c.archive = ""
			return c, nil
		}
	}
	return cursor{}, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous page", s)
}
