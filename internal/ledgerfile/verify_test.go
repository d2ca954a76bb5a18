package ledgerfile

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

var (
	key  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
)

func hour(n int) time.Time { return noon.Add(time.Duration(n) * time.Hour) }

// sample is the ledger of an hourly job from 12 to 20 o'clock: a calendar excludes 13 and 14, it was paused at 17, and
// the schedule was changed at 15:30. The due times up to 12 are before the time from which it is complete.
func sample() (Header, []Record) {
	h := Header{Tenant: "default", From: hour(0), To: hour(9), At: hour(9),
		Calendars: []Calendar{{Name: "lunch", Rules: []string{"13:00-15:00"}}},
		Jobs: []Job{{Key: "tick", Decided: hour(8), Complete: hour(1), Schedules: []Schedule{
			{After: hour(-5), Until: new(hour(3).Add(30 * time.Minute)), Schedule: "@hourly", Anchor: hour(-5), Calendars: []string{"lunch"}},
			{After: hour(3).Add(30 * time.Minute), Schedule: "0 0 * * * *", Anchor: hour(3).Add(30 * time.Minute)}}}, {Key: "tock"}}}
	run := func(n int) Record {
		return RunRecord(&kernel.Run{Key: "tick", ID: jobs.ID{byte(n)}, Due: hour(n), State: jobs.Succeeded, Origin: kernel.FromCron, Attempt: 1})
	}
	missed := func(from, to int, count uint64, why kernel.Reason) Record {
		return MissedRecord(&kernel.Missed{Key: "tick", From: hour(from), To: hour(to), Count: count, Reason: why})
	}
	return h, []Record{missed(1, 2, 2, kernel.MissedCalendar), run(3), run(4), missed(5, 5, 1, kernel.MissedPaused), run(6), run(7), run(8)}
}

func written(t *testing.T, h Header, records []Record) string {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, key, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVerify(t *testing.T) {
	h, records := sample()
	r, err := Verify(strings.NewReader(written(t, h, records)), PublicKey(key))
	if err != nil || len(r.Problems) > 0 || r.Proven != 8 || r.Purged != 1 || r.Open != 0 || r.Records != 7 {
		t.Errorf("the report is %+v, %v", r, err)
	}
	h.Jobs[0].Decided = hour(6)
	if r, err = Verify(strings.NewReader(written(t, h, records[:5])), PublicKey(key)); err != nil || len(r.Problems) > 0 || r.Open != 2 {
		t.Errorf("with open due times, the report is %+v, %v", r, err)
	}
}

// What a scheduler does wrong is named, though the file is signed.
func TestProblems(t *testing.T) {
	h, records := sample()
	at := func(r Record, due time.Time) Record { r.Due = &due; return r }
	for _, c := range []struct {
		name    string
		records []Record
		want    string
	}{
		{"no record of the first", records[1:], "job tick: due time 2026-11-27T13:00:00Z has no record before line 2"},
		{"no record in the middle", slices.Delete(slices.Clone(records), 2, 3), "job tick: due time 2026-11-27T16:00:00Z has no record before line 4"},
		{"no record of the last", records[:6], "job tick: due time 2026-11-27T20:00:00Z has no record"},
		{"a run at another time", slices.Insert(slices.Clone(records), 2, at(records[1], hour(3).Add(time.Minute))), "line 4: record of job tick for 2026-11-27T15:01:00Z, which is no due time"},
		{"a second run", slices.Insert(slices.Clone(records), 2, records[1]), "line 4: second record of job tick for due time 2026-11-27T15:00:00Z"},
		{"a run within a range", slices.Insert(slices.Clone(records), 1, at(records[1], hour(1).Add(time.Minute))), "line 3: record of job tick for 2026-11-27T13:01:00Z comes after one for 2026-11-27T14:00:00Z"},
		{"another order", []Record{records[0], records[2], records[1], records[3], records[4], records[5], records[6]}, "job tick: due time 2026-11-27T15:00:00Z has no record before line 3"},
		{"a wrong count", slices.Replace(slices.Clone(records), 0, 1, func() Record { r := records[0]; r.Count = 3; return r }()), "line 2: the range of job tick from 2026-11-27T13:00:00Z to 2026-11-27T14:00:00Z has 2 due times, the record counts 3"},
		{"no calendar", slices.Replace(slices.Clone(records), 3, 4, func() Record { r := records[3]; r.Reason = kernel.MissedCalendar; return r }()), "line 5: due time 2026-11-27T17:00:00Z of job tick is recorded as excluded by a calendar, and none excludes it"},
		{"neither run nor reason", slices.Replace(slices.Clone(records), 3, 4, Record{Job: "tick", From: new(hour(5)), To: new(hour(5))}), "line 5: record of job tick with neither a run nor a reason"},
		{"an unknown job", append(slices.Clone(records), Record{Job: "other", Due: new(hour(8)), Run: &jobs.ID{}}), "line 9: record of job other, which the header does not name"},
	} {
		r, err := Verify(strings.NewReader(written(t, h, c.records)), PublicKey(key))
		if err != nil || len(r.Problems) == 0 || !strings.HasPrefix(r.Problems[0], c.want) {
			t.Errorf("%s: %q, %v, want %s", c.name, r.Problems, err, c.want)
		}
	}
}

// What was changed in the file is found.
func TestTampering(t *testing.T) {
	h, records := sample()
	lines := strings.SplitAfter(written(t, h, records), "\n")
	lines = lines[:len(lines)-1]
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize))
	without := slices.Delete(slices.Clone(records), 2, 3)
	forged := strings.SplitAfter(written(t, h, without), "\n")
	forged[len(forged)-2] = lines[len(lines)-1]
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"a changed record", slices.Replace(slices.Clone(lines), 3, 4, strings.Replace(lines[3], "Succeeded", "Cancelled", 1)), "line 5 does not continue line 4"},
		{"a changed header", slices.Replace(slices.Clone(lines), 0, 1, strings.Replace(lines[0], "@hourly", "@daily", 1)), "line 2 does not continue line 1"},
		{"a removed record", slices.Delete(slices.Clone(lines), 3, 4), "line 4 does not continue line 3"},
		{"a removed header", lines[1:], "form 0 of a ledger"},
		{"a repeated record", slices.Insert(slices.Clone(lines), 4, lines[3]), "line 5 does not continue line 4"},
		{"swapped records", slices.Concat(lines[:2], []string{lines[3], lines[2]}, lines[4:]), "line 3 does not continue line 2"},
		{"no signature", lines[:len(lines)-1], "the file ends after line 8, without the signature"},
		{"a line that is cut off", append(slices.Clone(lines[:4]), lines[4][:20]), "the file ends after line 4, without the signature"},
		{"a new chain with the old signature", forged, "line 8 does not continue line 7"},
		{"text after the signature", append(slices.Clone(lines), "{}\n"), "text follows the signature"},
		{"no JSON", slices.Replace(slices.Clone(lines), 3, 4, "hello\n"), "line 4 is no record"},
	} {
		_, err := Verify(strings.NewReader(strings.Join(c.lines, "")), PublicKey(key))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := Verify(strings.NewReader(strings.Join(lines, "")), PublicKey(other)); !errors.Is(err, ErrSignature) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := Verify(strings.NewReader(strings.Join(lines, "")), "12"); err == nil {
		t.Error("a key of two digits is accepted")
	}
}
