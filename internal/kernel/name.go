package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// CheckName validates the name of an app, a worker or a tenant. Names follow the rule of keys, because they end up in
// subjects and paths.
func CheckName(what, name string) error {
	if err := plain.Name(what, name, 200); err != nil {
		return Invalid("%v", err)
	}
	return nil
}

// MaxAhead is how far the time in the ID of a requested run may be ahead of the store's. Of all such times the latest
// counts, so one ID of the year 9000 would have every later request of all tenants looked up in the archive.
const MaxAhead = time.Hour

// MadeAt returns when NewID made an ID, to a millisecond, by the clock it was given; false if something else made it.
func MadeAt(id jobs.ID) (time.Time, bool) {
	if id[6]>>4 != 7 {
		return time.Time{}, false
	}
	ms := uint64(binary.BigEndian.Uint16(id[0:]))<<32 | uint64(binary.BigEndian.Uint32(id[2:]))
	return time.UnixMilli(int64(ms)).UTC(), true
}

// DueID returns the ID of the run of one due time of a recurring job. It is the same on every node, for ever: creating
// it twice creates one run.
func DueID(tenant jobs.Tenant, job jobs.ID, due time.Time, part, replay uint32) jobs.ID {
	var b [24 + 16]byte
	copy(b[:], job[:])
	binary.BigEndian.PutUint64(b[16:], uint64(due.UnixNano()))
	binary.BigEndian.PutUint32(b[24:], part)
	binary.BigEndian.PutUint32(b[28:], replay)
	return DerivedID(string(tenant), string(b[:32]))
}

// DerivedID returns an ID of version 8 that is derived only from words.
func DerivedID(words ...string) jobs.ID {
	h := sha256.New()
	var n [8]byte
	for _, w := range words {
		binary.BigEndian.PutUint64(n[:], uint64(len(w)))
		h.Write(n[:])
		h.Write([]byte(w))
	}
	var id jobs.ID
	copy(id[:], h.Sum(nil))
	id[6] = id[6]&0x0f | 8<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsDerived reports whether an ID is derived: from a due time, a parent, words.
func IsDerived(id jobs.ID) bool { return id[6]>>4 == 8 }

// WallClock is the location of a time that was written without a zone: it is meant in the zone of its job. ops reads
// it there before it sends a command.
var WallClock = time.FixedZone("wall clock", 0)

// Instant returns t as rows store it: UTC, no monotonic part. The zero time stays zero, and one of WallClock as it is.
func Instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	if t.Location() == WallClock {
		return t
	}
	return t.Round(0).UTC()
}

// Refusal is a code with the sentence that explains it. errors.Is finds the code.
type Refusal = outcome.Refusal[jobs.Code]

// Refuse returns a Refusal.
func Refuse(c jobs.Code, format string, args ...any) error {
	return &Refusal{Code: c, Text: fmt.Sprintf(format, args...)}
}

// Invalid is Refuse with BadInput.
func Invalid(format string, args ...any) error { return Refuse(jobs.BadInput, format, args...) }

// NoRun is the refusal for a run that does not exist.
func NoRun(id jobs.ID) error {
	if id.IsZero() { // its text is empty
		return Refuse(jobs.NotFound, "there is no run with the zero ID")
	}
	return Refuse(jobs.NotFound, "there is no run %s", id)
}

// OutcomeUnknown is the refusal for a command that may have been applied. Its text says so once, even if err does too:
// several layers may have sent the command.
func OutcomeUnknown(format string, args ...any) error {
	says := string(jobs.Unknown)
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), says+": ", "")
	if text = strings.TrimSuffix(text, ": "+says); text != says {
		says += ": " + text
	}
	return Refuse(jobs.Unknown, "%s", says)
}
