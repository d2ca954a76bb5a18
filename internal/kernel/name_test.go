package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

func TestKeys(t *testing.T) {
	for _, good := range []jobs.Key{
		"a", "9", "_", "-", "billing.close-day", "A.b_c-9", "a.b.c.d", "trailing.", jobs.Key(strings.Repeat("k", 200)),
		"github.com.carillon-scheduler.example.CloseDay",
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []struct{ key, says string }{
		{"", "empty"},
		{strings.Repeat("k", 201), "201"},
		{strings.Repeat("k", 1<<20), "at most 200"},
		{"../x", "dot"},
		{"..", "dot"},
		{"a..b", "two dots"},
		{".hidden", "begins with a dot"},
		{"a b", "byte 1"},
		{"*", "byte 0"},
		{">", "byte 0"},
		{"a.*.b", "byte 2"},
		{"$JS", "byte 0"},
		{"a/b", "byte 1"},
		{`a\b`, "byte 1"},
		{"a\nb", `\n`},
		{"a\x00b", `\x00`},
		{"🔔", "byte 0"},
		{"a\u202ebc", `\u202e`},
		{"k\u0301", "byte 1"},
		{"K\u212a", "byte 1"}, // the Kelvin sign, which folds to k
		{"\xff", `\xff`},
		{"%2e%2e", "byte 0"},
	} {
		err := jobs.Key(bad.key).Check()
		if !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%.40q: got %v, want a refusal that says %q", bad.key, err, bad.says)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%.40q: the refusal has %d bytes", bad.key, len(err.Error()))
		}
		if CheckName("app", bad.key) == nil {
			t.Errorf("%.40q is refused as a key and taken as a name", bad.key)
		}
	}
}

// Keys are compared byte by byte: case makes another key.
func TestKeysDifferByCase(t *testing.T) {
	if DefinitionRef("t", "Report") == DefinitionRef("t", "report") || DefinitionRef("t", "a") == DefinitionRef("T", "a") {
		t.Error("two keys that differ in case point to one row")
	}
	if UniqueName("a", "K") == UniqueName("a", "k") {
		t.Error("two unique keys that differ in case are one")
	}
}

// Names of gates and unique keys cannot be made to meet by choosing words well.
func TestDerivedNamesDoNotMeet(t *testing.T) {
	names := map[string]string{}
	for what, name := range map[string]string{
		"unique a, b":          UniqueName("a", "b"),
		"unique a, /b":         UniqueName("a", "/b"),
		"unique a.b, c":        UniqueName("a.b", "c"),
		"unique a, b/c":        UniqueName("a", "b/c"),
		"idempotency a/b":      IdempotencyName("a/b"),
		"idempotency run/a/b":  IdempotencyName("run/a/b"),
		"unique request, a/b":  UniqueName("request", "a/b"),
		"gate of a job":        JobGate(jobs.ID{1}),
		"limit named as a job": LimitGate("job/" + jobs.ID{1}.String()),
	} {
		if other, ok := names[name]; ok {
			t.Errorf("%s and %s are both %q", what, other, name)
		}
		names[name] = what
	}
}

// These IDs are in logs and archives: they must never change.
func TestDueIDGolden(t *testing.T) {
	job, err := jobs.ParseID("0190a3e5-7c2b-7d11-8f3a-5d0c9be0a001")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant       jobs.Tenant
		due          time.Time
		part, replay uint32
		want         string
	}{
		{"default", noon, 0, 0, "5a45f053-03f9-8675-9ca9-29b67621f9fb"},
		{"default", noon.Add(1), 0, 0, "68bf288a-41b9-8041-aeab-c4582352b4b0"},
		{"default", noon, 1, 0, "3c06864a-4d1f-81ed-9b85-582f526e4778"},
		{"default", noon, 0, 1, "c7c9240d-7962-8645-b99d-88c3ef0eb52d"},
		{"acme", noon, 0, 0, "71a075e9-3bab-8f48-ba0c-57e9b51c961c"},
		{"default", time.Date(2199, 12, 31, 23, 59, 59, 999, time.UTC), 0, 0, "c28f6387-3cbb-86e4-9a9b-dabe8f7d535e"},
	} {
		if got := DueID(c.tenant, job, c.due, c.part, c.replay).String(); got != c.want {
			t.Errorf("%s %s part %d replay %d: %s, want %s", c.tenant, c.due, c.part, c.replay, got, c.want)
		}
	}
	if got, want := DerivedID().String(), "e3b0c442-98fc-8c14-9afb-f4c8996fb924"; got != want {
		t.Errorf("no words: %s, want %s", got, want)
	}
	if got, want := DerivedID("a", "bc").String(), "3fafa1cf-2f19-87c1-929b-eb20cf0983f7"; got != want {
		t.Errorf("a, bc: %s, want %s", got, want)
	}
}

// The same due time has the same ID however it is written, and no other has it.
func TestDueIDNamesOneDueTime(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	if DueID("t", jobs.ID{1}, noon, 0, 0) != DueID("t", jobs.ID{1}, noon.In(berlin), 0, 0) {
		t.Error("the zone in which a due time is written changes its ID")
	}
	seen := map[jobs.ID]string{}
	for _, tenant := range []jobs.Tenant{"a", "b", "ab"} {
		for job := range byte(5) {
			for due := range 20 {
				for part := range uint32(3) {
					for replay := range uint32(3) {
						id := DueID(tenant, jobs.ID{job}, noon.Add(time.Duration(due)*time.Second), part, replay)
						name := fmt.Sprint(tenant, job, due, part, replay)
						if other, ok := seen[id]; ok {
							t.Fatalf("%s and %s are both %s", name, other, id)
						}
						seen[id] = name
					}
				}
			}
		}
	}
}

