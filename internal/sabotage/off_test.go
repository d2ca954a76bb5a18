//go:build !sabotage

package sabotage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// variable is spelled in two parts, so that this test is not what is found.
const variable = "CARILLON_" + "SABOTAGE"

// A usual build cannot be sabotaged, whatever its environment says.
func TestOff(t *testing.T) {
	for _, m := range sabotage.All() {
		t.Setenv(variable, string(m))
		if sabotage.Off(m) {
			t.Errorf("%s is off", m)
		}
	}
	if n := testing.AllocsPerRun(10, func() { _ = sabotage.Off(sabotage.Start) }); n != 0 {
		t.Errorf("to ask costs %v allocations", n)
	}
}

// And a program that is built as usual holds neither the variable's name nor that of a mechanism.
func TestReleasesHoldNothingOfIt(t *testing.T) {
	for _, tags := range []string{"", "sabotage"} {
		program := filepath.Join(t.TempDir(), "worker")
		out, err := tests.Go("build", "-tags", tags, "-o", program, "./testdata/program").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		raw, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{variable, string(sabotage.CursorCompare)} {
			if found := bytes.Contains(raw, []byte(word)); found != (tags == "sabotage") {
				t.Errorf("built with tags %q: %q is in the program: %v", tags, word, found)
			}
		}
	}
}
