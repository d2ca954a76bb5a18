package jobs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// Tenant separates the jobs of one customer from those of another. It is part of every key.
type Tenant string

// DefaultTenant is meant when no tenant is named.
const DefaultTenant Tenant = "default"

// Key names a job within its tenant. It never changes: 1 to 200 of A-Z a-z 0-9 . _ - and no dot at the front.
type Key string

// Check says what is wrong with a key, or nil.
func (k Key) Check() error {
	if err := plain.Name("job key", string(k), 200); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// CheckName says what is wrong with the name of a thing (an app, a worker, a tenant), or nil. Names follow the
// rule of keys, because they end up in subjects and paths.
func CheckName(what, name string) error {
	if err := plain.Name(what, name, 200); err != nil {
		return Invalid("%v", err)
	}
	return nil
}

// ID names a run, a definition (its uid) or an envelope. It is a UUID: version 7 for what people and
// programs create, version 8 for what follows from something else (see [DueID], [DerivedID]).
type ID [16]byte

// NewID makes an ID of version 7: random, and sorted by the time it is given, to a millisecond.
func NewID(now time.Time) ID {
	var id ID
	_, _ = rand.Read(id[6:]) // never fails: it stops the program instead
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(id[0:], uint16(ms>>32))
	binary.BigEndian.PutUint32(id[2:], uint32(ms))
	id[6] = id[6]&0x0f | 7<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

// MadeAt is when NewID made an ID, to a millisecond, by the clock it was given; false if something else made it.
func MadeAt(id ID) (time.Time, bool) {
	if id[6]>>4 != 7 {
		return time.Time{}, false
	}
	ms := uint64(binary.BigEndian.Uint16(id[0:]))<<32 | uint64(binary.BigEndian.Uint32(id[2:]))
	return time.UnixMilli(int64(ms)).UTC(), true
}

// DueID is the ID of the run that belongs to one due time of a recurring job. The same due time has the
// same ID on every node, for ever: creating it twice is creating it once.
func DueID(tenant Tenant, job ID, due time.Time, part, replay uint32) ID {
	var b [24 + 16]byte
	copy(b[:], job[:])
	binary.BigEndian.PutUint64(b[16:], uint64(due.UnixNano()))
	binary.BigEndian.PutUint32(b[24:], part)
	binary.BigEndian.PutUint32(b[28:], replay)
	return DerivedID(string(tenant), string(b[:32]))
}

// DerivedID is an ID of version 8 that follows from words alone.
func DerivedID(words ...string) ID {
	h := sha256.New()
	var n [8]byte
	for _, w := range words {
		binary.BigEndian.PutUint64(n[:], uint64(len(w)))
		h.Write(n[:])
		h.Write([]byte(w))
	}
	var id ID
	copy(id[:], h.Sum(nil))
	id[6] = id[6]&0x0f | 8<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IsDerived reports whether an ID follows from something else: from a due time, a parent, words.
func IsDerived(id ID) bool { return id[6]>>4 == 8 }

// IsZero says that no ID was given.
func (id ID) IsZero() bool { return id == ID{} }

// String is the usual text of a UUID, or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], id[0:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:36], id[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// ParseID reads the text of a UUID.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, invalid("id %.50q is not a UUID such as 0190a3e5-7c2b-7d11-8f3a-5d0c9be0a001", s)
	}
	if _, err := hex.Decode(id[:], []byte(s[0:8]+s[9:13]+s[14:18]+s[19:23]+s[24:36])); err != nil {
		return ID{}, invalid("id %q is not a UUID: %v", s, err)
	}
	return id, nil
}

// MarshalText and UnmarshalText carry an ID as its text in JSON and YAML.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the reverse of MarshalText; an empty text is the zero ID.
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ID{}
		return nil
	}
	v, err := ParseID(string(b))
	*id = v
	return err
}

// Instant is t as rows hold it: UTC, no monotonic part. The zero time stays zero.
func Instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}

// Code is why a command was refused. It survives every courier, and errors.Is finds it:
//
//	if errors.Is(err, jobs.Stale) { ... } // another attempt has taken over
type Code string

// The reasons for which a command is refused.
const (
	NotFound    Code = "not found"       // no such job or run
	Conflict    Code = "conflict"        // the row is not in a state in which this can be done
	Stale       Code = "stale"           // an older attempt, revision or term than the current one
	BadInput    Code = "invalid"         // what was sent breaks a rule; nothing was stored
	Forbidden   Code = "forbidden"       // this principal may not send this command
	Unknown     Code = "outcome unknown" // it may or may not have been done: send it again, the same words
	Unavailable Code = "unavailable"     // not done, and could be later (no leader, no connection)
	Exhausted   Code = "exhausted"       // a quota is used up
)

func (c Code) Error() string { return string(c) }

// Refusal is a Code with the sentence that explains it.
type Refusal struct {
	Code Code
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Unwrap makes errors.Is(err, jobs.Stale) work.
func (r *Refusal) Unwrap() error { return r.Code }

// invalid makes a Refusal with BadInput.
func invalid(format string, args ...any) error {
	return &Refusal{Code: BadInput, Text: fmt.Sprintf(format, args...)}
}

// Refuse makes a Refusal.
func Refuse(c Code, format string, args ...any) error {
	return &Refusal{Code: c, Text: fmt.Sprintf(format, args...)}
}

// Invalid is Refuse with BadInput.
func Invalid(format string, args ...any) error { return Refuse(BadInput, format, args...) }
