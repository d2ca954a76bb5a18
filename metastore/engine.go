package metastore

import (
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Tx is the rows that Apply works on. It has no errors and no context because all rows are in memory.
// Rows are never changed in place: copy, change the copy, Put it.
type Tx interface {
	// Get returns the row, as the last Put of this batch left it, or nil. Of a settled run that has left the live
	// rows less than KeepFinal ago, it is a stub with ID, Tenant, Key, State, Attempt and Worker.
	Get(kernel.Ref) kernel.Row
	// First returns the run that is first at the gate: retries, then by priority, due time, id. Nil if none waits.
	First(gate kernel.Ref) *kernel.Run
	// Live is how many live runs of a tenant are in a state.
	Live(jobs.Tenant, jobs.State) int
	// Put stores a row. A Tally is added to the stored one. A settled run leaves the live rows for the archive.
	Put(kernel.Row)
	// Delete removes a row; nothing happens if there is none.
	Delete(kernel.Ref)
}

// Engine stores rows. A committer makes a Store of one: Local in memory, or a replica over a log.
type Engine interface {
	Reader
	Agenda
	// Update calls fn alone, with a Tx. What fn puts is stored when Update returns.
	Update(fn func(Tx))
}

// Full is a Store that can also lead: what a control plane needs.
type Full interface {
	Store
	Agenda
}

// Archive keeps settled runs. Append is called inside a commit and must not wait for a disk.
type Archive interface {
	// Append adds settled runs, in the order in which they ended. The rows must not be changed afterwards.
	Append(rows []*kernel.Run)
	// Get is one run, or nil.
	Get(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error)
	// List answers a query (Cursor as this archive made it), last ended first.
	List(ctx context.Context, q RunQuery) (Page, error)
}
