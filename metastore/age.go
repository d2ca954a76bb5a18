package metastore

import (
	"context"
	"sync/atomic"
	"time"
)

// How old what was read may be, told on the side: a node that does not lead, and whose leader does not answer, reads its
// own copy, and whoever shows that says so.

type ageKey struct{}

// WithAge lets what is read with ctx say how old it may be; see AgeOf.
func WithAge(ctx context.Context) context.Context {
	return context.WithValue(ctx, ageKey{}, new(atomic.Int64))
}

// NoteAge says that something that was read with ctx may be so old. The oldest counts.
func NoteAge(ctx context.Context, age time.Duration) {
	if of, ok := ctx.Value(ageKey{}).(*atomic.Int64); ok {
		for was := of.Load(); int64(age) > was && !of.CompareAndSwap(was, int64(age)); was = of.Load() {
		}
	}
}

// AgeOf is how old what was read with ctx may be; 0: it is what held when it was asked for.
func AgeOf(ctx context.Context) time.Duration {
	if of, ok := ctx.Value(ageKey{}).(*atomic.Int64); ok {
		return time.Duration(of.Load())
	}
	return 0
}

type copyKey struct{}

// FromCopy lets reads with ctx be answered by the rows of this node, which may be a moment old: for what is read again
// and again.
func FromCopy(ctx context.Context) context.Context { return context.WithValue(ctx, copyKey{}, true) }

// CopyWillDo says that ctx comes from FromCopy.
func CopyWillDo(ctx context.Context) bool { will, _ := ctx.Value(copyKey{}).(bool); return will }
