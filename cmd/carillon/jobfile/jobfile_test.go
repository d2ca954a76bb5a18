package jobfile_test

import (
	"encoding/json"
	"testing"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
)

// A time without an offset has none in the request either: the server reads it in the zone of the job.
func TestTimesKeepTheirOffset(t *testing.T) {
	for text, want := range map[string]string{"2026-12-01 09:00:00": `"2026-12-01T09:00:00"`, "2026-12-01": `"2026-12-01T00:00:00"`, "2026-12-01T09:00:00": `"2026-12-01T09:00:00"`,
		"2026-12-01T09:00:00Z": `"2026-12-01T09:00:00Z"`, "2026-12-01T09:00:00-05:00": `"2026-12-01T09:00:00-05:00"`} {
		list, err := jobfile.Parse("f", []byte("jobs:\n- {key: a, start: "+text+"}\n"), func(string) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(list[0].Body["start"]); err != nil || string(got) != want {
			t.Errorf("%s becomes %s, want %s (%v)", text, got, want, err)
		}
	}
}
