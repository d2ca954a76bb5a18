package ops

import "github.com/carillon-scheduler/carillon/internal/kernel"

// Role is what a caller may do. Roles are ordered: each includes the ones before it.
type Role uint8

// The roles of HTTP callers. NoRole may do nothing.
const (
	NoRole   Role = 0
	Viewer   Role = 1 // reads everything, arguments and results included
	Operator Role = 2 // also triggers, cancels, runs again, pauses and resumes
	Admin    Role = 3 // also edits and deletes jobs, changes settings, creates tokens and reads the audit
)

var roleNames = [...]string{"none", "viewer", "operator", "admin"}

// Covers reports whether this role is sufficient where need is required. No role covers NoRole, so that a missing rule
// refuses all.
func (r Role) Covers(need Role) bool { return need != NoRole && r >= need }

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "?"
}

// ParseRole reads the name of a role. Those of workers and clients are refused: they use the bus.
func ParseRole(name string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if roleNames[r] == name {
			return r, nil
		}
	}
	return NoRole, kernel.Invalid("invalid role %.20q: want viewer, operator or admin", name)
}
