// Package processtest proves what Carillon promises, with processes that are killed.
//
// There is no code here but tests. They build the program once, start it with workers and sometimes with a NATS
// server beside it, end some of these the hard way, and then ask what became of every run. docs/guarantees.md says
// which promise each test shows.
//
// Handlers tell what they do to journals: files outside of the system, one line when a handler begins and one when
// it ends. checker_test.go hands them, what the store remembers and what the client was told to the judge
// (chaos/judge), which finds what was lost, doubled, early, overlapping and so on. house_test.go is a scheduler with
// its workers, program_test.go a process and its life.
//
// `go test ./...` runs a few of the tests in a small size, CI all of them; with CARILLON_TESTS=rough in the environment
// they take as long as the promise says. They need a Unix: elsewhere a process cannot be frozen.
package processtest
