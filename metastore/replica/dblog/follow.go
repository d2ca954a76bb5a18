package dblog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// errGap: rows after the last one that was applied have been cut, or are others than they were.
var errGap = errors.New("the log does not continue where the rows end")

// follow applies what other nodes write, while this one does not lead, until the log is closed.
func (l *Log) follow() {
	for l.ctx.Err() == nil {
		if !l.Leads() {
			switch err := l.catchUp(l.ctx); {
			case err == nil:
				l.episodes.End("", "the log was not read")
			case l.ctx.Err() == nil:
				l.episodes.Failed(slog.LevelWarn, "", "the log was not read", "err", err)
			}
		}
		pause(l.ctx, pollTime)
	}
}

// catchUp applies all that is in the log. It replaces the rows if the log is not the one that they are of.
func (l *Log) catchUp(ctx context.Context) error {
	asked := time.Now()
	end, hash, now, err := l.db.End(ctx)
	if err != nil {
		return err
	}
	l.clock.learn(now, asked)
	if err := l.turn.take(ctx); err != nil {
		return err
	}
	defer l.turn.give()
	if l.seq < end && l.Leads() {
		l.lose(errDeposed) // it would write behind what another node has written
	}
	if l.wrong.Load() {
		if err := l.reload(ctx); err != nil {
			return err
		}
	}
	for gaps := 0; ; gaps++ {
		ours, err := l.reach(ctx, end, hash)
		if err == nil && ours {
			l.mu.Lock()
			l.fresh = asked
			l.mu.Unlock()
		}
		if err != nil || ours {
			return err
		}
		if gaps == mostGaps {
			return errGap
		}
		if err := l.reload(ctx); err != nil {
			return err
		}
	}
}

// reach applies the log up to a row, and reports whether the rows are those of the log. The caller has the turn.
func (l *Log) reach(ctx context.Context, end uint64, hash Hash) (ours bool, err error) {
	for l.seq < end {
		if err := l.read(ctx); errors.Is(err, errGap) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	if l.Leads() || l.seq == end && l.hash == hash {
		return true, nil
	}
	// Other nodes may have written more since. Otherwise the log has lost its end.
	return l.has(ctx, Row{Seq: l.seq, Hash: l.hash})
}

// mostGaps is how many times the rows are read again while the log is read once: a snapshot may be replaced meanwhile.
const mostGaps = 3

// Leads reports whether this node may append, as far as it knows.
func (l *Log) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term > 0
}

// read applies a part of the log. The caller has the turn.
func (l *Log) read(ctx context.Context) error {
	rows, err := l.db.Rows(ctx, l.seq, atOnce)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return errGap
	}
	for _, r := range rows {
		if r.Prev != l.hash {
			return errGap
		}
		if err, failed := l.apply(r).(error); failed {
			return err
		}
		l.moved(r)
	}
	return nil
}

// reload replaces the rows, which are not those of the log. The caller has the turn.
func (l *Log) reload(ctx context.Context) error {
	was, wrong := l.seq, l.wrong.Swap(false)
	if err := l.restore(ctx); err != nil {
		if wrong {
			l.wrong.Store(true)
		}
		return err
	}
	if l.seq > was && !wrong {
		return nil // it was only far behind
	}
	if l.cfg.Forget(); wrong {
		return nil
	}
	l.cfg.Logger.Error("the database has lost entries that it had acknowledged", "err", fmt.Errorf("the log no longer has entry %d: the rows were read again from entry %d", was, l.seq))
	return nil
}

// load restores the rows at the start.
func (l *Log) load(ctx context.Context) error {
	if err := l.turn.take(ctx); err != nil {
		return err
	}
	defer l.turn.give()
	return l.restore(ctx)
}

// mostRestores is how many times a snapshot is read that is replaced meanwhile.
const mostRestores = 10

// restore fills the machine from the newest snapshot, or empties it if there is none. The caller has the turn.
func (l *Log) restore(ctx context.Context) error {
	for range mostRestores {
		s, err := l.db.Newest(ctx)
		if err != nil {
			return err
		}
		if s == nil {
			var empty bytes.Buffer
			if _, err := replica.WriteSnapshot(&empty, replica.Head{Rules: kernel.FirstApplyVersion}, func(func(kernel.Row) bool) {}); err != nil {
				return err
			}
			if _, err := l.cfg.Machine.Restore(&empty); err != nil {
				return err
			}
			l.seq, l.hash = 0, Hash{}
			return nil
		}
		if _, err := l.cfg.Machine.Restore(ReadParts(ctx, l.db, *s)); errors.Is(err, errReplaced) {
			continue
		} else if err != nil {
			return fmt.Errorf("read the snapshot at entry %d: %w", s.Seq, err)
		}
		l.cfg.Machine.Bounds.Restored(s.Seq)
		l.seq, l.hash = s.Seq, s.Hash
		return nil
	}
	return errReplaced
}

var errReplaced = errors.New("the snapshot was replaced while it was read")

// ReadParts reads a snapshot.
func ReadParts(ctx context.Context, from Database, s Snapshot) io.Reader {
	return &parts{ctx: ctx, db: from, of: s}
}

// parts reads a snapshot.
type parts struct {
	ctx  context.Context
	db   Database
	of   Snapshot
	next int
	rest []byte
}

func (p *parts) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.next == p.of.Parts {
			return 0, io.EOF
		}
		part, err := p.db.Part(p.ctx, p.of, p.next)
		if err != nil {
			return 0, err
		}
		if part == nil {
			return 0, errReplaced
		}
		p.rest = part
		p.next++
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
