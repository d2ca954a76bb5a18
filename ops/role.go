package ops

import "github.com/carillon-scheduler/carillon/internal/kernel"

// Role is what somebody may do. Roles are ordered: each may do all that those before it may.
type Role uint8

// The roles of people and programs that come by HTTP. NoRole may do nothing.
const (
	NoRole   Role = 0
	Viewer   Role = 1 // reads everything, arguments and results included
	Operator Role = 2 // also triggers, cancels, runs again, pauses and resumes
	Admin    Role = 3 // also edits and deletes jobs, changes settings, gives out tokens and reads the audit
)

var roleNames = [...]string{"none", "viewer", "operator", "admin"}

// Covers says that whoever has this role may do what needs the other. Nothing covers a need that nobody named.
func (r Role) Covers(need Role) bool { return need != NoRole && r >= need }

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "?"
}

// ParseRole reads the name of a role. Those of workers and clients are none: they come by the bus.
func ParseRole(name string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if roleNames[r] == name {
			return r, nil
		}
	}
	return NoRole, kernel.Invalid("role %.20q is none of viewer, operator, admin", name)
}
