//go:build !faults

package embed

import "time"

// wall is the wall clock of nodes; nil means the machine's.
var wall func() time.Time
