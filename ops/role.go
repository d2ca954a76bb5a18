package ops

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Role is what a caller may do.
type Role uint8

// The roles. Viewer, Operator and Admin are for people and their tools: each includes the ones before it. WorkerRole and
// ClientRole are for programs: each stands alone.
const (
	NoRole     Role = iota // may do nothing
	WorkerRole             // runs jobs
	ClientRole             // starts runs, and reads those of the jobs that it may start
	Viewer                 // reads everything, arguments and results included
	Operator               // also triggers, cancels, runs again, pauses and resumes
	Admin                  // also edits and deletes jobs, changes settings, creates tokens and reads the audit
)

var roleNames = [...]string{"none", kernel.RoleWorker, kernel.RoleClient, kernel.RoleViewer, kernel.RoleOperator, kernel.RoleAdmin}

// Covers reports whether this role is sufficient where need is required. No role covers NoRole, so that a missing rule
// refuses all.
func (r Role) Covers(need Role) bool {
	return need != NoRole && (r == need || need >= Viewer && r >= need)
}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "?"
}

// ParseRole reads the name of a role that a person may have.
func ParseRole(name string) (Role, error) {
	if r := roleNamed(name); r >= Viewer {
		return r, nil
	}
	return NoRole, kernel.Invalid("invalid role %.20q: want viewer, operator or admin", name)
}

// roleNamed returns the role of a name; NoRole if there is none.
func roleNamed(name string) Role { return Role(max(0, slices.Index(roleNames[:], name))) }
