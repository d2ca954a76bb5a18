package cli

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Each field has a type that its flag reads, and the text of its value reads back as the same value.
func TestFieldsReadWhatTheyShow(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	samples := map[reflect.Type]any{}
	for _, v := range []any{"text", 7, true, api.Duration(90 * time.Second), api.Moment(now), []string{"a", "b"}, []api.Limit{{Name: "db", Max: 3}},
		[]api.RetryRule{{Codes: []string{"502"}, Attempts: new(3), Delay: new(api.Duration(time.Second))}}, api.Rate{Max: 10, Per: time.Second}, 1.5, api.Object(`{"a":1}`)} {
		samples[reflect.TypeOf(v)] = v
	}
	for _, f := range fields {
		sample, ok := samples[f.kind]
		if !ok {
			t.Errorf("field %s has type %s: add it to read in cmd/carillon/cli/fields.go, and a sample here", f.name, f.kind)
			continue
		}
		want, err := json.Marshal(sample)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.read(fieldText(f.name, want), now); err != nil || string(got) != string(want) {
			t.Errorf("field %s: the text %q reads back as %s, want %s (%v)", f.name, fieldText(f.name, want), got, want, err)
		}
	}
}

// A time without an offset is sent without one: the server reads it in the zone of the job.
func TestTimesOfJobsAreInTheirZone(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	f, err := fieldOf("start")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"2026-12-01 09:00": `"2026-12-01T09:00:00"`, "tomorrow": `"2026-11-22"`,
		"2h": `"2026-11-21T14:00:00+01:00"`, "2026-12-01T09:00:00Z": `"2026-12-01T09:00:00Z"`} {
		if got, err := f.read(text, now); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, want %s (%v)", text, got, want, err)
		}
	}
}

// Each final state but Succeeded has an exit code, and each state that is not waiting has a colour.
func TestEveryStateHasAnExitCode(t *testing.T) {
	for _, s := range kernel.States() {
		if want := s.Final() && s != jobs.Succeeded; (endOf(s.String()) != nil) != want {
			t.Errorf("state %s has an exit code: %v, want %v: change endOf in cmd/carillon/cli/exit.go", s, !want, want)
		}
		if waits := s == jobs.Scheduled || s == jobs.Enqueued; !waits && stateColours[s.String()] == "" {
			t.Errorf("state %s has no colour: add it to stateColours in cmd/carillon/cli/output.go", s)
		}
	}
}
