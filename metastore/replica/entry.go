package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// An entry of the log begins with the version of this form, a checksum of the rest, the kind of entry, and the
// version of the rules that a reader must know. The libraries that store the log do not check what they read.

const (
	entryVersion = 3
	entryHead    = 10
	entryKindAt  = 5 // the checksum covers what follows
	entryRulesAt = 6
	// defaultEntry is how long an entry may be before a batch is split, and maxCommands how much of a batch is encoded
	// to find out.
	defaultEntry = 4 << 20
	maxCommands  = 4096
	// commitsInFlight is how many large entries may be under way at once.
	commitsInFlight = 2
)

// entryKind is the kind of an entry.
type entryKind uint8

const (
	entryCommit  entryKind = 1 // a list of envelopes
	entryMark    entryKind = 2 // every node takes the fingerprint of its rows here
	entryVerdict entryKind = 3 // the leader's fingerprint at an earlier mark, to compare with
	entryTerm    entryKind = 4 // nothing: a term begins
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendEntry encodes a commit into an empty buffer. rules is the version in force; a node that does not know a
// version stops at the entry that puts it in force, not after it.
func AppendEntry(b []byte, rules uint32, batch []kernel.Envelope) []byte {
	b = append(b, make([]byte, entryHead)...)
	for i := range batch {
		if k, ok := batch[i].Command.(kernel.FinalizeUpgrade); ok {
			rules = max(rules, k.To)
		}
	}
	return sealEntry(kernel.AppendEnvelopes(b, batch), entryCommit, rules)
}

// sealEntry fills the head of an entry.
func sealEntry(b []byte, kind entryKind, rules uint32) []byte {
	b[0], b[entryKindAt] = entryVersion, byte(kind)
	binary.LittleEndian.PutUint32(b[entryRulesAt:], rules)
	binary.LittleEndian.PutUint32(b[1:], crc32.Checksum(b[entryKindAt:], castagnoli))
	return b
}

// TermEntry is an entry that changes nothing, for logs in which a leader begins its term with one of its own.
func TermEntry() []byte {
	return sealEntry(make([]byte, entryHead), entryTerm, kernel.FirstApplyVersion)
}

// Mark is the entry at which every node takes a fingerprint of its rows.
func Mark() []byte {
	return sealEntry(make([]byte, entryHead), entryMark, kernel.FirstApplyVersion)
}

// verdict is the fingerprint of the leader's rows at a mark.
type verdict struct {
	index uint64 // of the mark's entry
	hash  [sha256.Size]byte
}

func (v verdict) encode() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, entryHead), v.index)
	return sealEntry(append(b, v.hash[:]...), entryVerdict, kernel.FirstApplyVersion)
}

func decodeVerdict(body []byte) (v verdict, err error) {
	if len(body) != 8+len(v.hash) {
		return v, errEntryChecksum
	}
	v.index = binary.LittleEndian.Uint64(body)
	copy(v.hash[:], body[8:])
	return v, nil
}

var (
	errEntryChecksum = errors.New("wrong checksum")
	// ErrEntryVersion is the error of an entry that a newer program wrote.
	ErrEntryVersion = errors.New("it was written by a newer version of this program")
)

// CheckEntry returns what is wrong with an entry, for a program that knows the rules up to a version.
func CheckEntry(b []byte, knows uint32) error {
	_, _, err := openEntry(b, knows)
	return err
}

// openEntry checks an entry and returns its content.
func openEntry(b []byte, knows uint32) (kind entryKind, body []byte, err error) {
	switch {
	case len(b) < entryHead:
		return 0, nil, errEntryChecksum
	case b[0] > entryVersion:
		return 0, nil, ErrEntryVersion
	case b[0] < entryVersion || binary.LittleEndian.Uint32(b[1:]) != crc32.Checksum(b[entryKindAt:], castagnoli):
		return 0, nil, errEntryChecksum
	}
	if err := metastore.Readable("it", binary.LittleEndian.Uint32(b[entryRulesAt:]), knows); err != nil {
		return 0, nil, err
	}
	if kind = entryKind(b[entryKindAt]); kind < entryCommit || kind > entryTerm {
		return 0, nil, ErrEntryVersion
	}
	return kind, b[entryHead:], nil
}
