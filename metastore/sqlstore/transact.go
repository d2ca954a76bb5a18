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

// bound calls what a driver does without a context. When ctx ends, bound returns without it: its outcome is
// unknown then, and it ends with its connection.
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