func TestDerivedIDKeepsWordsApart(t *testing.T) {
	all := [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"a", "b", ""}, {"", "ab"}, {"a\x00b"}}
	seen := map[jobs.ID]int{}
	for i, words := range all {
		id := DerivedID(words...)
		if j, ok := seen[id]; ok {
			t.Errorf("%q and %q have one ID", words, all[j])
		}
		seen[id] = i
	}
}

// Version and variant are those of RFC 9562: other programs can tell what they have.
func TestIDVersions(t *testing.T) {
	for want, id := range map[byte]jobs.ID{7: jobs.NewID(noon), 8: DueID("t", jobs.ID{1}, noon, 0, 0)} {
		if id[6]>>4 != want || id[8]>>6 != 0b10 {
			t.Errorf("%s: version %d, variant %b; want version %d, variant 10", id, id[6]>>4, id[8]>>6, want)
		}
	}
}

func TestNewIDSortsByTime(t *testing.T) {
	last, seen := "", map[jobs.ID]bool{}
	for i := range 1000 {
		id := jobs.NewID(noon.Add(time.Duration(i) * time.Millisecond))
		if s := id.String(); s <= last {
			t.Fatalf("%s after %s", s, last)
		} else {
			last = s
		}
	}
	for range 10_000 {
		id := jobs.NewID(noon)
		if seen[id] {
			t.Fatalf("%s twice", id)
		}
		seen[id] = true
	}
	if got, want := jobs.NewID(noon).String()[:13], "01a1fdfa-4600"; got != want {
		t.Errorf("the time in an ID of %s is %s, want %s", noon, got, want)
	}
}

func TestIDText(t *testing.T) {
	id := jobs.NewID(noon)
	if got, err := jobs.ParseID(id.String()); err != nil || got != id {
		t.Errorf("%s reads back as %s, %v", id, got, err)
	}
	if (jobs.ID{}).String() != "" || !(jobs.ID{}).IsZero() || id.IsZero() {
		t.Error("the zero ID is written as a real one")
	}
	for _, in := range []struct{ A, B jobs.ID }{{id, jobs.ID{}}, {jobs.ID{}, id}} {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		back := in
		back.A, back.B = jobs.ID{9}, jobs.ID{9}
		if err := json.Unmarshal(text, &back); err != nil || back != in {
			t.Errorf("%s reads back as %v, %v", text, back, err)
		}
	}
	for _, bad := range []string{
		"", "x", id.String()[1:], id.String() + "0", strings.ReplaceAll(id.String(), "-", ""),
		"{" + id.String()[2:] + "}", "0190a3e5-7c2b-7d11-8f3a-5d0c9be0a00g", "0190a3e5_7c2b_7d11_8f3a_5d0c9be0a001",
		strings.Repeat("0", 1<<16), "🔔🔔🔔🔔🔔🔔🔔🔔🔔",
	} {
		if _, err := jobs.ParseID(bad); !errors.Is(err, jobs.BadInput) || len(err.Error()) > 400 {
			t.Errorf("%.40q: %.100v", bad, err)
		}
	}
}

func TestInstantIsUTCWithoutMonotonicPart(t *testing.T) {
	now := time.Now()
	if got := Instant(now); got.Location() != time.UTC || strings.Contains(got.String(), "m=") || !got.Equal(now) {
		t.Errorf("Instant(%v) = %v", now, got)
	}
	if !Instant(time.Time{}).IsZero() {
		t.Error("the zero time does not stay zero")
	}
}

// A code is found through whatever was wrapped around it.
func TestCodesSurviveWrapping(t *testing.T) {
	for _, c := range []jobs.Code{jobs.NotFound, jobs.Conflict, jobs.Stale, jobs.BadInput, jobs.Forbidden, jobs.Unknown, jobs.Unavailable} {
		err := fmt.Errorf("claim: %w", fmt.Errorf("apply: %w", Refuse(c, "because %d", 1)))
		if !errors.Is(err, c) || jobs.CodeOf(err) != c {
			t.Errorf("%s is lost: %v", c, jobs.CodeOf(err))
		}
		if jobs.CodeOf(errors.Join(errors.New("first"), err)) != c {
			t.Errorf("%s is lost when joined to another error", c)
		}
		if jobs.CodeOf(c) != c {
			t.Errorf("%s by itself is not seen", c)
		}
	}
	if jobs.CodeOf(errors.New("disk on fire")) != jobs.Unknown {
		t.Error("of an error without a code, something is known")
	}
}

// However many layers report an unknown outcome, the text says it once.
func TestOutcomeUnknownIsSaidOnce(t *testing.T) {
	lost := errors.New("the connection was lost")
	for want, err := range map[string]error{
		"outcome unknown: the connection was lost":         OutcomeUnknown("%v", lost),
		"outcome unknown: commit: the connection was lost": OutcomeUnknown("commit: %v", OutcomeUnknown("%v", lost)),
		"outcome unknown": OutcomeUnknown("%v", jobs.Unknown),
		"outcome unknown: no response in time: the server has left": OutcomeUnknown("no response in time: %v", OutcomeUnknown("the server has left: %v", jobs.Unknown)),
	} {
		if err.Error() != want || jobs.CodeOf(err) != jobs.Unknown {
			t.Errorf("%v (%s), want %s", err, jobs.CodeOf(err), want)
		}
	}
}
