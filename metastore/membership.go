package metastore

import (
	"context"
	"time"
)

// Crew is who fires the due times of a store that several processes write to, a share of the jobs each. It is told for
// the members' sake, and for people's: what is right is decided by each commit, whoever it thinks is a member.
type Membership interface {
	// Stay says that a member is there for so long from now, by a clock that all members share. Of two with one name the
	// last to say so is the member.
	Stay(ctx context.Context, m Member, lease time.Duration) error
	// Leave says that a member is gone; nothing happens if it is, or if another of its name has come since.
	Leave(ctx context.Context, m Member) error
	// Members lists those who are there, by name.
	Members(ctx context.Context) ([]Member, error)
}

// Member is a process that fires a share of the jobs.
type Member struct {
	Node  string
	Nonce string    // of its start
	Fired uint64    // due times that it has made runs of since then
	Since time.Time // that it is there, by the clock that all share; filled by Members
}
