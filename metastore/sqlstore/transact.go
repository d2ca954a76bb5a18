package sqlstore

import (
	"context"
	"database/sql"
)

// transact calls fn in a transaction.
func transact(ctx context.Context, db *sql.DB, level sql.IsolationLevel, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = bound(ctx, tx.Rollback)
		return err
	}
	return bound(ctx, tx.Commit)
}

// bound calls what a driver does without a context. Once ctx ends nobody waits for it: what it did is unknown then, and
// the end of its wire ends it.
func bound(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
