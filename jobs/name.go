package jobs

import (
	"crypto/rand"
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
