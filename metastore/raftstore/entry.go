package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/carillon-scheduler/carillon/jobs"
)

// An entry of the log begins with the version of this form, a checksum of the rest, what kind of entry it is, and the
// highest verb in it. The libraries that keep the log do not check what they read. Version 1 was always a commit, and
// had neither kind nor verb.

const (
	entryVersion = 2
	entryHead    = 7
	oldHead      = 5
	// maxEntry is how long an entry may be before a batch is split, and maxCommands how much of a batch is encoded
	// to find out.
	maxEntry    = 4 << 20
	maxCommands = 4096
	// commitsInFlight is how many entries may be under way at once, if they are large.
	commitsInFlight = 2
)

// entryKind is what an entry is.
type entryKind uint8

const (
	entryCommit  entryKind = 1 // a list of envelopes
	entryMark    entryKind = 2 // every node takes the fingerprint of its rows here
	entryVerdict entryKind = 3 // the leader's fingerprint at an earlier mark, to compare with
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeEntry encodes a commit.
func encodeEntry(batch []jobs.Envelope) []byte { return appendEntry(nil, batch) }

// appendEntry encodes a commit into memory that is there, and empty.
func appendEntry(b []byte, batch []jobs.Envelope) []byte {
	b = append(b, make([]byte, entryHead)...)
	highest := jobs.Verb(0)
	for i := range batch {
		highest = max(highest, batch[i].Command.Verb())
	}
	return sealEntry(jobs.AppendEnvelopes(b, batch), entryCommit, highest)
}

// sealEntry fills the head of an entry.
func sealEntry(b []byte, kind entryKind, highest jobs.Verb) []byte {
	b[0], b[5], b[6] = entryVersion, byte(kind), byte(highest)
	binary.LittleEndian.PutUint32(b[1:], crc32.Checksum(b[oldHead:], castagnoli))
	return b
}

func encodeMark() []byte { return sealEntry(make([]byte, entryHead), entryMark, 0) }

// verdict is what the leader's rows were at a mark.
type verdict struct {
	index uint64 // of the mark's entry
	hash  [sha256.Size]byte
}

func (v verdict) encode() []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, entryHead), v.index)
	return sealEntry(append(b, v.hash[:]...), entryVerdict, 0)
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
	errEntryChecksum = errors.New("its checksum is wrong")
	errEntryVersion  = errors.New("it was written by a newer version of this program")
)

func checkEntry(b []byte) error {
	_, _, err := openEntry(b)
	return err
}

// openEntry checks an entry and says what is in it.
func openEntry(b []byte) (kind entryKind, body []byte, err error) {
	switch {
	case len(b) < oldHead:
		return 0, nil, errEntryChecksum
	case b[0] > entryVersion:
		return 0, nil, errEntryVersion
	case binary.LittleEndian.Uint32(b[1:]) != crc32.Checksum(b[oldHead:], castagnoli):
		return 0, nil, errEntryChecksum
	case b[0] == 1:
		return entryCommit, b[oldHead:], nil
	case b[0] == 0 || len(b) < entryHead:
		return 0, nil, errEntryChecksum
	case entryKind(b[5]) > entryVerdict || jobs.Verb(b[6]) > jobs.NewestVerb:
		return 0, nil, errEntryVersion
	}
	return entryKind(b[5]), b[entryHead:], nil
}
