package metastore

import (
	"context"
	"sync/atomic"
	"time"
)

// The age of what a read returned, passed in its context: a follower whose leader does not answer reads its own copy,
// and pages show how old that may be.

type ageKey struct{}

// WithAge lets reads with ctx note how old their result may be; see AgeOf.
func WithAge(ctx context.Context) context.Context {
	return context.WithValue(ctx, ageKey{}, new(atomic.Int64))
}

// NoteAge notes that the result of a read with ctx may be so old, and reports whether it could: a caller that does not
// look at the age must not get an old result. The oldest counts.
func NoteAge(ctx context.Context, age time.Duration) bool {
	of, ok := ctx.Value(ageKey{}).(*atomic.Int64)
	if !ok {
		return false
	}
	for was := of.Load(); int64(age) > was && !of.CompareAndSwap(was, int64(age)); was = of.Load() {
	}
	return true
}

// AgeOf returns how old the results of reads with ctx may be; 0: they were current.
func AgeOf(ctx context.Context) time.Duration {
	if of, ok := ctx.Value(ageKey{}).(*atomic.Int64); ok {
		return time.Duration(of.Load())
	}
	return 0
}

type copyKey struct{}

// FromCopy lets this node's rows, which may be a moment old, answer reads with ctx: for frequent reads.
func FromCopy(ctx context.Context) context.Context { return context.WithValue(ctx, copyKey{}, true) }

// CopyWillDo reports whether ctx comes from FromCopy.
func CopyWillDo(ctx context.Context) bool { will, _ := ctx.Value(copyKey{}).(bool); return will }
