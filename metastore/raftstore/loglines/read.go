package loglines

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// part is a record of a file.
type part struct {
	*file
	entry
}

// perStep is how many records of a file are looked up at once, if lines have no limit.
const perStep = 1024

// Read lists the lines of a run after a position, oldest first. Unreadable lines are reported and left out.
func (l *Logs) Read(_ context.Context, tenant jobs.Tenant, run jobs.ID, after metastore.LogPosition, limit int) ([]metastore.LogLine, error) {
	n := name{tenant, run}
	var found []metastore.LogLine
	for from, first := after, true; ; first = false {
		parts, upTo, err := l.parts(n, from, first, cmp.Or(max(limit, 0), perStep))
		if err != nil {
			return found, err
		}
		for _, p := range parts {
			r, lines, err := l.record(p.file, p.entry)
			if err != nil || r.name != n {
				continue // reported, deleted meanwhile, or another run with the same hash
			}
			err = r.decode(lines, func(line metastore.LogLine) bool {
				if line.Compare(after) > 0 {
					found, after = append(found, line), line.LogPosition
				}
				return limit <= 0 || len(found) < limit
			})
			if err != nil {
				return found, err
			}
			if limit > 0 && len(found) == limit {
				return found, nil
			}
		}
		if upTo == nil {
			return found, nil
		}
		from = *upTo
	}
}

// parts is records that may be of a run and begin after a position, in order, with across also the one that the
// position is in: those that begin up to upTo; nil = all.
func (l *Logs) parts(n name, from metastore.LogPosition, across bool, most int) (parts []part, upTo *metastore.LogPosition, err error) {
	l.mu.RLock()
	files, closed := l.files, l.closed
	l.mu.RUnlock()
	if closed {
		return nil, nil, errClosed
	}
	for _, f := range files {
		of := 0
		var last metastore.LogPosition
		err := l.each(f, n, from, across, func(e entry) bool {
			if of >= most && e.begin() != last { // those of two runs with one hash may begin at the same position
				if upTo == nil || last.Compare(*upTo) < 0 {
					upTo = new(last)
				}
				return false
			}
			of, last = of+1, e.begin()
			parts = append(parts, part{f, e})
			return true
		})
		if err != nil && !errors.Is(err, os.ErrClosed) {
			return nil, nil, err
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return a.begin().Compare(b.begin()) })
	if upTo != nil {
		parts = slices.DeleteFunc(parts, func(p part) bool { return p.begin().Compare(*upTo) > 0 })
	}
	return parts, upTo, nil
}
