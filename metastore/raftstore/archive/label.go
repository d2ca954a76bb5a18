package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A record is a run in the file: a checksum over its number and all that follows, a label by which the run is found,
// and the row. Indexes are built and filters are answered from labels; only rows that are shown are decoded.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("a record's checksum is wrong")

// summed is b with its checksum appended.
func summed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// unsummed is summed's argument; false means that the checksum is wrong.
func unsummed(b []byte) ([]byte, bool) {
	n := len(b) - 4
	if n < 0 || binary.LittleEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli) {
		return nil, false
	}
	return b[:n], true
}

// damagedRun is the error about a damaged run in a file.
func damagedRun(path string, number uint64, err error) error {
	return &disk.Damaged{Path: path, What: fmt.Sprintf("run %d: %v", number, err)}
}

// checksum is the first field of a record with a number.
func checksum(number uint64, record []byte) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], number)
	return crc32.Update(crc32.Checksum(key[:], castagnoli), castagnoli, record[4:])
}

// label is the fields by which a run is found. Its strings share the record's memory.
type label struct {
	tenant, key, worker, origin []byte

	id, parent     jobs.ID
	state          jobs.State
	created, ended int64
}

// appendRecord appends the record of a run with a number to b.
func appendRecord(b []byte, number uint64, run *kernel.Run) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, s := range [...]string{string(run.Tenant), string(run.Key), run.Worker, string(run.Origin)} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
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

// readLabel reads the label of the record with a number and returns the row that follows it, still encoded.
func readLabel(number uint64, record []byte) (l label, row []byte, err error) {
	if len(record) < 4 || binary.LittleEndian.Uint32(record) != checksum(number, record) {
		return l, nil, errRecord
	}
	b := record[4:]
	for _, field := range [...]*[]byte{&l.tenant, &l.key, &l.worker, &l.origin} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return l, nil, errRecord
		}
		*field, b = b[size:size+int(n)], b[size+int(n):]
	}
	if len(b) < 2*len(l.id)+1+16 {
		return l, nil, errRecord
	}
	b = b[copy(l.id[:], b):]
	b = b[copy(l.parent[:], b):]
	l.state = jobs.State(b[0])
	l.created = int64(binary.LittleEndian.Uint64(b[1:]))
	l.ended = int64(binary.LittleEndian.Uint64(b[9:]))
	return l, b[17:], nil
}

// sketch is the fields of the run for filters.
func (l *label) sketch() *kernel.Run {
	run := &kernel.Run{Tenant: jobs.Tenant(l.tenant), ID: l.id, Key: jobs.Key(l.key), State: l.state,
		Worker: string(l.worker), Origin: kernel.Origin(l.origin), Parent: l.parent}
	if l.created != 0 {
		run.Created = time.Unix(0, l.created).UTC()
	}
	if l.ended != 0 {
		run.Ended = time.Unix(0, l.ended).UTC()
	}
	return run
}

// labelOf is the label of a row that is not in the file yet.
func labelOf(run *kernel.Run) label {
	return label{tenant: []byte(run.Tenant), key: []byte(run.Key), worker: []byte(run.Worker), id: run.ID, parent: run.Parent, state: run.State,
		ended: nanos(run.Ended)}
}

// decode reads the row of the record with a number.
func decode(number uint64, record []byte) (*kernel.Run, error) {
	_, row, err := readLabel(number, record)
	if err != nil {
		return nil, err
	}
	r, _, err := kernel.DecodeRow(row)
	if err != nil {
		return nil, err
	}
	run, ok := r.(*kernel.Run)
	if !ok {
		return nil, errRecord
	}
	return run, nil
}
