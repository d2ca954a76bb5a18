//go:build checkoften

package replica

import "time"

// Tests of upgrades build with this tag, to find a difference between two programs within seconds.
func init() { checkEvery = 500 * time.Millisecond }
