package loglines

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// A record is lines of one attempt whose sequence numbers have no gap: a checksum over the file's salt and all that
// follows, whose lines they are, and the lines. Records of one attempt overlap nowhere. The salt is a secret: the text
// of a line cannot be a record, even if a damaged block makes a reader search for the next one.

// perRecord is about how many bytes of lines make a record.
const perRecord = 64 << 10

// attempt names an attempt.
type attempt struct {
	name
	number uint32
}

// name names a run.
type name struct {
	tenant jobs.Tenant
	run    jobs.ID
}

// label is a record without its lines.
type label struct {
	attempt
	first, count uint64
	account      int   // bytes of the attempt with this record, as Size counts; beyond MaxLog once a line was dropped
	stored       int64 // when it was stored, in Unix seconds
}

func sumOf(salt *blocks.Salt, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(salt[:], blocks.Castagnoli), blocks.Castagnoli, record[4:])
}

// appendRecord appends the record of lines that follow each other.
func appendRecord(b []byte, salt *blocks.Salt, l *label, lines []metastore.LogLine) []byte {
	at := len(b)
	b = blocks.AppendText(append(b, 0, 0, 0, 0), string(l.tenant))
	b = append(b, l.run[:]...)
	for _, n := range [...]uint64{uint64(l.number), l.first, l.count, uint64(l.account), uint64(l.stored)} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range lines {
		b = binary.AppendVarint(b, lines[i].At.UnixNano())
		b = blocks.AppendText(blocks.AppendText(b, lines[i].Level), lines[i].Text)
	}
	binary.BigEndian.PutUint32(b[at:], sumOf(salt, b[at:]))
	return b
}

// readLabel checks a record, and reads it as far as its lines, which it returns still encoded.
func readLabel(salt *blocks.Salt, record []byte) (l label, lines []byte, err error) {
	if len(record) < 4 || binary.BigEndian.Uint32(record) != sumOf(salt, record) {
		return l, nil, blocks.ErrRecord
	}
	p := parser{b: record[4:]}
	l.tenant = jobs.Tenant(p.text())
	if len(p.b) < len(l.run) {
		return l, nil, blocks.ErrRecord
	}
	p.b = p.b[copy(l.run[:], p.b):]
	l.number, l.first, l.count, l.account, l.stored = uint32(p.number()), p.number(), p.number(), int(p.number()), int64(p.number())
	if p.bad || l.count == 0 || l.count > uint64(len(record)) {
		return l, nil, blocks.ErrRecord
	}
	return l, p.b, nil
}

// decode calls fn for the lines of a record, until it returns false.
func (l *label) decode(lines []byte, fn func(metastore.LogLine) bool) error {
	p := parser{b: lines}
	for i := range l.count {
		n, size := binary.Varint(p.b)
		p.b = p.b[max(size, 0):]
		line := metastore.LogLine{Tenant: l.tenant, Run: l.run, LogPosition: metastore.LogPosition{Attempt: l.number, Sequence: l.first + i},
			At: time.Unix(0, n).UTC(), Level: p.text(), Text: p.text()}
		if p.bad || size <= 0 {
			return blocks.ErrRecord
		}
		if !fn(line) {
			break
		}
	}
	return nil
}

type parser struct {
	b   []byte
	bad bool
}

func (p *parser) number() uint64 {
	n, size := binary.Uvarint(p.b)
	if size <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) text() string {
	n := p.number()
	if n > uint64(len(p.b)) {
		p.bad, p.b = true, nil
		return ""
	}
	s := string(p.b[:n])
	p.b = p.b[n:]
	return s
}
