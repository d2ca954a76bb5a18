package sabotage

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// caseVariable names the directory into which a saboteur writes what its cluster has seen.
const caseVariable = "CARILLON_TEST_CASE"

// TestSaboteur is no test but the body of one: TestSabotage runs it in a build in which mechanisms can be turned off.
func TestSaboteur(t *testing.T) {
	dir := os.Getenv(caseVariable)
	if dir == "" {
		t.Skip("TestSabotage runs it")
	}
	c := story(t)
	if err := c.Save(dir); err != nil {
		t.Fatal(err)
	}
}

// Whole, a cluster keeps all its promises through four minutes of bad luck.
func TestHealthy(t *testing.T) {
	v := judge.Judge(story(t))
	report(t, v)
	if !v.Pass {
		t.Errorf("the judge names %q", v.Broken())
	}
	for name, least := range map[string]int{judge.Lost: 1000, judge.Doubled: 2000, judge.Early: 1000, judge.Overlapping: 10, judge.OverLimit: 200, judge.Stale: 500} {
		if n := v.Count(name).Of; n < least {
			t.Errorf("%s was looked at %d times, want %d", name, n, least)
		}
	}
	if v.Beyond.N == 0 {
		t.Error("no handler went on after its lease: the story is too quiet")
	}
}

// sabotages are the mechanisms to turn off, and the expected verdicts.
var sabotages = []struct {
	off  []sabotage.Mechanism
	name string // of the breach, or of several with | between them, one of which is enough; "": none
	want string // part of one of its findings, or ""; for several, too
}{
	{nil, "", ""},
	// Two guard the door to a second run of a due time, and each is enough for that: only without both are there two.
	{[]sabotage.Mechanism{sabotage.DueID}, "", ""},
	{[]sabotage.Mechanism{sabotage.CursorCompare}, judge.Doubled, `"count"`},
	{[]sabotage.Mechanism{sabotage.DueID, sabotage.CursorCompare}, judge.Doubled, "2 runs"},
	{[]sabotage.Mechanism{sabotage.Cursor}, judge.Lost, "nothing"},
	{[]sabotage.Mechanism{sabotage.StaleTerm}, judge.Lost, "missed"},
	{[]sabotage.Mechanism{sabotage.Term}, judge.Lost, "nothing"},
	{[]sabotage.Mechanism{sabotage.NotEarly}, judge.Early, "before"},
	{[]sabotage.Mechanism{sabotage.FireAll}, judge.Lost, "missed"},
	{[]sabotage.Mechanism{sabotage.Idempotency}, judge.Doubled, "the store has"},
	{[]sabotage.Mechanism{sabotage.Start}, judge.Doubled, "begun twice"},
	{[]sabotage.Mechanism{sabotage.Fence}, judge.Stale, ""},
	{[]sabotage.Mechanism{sabotage.Lease}, judge.Stuck, ""}, // slots that are never freed, and first of all the runs that wait for them
	{[]sabotage.Mechanism{sabotage.Sweep}, judge.Stuck, "Enqueued"},
	{[]sabotage.Mechanism{sabotage.Gate}, judge.OverLimit, ""},
	{[]sabotage.Mechanism{sabotage.HandOver}, judge.Stuck, "Enqueued"},
	{[]sabotage.Mechanism{sabotage.FirstOnly}, judge.Doubled, "has begun"},
	// A push that comes too late begins an attempt after the next one, or once more when the worker no longer remembers
	// that it has ended: which of them this story has depends on the order of what happens at once.
	{[]sabotage.Mechanism{sabotage.Fresh}, judge.Stale + "|" + judge.Doubled, "began after it|begun twice"},
	{[]sabotage.Mechanism{sabotage.Once}, judge.Doubled, "begun twice"},
	{[]sabotage.Mechanism{sabotage.Repeat}, judge.Illegal, "never arrived"},
	{[]sabotage.Mechanism{sabotage.Unstart}, judge.Stuck, "Processing"},
}

// caught reports whether a verdict has a breach of one of these names, because of what belongs to it.
func caught(v *judge.Verdict, names, wants []string) bool {
	for i, name := range names {
		if slices.ContainsFunc(v.Count(name).First, func(f judge.Finding) bool { return strings.Contains(f.Found, wants[i]) }) {
			return true
		}
	}
	return false
}

// Each mechanism is turned off in a run of the same story, and the judge names the broken guarantee.
func TestSabotage(t *testing.T) {
	tests.Long(t)
	program := filepath.Join(t.TempDir(), "saboteur")
	if out, err := tests.Go("test", "-c", "-tags", "sabotage", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tried := map[sabotage.Mechanism]bool{}
	for _, tt := range sabotages {
		var off []string
		for _, m := range tt.off {
			off = append(off, string(m))
			tried[m] = tried[m] || tt.name != ""
		}
		name := strings.Join(off, ",")
		if name == "" {
			name = "none"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// One that hangs has not been caught. How long it takes otherwise is the machine's affair, which has others
			// to run.
			cmd := exec.Command(program, "-test.run=^TestSaboteur$", "-test.timeout=10m")
			cmd.Env = append(os.Environ(), "CARILLON_SABOTAGE="+strings.Join(off, ","), caseVariable+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out[max(0, len(out)-8<<10):])
			}
			c, err := judge.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			v := judge.Judge(c)
			broken := v.Broken()
			switch {
			case tt.name == "" && !v.Pass:
				report(t, v)
				t.Errorf("the judge names %q, and nothing can have been broken", broken)
			case tt.name == "":
			case !caught(v, strings.Split(tt.name, "|"), strings.Split(tt.want, "|")):
				report(t, v)
				t.Errorf("without %s the judge names %q, want %q because of %q", name, broken, tt.name, tt.want)
			default:
				t.Logf("without %s the judge names %q", name, broken)
			}
		})
	}
	for _, m := range sabotage.All() {
		if !tried[m] {
			t.Errorf("%s has never been caught", m)
		}
	}
}
