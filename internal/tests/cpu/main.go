// Command cpu builds and plays the tests like go test ./..., prints the wall times, and fails if they take more CPU
// seconds than -build and -tests allow. Wall times have no limit, because they grow on a busy machine.
//
// What builds take is in the action graph of the go command: compilers, linkers and vet. It means something only with
// an empty build cache. What tests take is not in the graph, so go test plays each test program through this one, by
// -exec. Its seconds include the processes that it waits for, and exclude servers that outlive their parent.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	build := flag.Float64("build", 560, "most CPU seconds of builds")
	tests := flag.Float64("tests", 120, "most CPU seconds of tests")
	to := flag.String("play", "", "play one test program, and append its CPU seconds to this `file`")
	flag.Parse()
	if *to != "" {
		code, err := play(*to, flag.Args())
		if err != nil {
			fmt.Fprintln(os.Stderr, "cpu:", err)
		}
		os.Exit(code)
	}
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	if err := measure(packages, *build, *tests); err != nil {
		fmt.Fprintln(os.Stderr, "cpu:", err)
		os.Exit(1)
	}
}

// measure builds the tests, plays them with all compiled, and prints what both take.
func measure(packages []string, build, tests float64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "carillon-cpu-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	graph, played := filepath.Join(dir, "graph"), filepath.Join(dir, "played")

	var out bytes.Buffer
	first, err := goTest(&out, packages, "-debug-actiongraph="+graph, "-exec=true") // the program true plays nothing
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &out)
	}
	second, failed := goTest(os.Stdout, packages, "-exec="+self+" -play="+played)
	fmt.Printf("wall time: %.0f s with all compiled, links included; ", second.Seconds())
	fmt.Printf("%.0f s to build before\n", first.Seconds())
	for _, part := range []struct {
		name, file string
		most       float64
	}{{"builds", graph, build}, {"tests", played, tests}} {
		actions, err := read(part.file)
		if err == nil {
			err = judge(os.Stdout, part.name, actions, part.most)
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

// goTest runs go test in its default size and returns how long it took.
func goTest(out io.Writer, packages []string, flags ...string) (time.Duration, error) {
	c := exec.Command("go", append(append([]string{"test", "-count=1"}, flags...), packages...)...)
	c.Env = append(os.Environ(), "CARILLON_TESTS=")
	c.Stdout, c.Stderr = out, out
	began := time.Now()
	if err := c.Run(); err != nil {
		return time.Since(began), fmt.Errorf("%s: %w", c, err)
	}
	return time.Since(began), nil
}
