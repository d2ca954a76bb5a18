package raftstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/carillon-scheduler/carillon/jobs"
)

// An entry of the log is a commit: the version of this form, a checksum of the rest, a list of envelopes. The
// libraries that keep the log do not check what they read.

const (
	entryVersion = 1
	entryHead    = 5
	// maxEntry is how long an entry may be before a batch is split, and maxCommands how much of a batch is encoded
	// to find out.
	maxEntry    = 4 << 20
	maxCommands = 4096
	// commitsInFlight is how many entries may be under way at once, if they are large.
	commitsInFlight = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeEntry(batch []jobs.Envelope) []byte {
	b := make([]byte, entryHead, entryHead+64+192*len(batch))
	b[0] = entryVersion
	b = jobs.AppendEnvelopes(b, batch)
	binary.LittleEndian.PutUint32(b[1:], crc32.Checksum(b[entryHead:], castagnoli))
	return b
}

var (
	errEntryChecksum = errors.New("its checksum is wrong")
	errEntryVersion  = errors.New("it was written by a newer version of this program")
)

func checkEntry(b []byte) error {
	switch {
	case len(b) < entryHead:
		return errEntryChecksum
	case b[0] != entryVersion:
		return errEntryVersion
	case binary.LittleEndian.Uint32(b[1:]) != crc32.Checksum(b[entryHead:], castagnoli):
		return errEntryChecksum
	}
	return nil
}

func decodeEntry(b []byte) ([]jobs.Envelope, error) {
	if err := checkEntry(b); err != nil {
		return nil, err
	}
	return jobs.DecodeEnvelopes(b[entryHead:])
}
