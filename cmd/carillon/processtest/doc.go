// Package processtest tests Carillon's guarantees with processes that are killed and frozen.
//
// It is not promised to programs outside this module.
//
// It has only tests. They build the program once, start it with workers and sometimes an external NATS server, kill
// some of these, and then check every run. docs/guarantees.md maps guarantees to tests.
//
// Where to start: house_test.go (a scheduler with its workers) and program_test.go (a process). Handlers write
// journals: files outside of the system with a line when a handler begins and ends. checker_test.go passes the
// journals, the store's content and the client's responses to the judge (chaos/judge).
//
// Sharp edges: `go test ./...` runs a few tests in a small size, CI all of them; CARILLON_TESTS=rough runs them in full
// length. They need a Unix, which can freeze processes.
package processtest
