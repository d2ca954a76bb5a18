package kernel

import (
	"encoding/json"
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

// JSON that a run or a job carries is bounded in its levels and its numbers, whatever door it comes through.
func TestJSONIsBounded(t *testing.T) {
	nested := func(levels int) []byte {
		return []byte(strings.Repeat("[", levels-1) + "{}" + strings.Repeat("]", levels-1))
	}
	within := func(raw []byte) []byte { return append(append([]byte(`{"x":`), raw...), '}') } // one level more
	run := jobs.ID{1}
	for what, door := range map[string]struct {
		levels int
		check  func(raw []byte) error
	}{
		"result": {62, func(raw []byte) error {
			return Finish{ID: run, Worker: "w", Attempt: 1, Outcome: OutcomeSuccess, Result: raw}.Check()
		}},
		"checkpoint": {64, func(raw []byte) error { return Checkpoint{ID: run, Worker: "w", Attempt: 1, Data: raw}.Check() }},
		"arguments":  {63, func(raw []byte) error { return Create{Key: "k", ID: run, Args: within(raw), Origin: FromAPI}.Check() }},
		"default arguments": {63, func(raw []byte) error {
			return Edit{Key: "k", Set: Settings{Args: new(json.RawMessage(within(raw)))}}.Check()
		}},
		"http": {63, func(raw []byte) error {
			return Edit{Key: "k", Set: Settings{HTTP: new(json.RawMessage(within(raw)))}}.Check()
		}},
		"exec": {63, func(raw []byte) error {
			return Edit{Key: "k", Set: Settings{Exec: new(json.RawMessage(within(raw)))}}.Check()
		}},
		"batch": {63, func(raw []byte) error { return OpenBatch{ID: run, Name: "b", Then: "k", Args: within(raw)}.Check() }},
		"notification": {63, func(raw []byte) error {
			return Notify{Run: run, App: "a", Worker: "w", Attempt: 1, N: 1, Body: within(raw)}.Check()
		}},
		"schema": {64, func(raw []byte) error {
			return Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: Triggered, Schema: raw}}.Check()
		}},
	} {
		if err := door.check(nested(door.levels)); err != nil {
			t.Errorf("%s of %d levels: %v", what, door.levels, err)
		}
		for _, levels := range []int{door.levels + 1, 9900} {
			if err := door.check(nested(levels)); err == nil {
				t.Errorf("%s of %d levels is accepted", what, levels)
			}
		}
		if what == "schema" {
			continue
		}
		for _, wrong := range []string{"1e400", "[", "nul"} {
			if err := door.check([]byte(wrong)); err == nil {
				t.Errorf("%s %s is accepted", what, wrong)
			}
		}
	}
}
