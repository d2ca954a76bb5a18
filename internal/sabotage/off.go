//go:build !sabotage

package sabotage

// Off reports whether a mechanism is off: never, in this build.
func Off(Mechanism) bool { return false }
