package dblog

import (
	"context"
	"time"
)

// Led has the node lead a term as if its lease had been confirmed at a time.
func (l *Log) Led(ctx context.Context, term uint64, confirmed time.Time) error {
	l.confirm(term, confirmed)
	return l.begin(ctx, ctx, term, func(error) {})
}

// Thawed has the node remember no later confirmation than one before its lease: as if it had been frozen since.
func (l *Log) Thawed(term uint64) { l.confirm(term, time.Now().Add(-DefaultLease)) }
