package kernel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The settings http and exec are checked in the same way: nothing, or a JSON object of up to 64 KiB.
func TestWorkOfAJob(t *testing.T) {
	set := func(name, raw string) (s Settings) {
		s.Set(name, json.RawMessage(raw))
		return s
	}
	for _, name := range WorkSettings() {
		for _, good := range []string{``, `{}`, ` { } `, `{"request":[{"url":"https://example.com/"}]}`} {
			s := set(name, good)
			if err := s.Check(); err != nil {
				t.Errorf("%s %q is refused: %v", name, good, err)
			}
			want := name
			if len(good) < 6 {
				want = ""
			}
			p := (&Definition{Key: "k", Kind: Triggered, Edits: s}).Resolve(&Global{})
			if got := p.Work(); got != want {
				t.Errorf("%s %q defines %q, want %q", name, good, got, want)
			}
		}
		for bad, says := range map[string]string{
			`[]`: name + " must be a JSON object", `{`: name + ": not valid JSON", `{"a":1,"a":2}`: name + `: the key "a" is repeated`, `"x"`: workExamples[name],
			`{"a":"` + strings.Repeat("x", MaxWork) + `"}`: "at most 65536 are allowed",
		} {
			s := set(name, bad)
			if err := s.Check(); jobs.CodeOf(err) != jobs.BadInput || !strings.Contains(err.Error(), says) {
				t.Errorf("%s %.20q: %v, want one that says %q", name, bad, err, says)
			}
		}
	}
}

// Neither a worker's registration nor the defaults of jobs may define what a job does.
func TestWorkIsDefinedByPeople(t *testing.T) {
	for _, name := range WorkSettings() {
		var s Settings
		s.Set(name, json.RawMessage(`{}`))
		for what, c := range map[string]Command{
			"registration": Register{App: "a", Worker: "w", Job: Declaration{Key: "k", Kind: Recurring, Code: s}},
			"defaults":     Configure{Defaults: &s}, "file": Configure{File: &File{Defaults: s}}} {
			if err := c.Check(); jobs.CodeOf(err) != jobs.BadInput || !strings.Contains(err.Error(), name) {
				t.Errorf("%s with %s: %v", what, name, err)
			}
		}
	}
}

// A stored run of a command keeps what it is, also if it has no other rare field.
func TestWorkOfAStoredRun(t *testing.T) {
	row, _, err := DecodeRow(AppendRow(nil, &Run{Tenant: "t", Key: "k", Work: WorkExec}))
	if run, ok := row.(*Run); err != nil || !ok || run.Work != WorkExec {
		t.Errorf("%+v, %v", row, err)
	}
}
