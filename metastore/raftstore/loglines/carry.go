package loglines

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// All are all lines, run by run. It holds the names of all runs in memory.
func (l *Logs) All(ctx context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(yield func(metastore.LogLine, error) bool) {
		names, err := l.names(ctx)
		for _, n := range names {
			if err != nil {
				break
			}
			after := metastore.LogPosition{}
			for more := true; more && err == nil; err = ctx.Err() {
				var lines []metastore.LogLine
				if lines, err = l.Read(ctx, n.tenant, n.run, after, perStep); err != nil {
					break
				}
				for _, line := range lines {
					if !yield(line, nil) {
						return
					}
					after = line.LogPosition
				}
				more = len(lines) == perStep
			}
		}
		if err != nil {
			yield(metastore.LogLine{}, err)
		}
	}
}

// names are the runs that have lines, in the order in which their first ones arrived.
func (l *Logs) names(ctx context.Context) (names []name, err error) {
	l.mu.RLock()
	files, sizes := l.files, make([]int64, len(l.files))
	for i, f := range files {
		sizes[i] = f.length
	}
	l.mu.RUnlock()
	seen := map[name]bool{}
	for i, f := range files {
		_, _, err := l.scan(f, sizes[i], func(_ int64, r *label) {
			if !seen[r.name] {
				seen[r.name] = true
				names = append(names, r.name)
			}
		})
		if err = errors.Join(err, ctx.Err()); err != nil && !errors.Is(err, os.ErrClosed) {
			return nil, err
		}
	}
	return names, nil
}

// Fill adds lines that come run by run from another store. Those of one file are purged together, when the last of
// them is old.
func (l *Logs) Fill(lines iter.Seq2[metastore.LogLine, error]) error {
	var waiting []metastore.LogLine
	var size int
	var newest time.Time
	flush := func() error {
		at := l.cfg.Now()
		if newest.Before(at) {
			at = newest
		}
		err := l.store(waiting, at)
		waiting, size, newest = waiting[:0], 0, time.Time{}
		return err
	}
	for line, err := range lines {
		if err == nil && size > 4*perRecord {
			err = flush()
		}
		if err != nil {
			return fmt.Errorf("fill logs: %w", err)
		}
		if waiting, size = append(waiting, line), size+line.Size(); line.At.After(newest) {
			newest = line.At
		}
	}
	err := flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.sync()
	if err = errors.Join(err, l.err); err != nil {
		return fmt.Errorf("fill logs: %w", err)
	}
	return nil
}
