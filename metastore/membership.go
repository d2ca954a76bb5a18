package metastore

import (
	"context"
	"time"
)

// Membership is the list of processes that fire the due times of a store that several write to, a share of the jobs
// each. It informs members and people only: each commit checks a firing by itself.
type Membership interface {
	// Stay renews a member's lease, by a clock that all members share. Of two with one name the last to renew is the
	// member.
	Stay(ctx context.Context, m Member, lease time.Duration) error
	// Leave removes a member; nothing happens if it is gone, or if another of its name has come since.
	Leave(ctx context.Context, m Member) error
	// Members lists the members by name.
	Members(ctx context.Context) ([]Member, error)
}

// Member is a process that fires a share of the jobs.
type Member struct {
	Node  string
	Nonce string    // one for each start
	Fired uint64    // due times that it has fired since its start
	Since time.Time // start of its membership, by the shared clock; filled by Members
}
