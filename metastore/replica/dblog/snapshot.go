package dblog

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// keepShort takes a snapshot, and cuts the log, whenever that has become long while this node leads.
func (l *Log) keepShort() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.cfg.Machine.Bounds.Due():
		}
		if err := l.Snapshot(l.ctx); err != nil && l.ctx.Err() == nil {
			l.episodes.Failed(slog.LevelWarn, "", "no snapshot could be written", "err", err)
			pause(l.ctx, time.Second)
			l.cfg.Machine.Bounds.Ask()
		} else {
			l.episodes.End("", "no snapshot could be written")
		}
	}
}

// Snapshot writes the rows to the database and cuts the log behind them, if this node leads. Until it was read back,
// the snapshot before and the log behind that one stay.
func (l *Log) Snapshot(ctx context.Context) error {
	if err := l.turn.take(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	s := Snapshot{Name: NewName(), Seq: l.seq, Term: l.term, Hash: l.hash}
	l.mu.Unlock()
	if s.Term == 0 {
		l.turn.give()
		return nil
	}
	trailing := l.cfg.Machine.Bounds.Begin()
	rows, head, err := l.cfg.Machine.Capture()
	l.turn.give()
	if err != nil {
		return err
	}
	if err := l.cfg.Settled(ctx); err != nil {
		return err
	}
	if err := l.db.Sweep(ctx, s.Seq); err != nil { // before it takes more room
		return err
	}
	size, err := WriteParts(ctx, l.db, &s, head, rows.Stored())
	if err != nil {
		return err
	}
	back, err := replica.VerifySnapshot(ReadParts(ctx, l.db, s), head.Rules)
	if err == nil && back != head {
		err = fmt.Errorf("its head is %+v, want %+v", back, head)
	}
	if err != nil {
		return fmt.Errorf("read the new snapshot at entry %d back: %w", s.Seq, err)
	}
	done, err := l.db.Publish(ctx, s)
	if err != nil || !done {
		return err
	}
	l.cfg.Machine.Bounds.Snapshot(size, time.Now())
	if err := l.db.Sweep(ctx, s.Seq); err != nil {
		return err
	}
	if trailing >= s.Seq {
		return nil
	}
	return l.db.Cut(ctx, s.Seq-trailing)
}

// NewName returns the name of an attempt to write a snapshot.
func NewName() string { return rand.Text() }

// WriteParts writes the parts of a snapshot, sets their number, and returns the size of all.
func WriteParts(ctx context.Context, to Database, s *Snapshot, head replica.Head, rows iter.Seq[kernel.Row]) (size int64, err error) {
	w := &written{ctx: ctx, db: to, of: *s}
	if size, err = replica.WriteSnapshot(w, head, rows); err == nil {
		err = w.flush()
	}
	s.Parts = w.n
	return size, err
}

// written writes the parts of a snapshot.
type written struct {
	ctx  context.Context
	db   Database
	of   Snapshot
	n    int
	part []byte
}

func (w *written) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		room := partSize - len(w.part)
		k := min(room, len(b))
		w.part, b = append(w.part, b[:k]...), b[k:]
		if len(w.part) == partSize {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *written) flush() error {
	if len(w.part) == 0 {
		return nil
	}
	if err := w.db.PutPart(w.ctx, w.of, w.n, w.part); err != nil {
		return err
	}
	w.n++
	w.part = nil // the database may keep it
	return nil
}
