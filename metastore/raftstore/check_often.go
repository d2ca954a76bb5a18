//go:build checkoften

package raftstore

import "time"

// Tests of upgrades build with this tag: a difference between two programs is to show within seconds.
func init() { checkEvery = 500 * time.Millisecond }
