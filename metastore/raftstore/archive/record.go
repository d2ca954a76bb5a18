package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A record is a run: a checksum over its number and all that follows, a label by which the run is found, and the row.
// Indexes are built and filters are answered from labels; only rows that are shown are decoded. The checksum is
// beside that of the block, so that a run is read without its block, and each run of a damaged block that is intact
// itself.

// damagedRun is the error about a damaged run in a file.
func damagedRun(path string, number uint64, err error) error {
	if known, ok := errors.AsType[*disk.Damaged](err); ok {
		return known
	}
	return &disk.Damaged{Path: path, What: fmt.Sprintf("run %d: %v", number, err)}
}

// checksum is the first field of a record with a number.
func checksum(number uint64, record []byte) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], number)
	return crc32.Update(crc32.Checksum(key[:], blocks.Castagnoli), blocks.Castagnoli, record[4:])
}

// appendRecord appends the record of a run with a number to b.
func appendRecord(b []byte, number uint64, run *kernel.Run) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, s := range [...]string{string(run.Tenant), string(run.Key), run.Worker, string(run.Origin)} {
		b = blocks.AppendText(b, s)
	}
	b = append(b, run.ID[:]...)
	b = append(b, run.Parent[:]...)
	b = append(b, byte(run.State))
	b = binary.LittleEndian.AppendUint64(b, uint64(nanos(run.Created)))
	b = binary.LittleEndian.AppendUint64(b, uint64(nanos(run.Ended)))
	b = kernel.AppendRow(b, run)
	binary.LittleEndian.PutUint32(b[at:], checksum(number, b[at:]))
	return b
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanos int64) (t time.Time) {
	if nanos != 0 {
		t = time.Unix(0, nanos).UTC()
	}
	return t
}

// readLabel reads the fields of the record with a number by which runs are found and filtered, and returns the row
// behind them, still encoded.
func readLabel(number uint64, record []byte, run *kernel.Run) (row []byte, err error) {
	if len(record) < 4 || binary.LittleEndian.Uint32(record) != checksum(number, record) {
		return nil, blocks.ErrRecord
	}
	b := record[4:]
	var texts [4]string
	for i := range texts {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, blocks.ErrRecord
		}
		texts[i], b = string(b[size:size+int(n)]), b[size+int(n):]
	}
	*run = kernel.Run{Tenant: jobs.Tenant(texts[0]), Key: jobs.Key(texts[1]), Worker: texts[2], Origin: kernel.Origin(texts[3])}
	if len(b) < 2*len(run.ID)+1+16 {
		return nil, blocks.ErrRecord
	}
	b = b[copy(run.ID[:], b):]
	b = b[copy(run.Parent[:], b):]
	run.State = jobs.State(b[0])
	run.Created = timeOf(int64(binary.LittleEndian.Uint64(b[1:])))
	run.Ended = timeOf(int64(binary.LittleEndian.Uint64(b[9:])))
	return b[17:], nil
}

// decode reads the row of the record with a number.
func decode(number uint64, record []byte) (*kernel.Run, error) {
	row, err := readLabel(number, record, new(kernel.Run))
	if err != nil {
		return nil, err
	}
	r, _, err := kernel.DecodeRow(row)
	if err != nil {
		return nil, err
	}
	run, ok := r.(*kernel.Run)
	if !ok {
		return nil, blocks.ErrRecord
	}
	return run, nil
}
