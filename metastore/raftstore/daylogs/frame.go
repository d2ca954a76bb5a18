package daylogs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A file is a row of frames: a mark by which a reader finds the next frame after damage, the length of the rest, a
// checksum of that length and of the rest, then some lines of one attempt whose sequence numbers have no gap.

const (
	frameHead = 12
	maxFrame  = 16 << 20
)

var mark = []byte{0xF7, 'l', 'g', 0x0A}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errFrame = errors.New("damaged log frame")

// frame is the content of a frame.
type frame struct {
	tenant  string
	run     jobs.ID
	attempt uint32
	first   uint64
	lines   int
	account int // bytes of the attempt against metastore.MaxLog with this frame; beyond it once a line was dropped
	body    []byte
}

// appendFrame appends lines of one attempt that follow each other.
func appendFrame(b []byte, lines []metastore.LogLine, account int) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	b = appendText(b, string(lines[0].Tenant))
	b = append(b, lines[0].Run[:]...)
	for _, n := range [...]uint64{uint64(lines[0].Attempt), lines[0].Sequence, uint64(len(lines)), uint64(account)} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range lines {
		b = binary.AppendVarint(b, lines[i].At.UnixNano())
		b = appendText(b, lines[i].Level)
		b = appendText(b, lines[i].Text)
	}
	copy(b[at:], mark)
	binary.LittleEndian.PutUint32(b[at+4:], uint32(len(b)-at-frameHead))
	binary.LittleEndian.PutUint32(b[at+8:], frameSum(b[at:]))
	return b
}

// frameSum is the checksum of a frame.
func frameSum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[4:8], castagnoli), castagnoli, frame[frameHead:])
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// frameSize is the length of the frame that begins with head, or 0 if none does.
func frameSize(head []byte) int {
	if len(head) < frameHead || !bytes.HasPrefix(head, mark) {
		return 0
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n == 0 || n > maxFrame {
		return 0
	}
	return frameHead + int(n)
}

// parseFrame reads a whole frame as far as its lines.
func parseFrame(b []byte) (f frame, err error) {
	if len(b) < frameHead || frameSize(b) != len(b) || binary.LittleEndian.Uint32(b[8:]) != frameSum(b) {
		return f, errFrame
	}
	p := parser{b: b[frameHead:]}
	f.tenant = p.text()
	if len(p.b) < len(f.run) {
		return f, errFrame
	}
	p.b = p.b[copy(f.run[:], p.b):]
	f.attempt, f.first, f.lines, f.account = uint32(p.number()), p.number(), int(p.number()), int(p.number())
	f.body = p.b
	if p.bad || f.lines <= 0 || f.lines > len(b) {
		return f, errFrame
	}
	return f, nil
}

// read is the lines of a frame.
func (f *frame) read() ([]metastore.LogLine, error) {
	p := parser{b: f.body}
	lines := make([]metastore.LogLine, f.lines)
	for i := range lines {
		at := p.signed()
		lines[i] = metastore.LogLine{
			Tenant: jobs.Tenant(f.tenant), Run: f.run,
			LogPosition: metastore.LogPosition{Attempt: f.attempt, Sequence: f.first + uint64(i)},
			At:          time.Unix(0, at).UTC(), Level: p.text(), Text: p.text(),
		}
	}
	if p.bad {
		return nil, errFrame
	}
	return lines, nil
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

func (p *parser) signed() int64 {
	n, size := binary.Varint(p.b)
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
