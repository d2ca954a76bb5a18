package jobs

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// Tenant separates the jobs of customers. A key is unique within its tenant.
type Tenant string

// DefaultTenant is used where no tenant is given.
const DefaultTenant Tenant = "default"

// Key names a job within its tenant and never changes: 1 to 200 of A-Z a-z 0-9 . _ -, no leading dot.
type Key string

// Check returns why a key is invalid, or nil.
func (k Key) Check() error {
	if err := plain.Name("job key", string(k), 200); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// ID is the ID of a run: a UUID of version 7 if a request made the run, of version 8 if a due time or another run did.
type ID [16]byte

// NewID makes a random ID of version 7. IDs sort by now, to a millisecond.
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

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the text of a UUID, such as 0190a3e5-7c2b-7d11-8f3a-5d0c9be0a001; "" for the zero ID.
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

// ParseID is the reverse of String, but refuses an empty text.
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

// MarshalText writes an ID as its String, in JSON and YAML.
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
