// Package peers holds jobs/schedule against other schedule engines in Go: go-quartz, robfig/cron and gronx.
//
// It is all tests, in a module of its own, so that the program does not depend on what it is compared with. Where the
// rules coincide, all engines must answer alike (agree_test.go); where they do not, each difference is shown with its
// reason (differ_test.go). figures_test.go prints the tables of figures.md:
//
//	go test -run TestFigures -figures -v
//
// The engines run in child processes, because an expression can take one of them down (process_test.go).
package peers
