// Package tests sets the size of tests, by the environment variable CARILLON_TESTS only:
//
//	(unset)  the default of go test ./...: every guarantee in its small size; package cpu measures what it takes
//	all      what CI runs: the long tests, too, and sizes that fit into half an hour
//	rough    the sizes that docs/guarantees.md states, for one package at a time: just kill
//
// A test without a small size begins with [Long]. A test with sizes takes its numbers from [Size]. A test that the race
// detector makes ten times slower and finds nothing in, such as days of virtual time, begins with [WithoutRace].
package tests

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// levels are the values of CARILLON_TESTS, from the smallest.
var levels = []string{"", "all", "rough"}

// level is read when a test first asks, so that go test knows that the result depends on it.
var level = sync.OnceValue(func() int {
	given := os.Getenv("CARILLON_TESTS")
	for i, l := range levels {
		if given == l {
			return i
		}
	}
	panic(fmt.Sprintf("invalid CARILLON_TESTS %q: want all, rough or nothing", given))
})

// Size returns the size of a test at the current level: by default, in CI, and as docs/guarantees.md states.
func Size[T any](quick, all, rough T) T { return []T{quick, all, rough}[level()] }

// Rough reports whether tests run in the sizes of docs/guarantees.md.
func Rough() bool { return level() == 2 }

// Long skips the test by default.
func Long(t testing.TB) {
	t.Helper()
	if level() == 0 {
		t.Skip("long: CARILLON_TESTS=all runs it")
	}
}

// WithoutRace skips the test under the race detector. CI runs it once, without: it finds the test by the text of this
// call, so call it in the function of the test itself.
func WithoutRace(t *testing.T) {
	t.Helper()
	if at, _, _, _ := runtime.Caller(1); !strings.HasSuffix(runtime.FuncForPC(at).Name(), "."+t.Name()) {
		t.Fatal("call tests.WithoutRace in the function of the test itself, before any subtest")
	}
	if raceEnabled {
		t.Skip("not run under the race detector")
	}
}

// Missing skips the test because this machine lacks something. In CI, which installs everything, the test fails.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("not tested in CI: %s", what)
	}
	t.Skipf("not tested: %s", what)
}

// Go returns a go command that builds a program for a test like a release, without the race detector.
func Go(args ...string) *exec.Cmd {
	c := exec.Command("go", args...)
	c.Env = append(os.Environ(), "GOFLAGS=")
	return c
}

// Parallel lets up to n tests that call t.Parallel run at a time, unless -parallel is given: for a package whose tests
// mostly wait. Call it in TestMain.
func Parallel(n int) {
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		if err := given.Value.Set(strconv.Itoa(n)); err != nil {
			panic(err)
		}
	}
}

// Random returns a source of random numbers for a test, safe for several goroutines. A test gets the same numbers every
// time, unless it uses several goroutines, or CARILLON_SEED sets another seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	text := cmp.Or(os.Getenv("CARILLON_SEED"), "1")
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("invalid CARILLON_SEED %q: want a whole number", text)
	}
	t.Logf("CARILLON_SEED=%d", seed)
	return rand.New(&shared{from: rand.NewPCG(seed, 1)})
}

// shared is a source of random numbers for several goroutines.
type shared struct {
	mu   sync.Mutex
	from rand.Source
}

func (s *shared) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.Uint64()
}
