package kernel

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A result is checked like arguments, and any result that is stored fits the arguments of a run that follows.
func TestResultsAreBoundedLikeArguments(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for _, c := range []struct {
		result string
		ok     bool
	}{
		{"", true}, {"7", true}, {`"text"`, true}, {`{"a":[1,2]}`, true}, {nested(62), true},
		{nested(63), false}, {nested(9900), false}, {"1e400", false}, {"{", false}, {`"` + strings.Repeat("x", MaxResult) + `"`, false},
	} {
		err := Finish{ID: jobs.ID{1}, Worker: "w", Attempt: 1, Outcome: OutcomeSuccess, Result: []byte(c.result)}.Check()
		if (err == nil) != c.ok {
			t.Errorf("%.20q of %d bytes: %v", c.result, len(c.result), err)
		}
		if err != nil {
			continue
		}
		args := WithParent([]byte(`{"a":1}`), ParentOf(&Run{Key: "j", Result: []byte(c.result)}))
		if err := CheckArgs(args); err != nil {
			t.Errorf("a run that follows %.20q: %v", c.result, err)
		}
	}
}
