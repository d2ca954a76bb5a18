package hashicorp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/hashicorp/raft-wal/types"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// segments is raft-wal's list of segment files with a checksum. raft-wal deletes files that are not in its list, and
// makes a missing last one: a wrong number in the list would delete the log.
type segments struct {
	types.MetaStore
	path string
	sum  uint32 // of the list as it is
}

// keySegments is where the checksums of the lists are that may exist: of the old one and the new one, while it
// changes.
var keySegments = []byte("carillon.segments")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumSegments(state types.PersistentState) (uint32, error) {
	b, err := json.Marshal(state) // as it is stored, so that the checksum fits what is read
	return crc32.Checksum(b, castagnoli), err
}

// Load reads the list.
func (s *segments) Load(dir string) (types.PersistentState, error) {
	state, err := s.MetaStore.Load(dir)
	if err != nil {
		return state, err
	}
	sums, err := s.GetStable(keySegments)
	if err != nil {
		return state, err
	}
	if s.sum, err = sumSegments(state); err != nil {
		return state, err
	}
	if begun := len(sums) > 0 || state.NextSegmentID > 0 || len(state.Segments) > 0; begun && !hasSum(sums, s.sum) {
		return state, &disk.Damaged{Path: s.path, What: "the list of its files has a wrong checksum"}
	}
	return state, nil
}

func hasSum(sums []byte, sum uint32) bool {
	for one := range slices.Chunk(sums, 4) {
		if len(one) == 4 && binary.LittleEndian.Uint32(one) == sum {
			return true
		}
	}
	return false
}

// CommitState replaces the list.
func (s *segments) CommitState(state types.PersistentState) error {
	sum, err := sumSegments(state)
	if err != nil {
		return fmt.Errorf("encode the list of files: %w", err)
	}
	next := binary.LittleEndian.AppendUint32(nil, sum)
	if err := s.SetStable(keySegments, binary.LittleEndian.AppendUint32(next, s.sum)); err != nil {
		return err
	}
	if err := s.MetaStore.CommitState(state); err != nil {
		return err
	}
	s.sum = sum
	return s.SetStable(keySegments, next)
}
