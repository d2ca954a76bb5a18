//go:build !linux

package tests

// InMemory is for Linux only.
func InMemory() {}
