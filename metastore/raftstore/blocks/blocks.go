// Package blocks is the format of files that grow by blocks: those of finished runs, and those of log lines.
//
// It is not promised to programs outside this module.
//
// A block is a head, then content. The head has a checksum over all the rest of the block. Each block states the
// numbers that it covers, which begin after those of the block before it: so a missing block is noticed, too. Records
// lie in blocks, under ascending numbers. Start with [Writer] and [Scanner].
package blocks

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/bits"
)

const (
	// Title is how a block begins; its last byte is the version of the format.
	Title = "crlblk\x00\x01"
	// HeadSize is the length of a block's head.
	HeadSize = 40
	// blockSize ends a block: it ends with the record that reaches it.
	blockSize = 256 << 10
	// window is how many bytes a Scanner reads at once.
	window = 1 << 20
)

// The kinds of blocks.
const (
	Begin = iota + 1 // the first block of a file of runs: its salt
	Runs             // records of runs
	Index            // of the file that it ends
	Lines            // records of log lines
	Foot             // where the index of a file of log lines is
)

// Head is the head of a block.
type Head struct {
	Kind, Count uint32
	Size        int64 // of the block
	After, Last uint64
}

// Castagnoli is the polynomial of all checksums.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal writes the head of a block at its beginning.
func (h *Head) seal(block []byte) {
	copy(block, Title)
	binary.BigEndian.PutUint32(block[12:], h.Kind)
	binary.BigEndian.PutUint32(block[16:], h.Count)
	binary.BigEndian.PutUint32(block[20:], uint32(len(block)))
	binary.BigEndian.PutUint64(block[24:], h.After)
	binary.BigEndian.PutUint64(block[32:], h.Last)
	binary.BigEndian.PutUint32(block[8:], sumOf(block))
}

// sumOf is the checksum of a block.
func sumOf(block []byte) uint32 {
	return crc32.Update(crc32.Checksum(block[:8], Castagnoli), Castagnoli, block[12:])
}

var (
	ErrUnreadable = errors.New("a block is unreadable")
	ErrOrder      = errors.New("the records are not in order")
	ErrRecord     = errors.New("a record's checksum is wrong")
)

// ReadHead reads the head of a block of at most some bytes, and the block's checksum, which is still to be compared.
func ReadHead(b []byte, most int64) (h Head, sum uint32, err error) {
	h = Head{Kind: binary.BigEndian.Uint32(b[12:]), Count: binary.BigEndian.Uint32(b[16:]), Size: int64(binary.BigEndian.Uint32(b[20:])),
		After: binary.BigEndian.Uint64(b[24:]), Last: binary.BigEndian.Uint64(b[32:])}
	if string(b[:len(Title)]) != Title || h.Size < HeadSize || h.Size > most || h.Last < h.After {
		return h, 0, ErrUnreadable
	}
	return h, binary.BigEndian.Uint32(b[8:]), nil
}

// Parse checks a whole block at the beginning of b, and returns its content.
func Parse(b []byte) (h Head, content []byte, err error) {
	if len(b) < HeadSize {
		return h, nil, ErrUnreadable
	}
	h, sum, err := ReadHead(b, int64(len(b)))
	if err != nil || sumOf(b[:h.Size]) != sum {
		return h, nil, ErrUnreadable
	}
	return h, b[HeadSize:h.Size], nil
}

// Scanner reads the blocks of a file, one after the other.
type Scanner struct {
	File    io.ReaderAt
	At      int64 // of the next block
	Size    int64 // of the file
	After   uint64
	skipped bool   // something was unreadable: any block may follow, also one that is the text of a record
	room    []byte // a part of the file
	begin   int64  // of room
}

// Next is the next block, whose content is valid until the call after it; ErrUnreadable if it is unreadable, or does
// not follow the block before it.
func (s *Scanner) Next() (h Head, content []byte, err error) {
	b, err := s.peek(HeadSize)
	if err != nil || len(b) < HeadSize {
		return h, nil, orUnreadable(err)
	}
	most := s.Size - s.At
	if s.skipped { // no text of a damaged block makes it read the rest of the file
		most = min(most, 2*blockSize)
	}
	h, _, err = ReadHead(b, most)
	if err != nil || s.At > 0 && h.After != s.After && !s.skipped {
		return h, nil, ErrUnreadable
	}
	if b, err = s.peek(int(h.Size)); err != nil {
		return h, nil, orUnreadable(err)
	}
	if _, content, err = Parse(b[:min(len(b), int(h.Size))]); err != nil {
		return h, nil, err
	}
	s.At, s.After = s.At+h.Size, h.Last
	return h, content, nil
}

// Skip moves from an unreadable block to the next place where one may begin, or to the end. From then on the caller
// must not trust blocks, but only what it can verify.
func (s *Scanner) Skip() error {
	s.skipped = true
	for s.At++; s.At < s.Size; {
		b, err := s.peek(len(Title))
		if err != nil {
			return err
		}
		if at := bytes.Index(b, []byte(Title)); at >= 0 {
			s.At += int64(at)
			return nil
		}
		s.At += int64(max(1, len(b)-len(Title)+1))
	}
	return nil
}

// peek is the file from At on: at least n bytes, or fewer at its end.
func (s *Scanner) peek(n int) ([]byte, error) {
	if in := s.At - s.begin; in >= 0 && in+int64(n) <= int64(len(s.room)) {
		return s.room[in:], nil
	}
	size := int(min(int64(max(n, window)), s.Size-s.At))
	if size > cap(s.room) {
		s.room = make([]byte, size)
	}
	read, err := s.File.ReadAt(s.room[:size], s.At)
	s.room, s.begin = s.room[:read], s.At
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return s.room, err
}

func orUnreadable(err error) error {
	if err == nil {
		return ErrUnreadable
	}
	return err
}

// Writer writes blocks into memory, at the end of a file.
type Writer struct {
	B       []byte
	At      int64  // of B in the file
	Last    uint64 // the number up to which the file goes
	Records int64  // bytes of records in B
	Head    Head   // of the block that grows; its kind is 0 while there is none
	begins  int    // where that begins in B
}

// NewFile begins a file whose runs have numbers above after.
func NewFile(after uint64) (w *Writer, s Salt) {
	s = NewSalt()
	w = &Writer{Last: after}
	w.Begin(Begin)
	w.B = append(w.B, s[:]...)
	w.End(after)
	return w, s
}

// Begin begins a block and returns its place in the file.
func (w *Writer) Begin(kind uint32) (at int64) {
	w.begins = len(w.B)
	w.B = append(w.B, make([]byte, HeadSize)...)
	w.Head = Head{Kind: kind, After: w.Last, Last: w.Last}
	return w.At + int64(w.begins)
}

// End ends a block, if one grows. It covers numbers up to last, or to its last record.
func (w *Writer) End(last uint64) {
	if w.Head.Kind != 0 {
		w.Last = max(w.Head.Last, last)
		w.Head.Last = w.Last
		w.Head.seal(w.B[w.begins:])
		w.Head = Head{}
	}
}

// RecordHead is a number, and the length of the record behind it.
const RecordHead = 12

// Record appends what write appends as the record with a number, in a block of a kind, and returns its place in the
// file.
func (w *Writer) Record(kind uint32, number uint64, write func(b []byte) []byte) (at int64) {
	if w.Head.Kind == 0 {
		w.Begin(kind)
	}
	begins := len(w.B)
	w.B = binary.BigEndian.AppendUint64(w.B, number)
	w.B = write(append(w.B, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(w.B[begins+8:], uint32(len(w.B)-begins-RecordHead))
	w.Head.Count++
	w.Head.Last = number
	w.Records += int64(len(w.B) - begins)
	if len(w.B)-w.begins >= blockSize {
		w.End(number)
	}
	return w.At + int64(begins)
}

// EachRecord calls fn for the records in the content of a block, with their places in it.
func EachRecord(h *Head, content []byte, fn func(at int, number uint64, record []byte) error) error {
	before, n := h.After, uint32(0)
	for at := 0; at < len(content); n++ {
		if len(content)-at < RecordHead {
			return ErrUnreadable
		}
		number, end := binary.BigEndian.Uint64(content[at:]), at+RecordHead+int(binary.BigEndian.Uint32(content[at+8:]))
		if number <= before || number > h.Last || end > len(content) {
			return ErrOrder
		}
		if err := fn(at, number, content[at+RecordHead:end]); err != nil {
			return err
		}
		before, at = number, end
	}
	if n != h.Count {
		return ErrUnreadable
	}
	return nil
}

// AppendText appends a text behind its length.
func AppendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// mostRecord is more than a record can take: a longer one is damaged.
const mostRecord = 64 << 20

// ReadRecord reads the record with a number (0 = any) at a place of a file. room is memory for it, which is returned
// larger if that is needed. The record's own checksum is still to be compared.
func ReadRecord(file io.ReaderAt, at int64, number uint64, room []byte) (record, larger []byte, err error) {
	room = room[:cap(room)]
	for size := 1 << 10; ; {
		if size > len(room) {
			room = make([]byte, size)
		}
		n, err := file.ReadAt(room, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, room, err
		}
		if n < RecordHead || number != 0 && binary.BigEndian.Uint64(room) != number {
			return nil, room, ErrRecord
		}
		size = RecordHead + int(binary.BigEndian.Uint32(room[8:]))
		switch {
		case size <= n:
			return room[RecordHead:size], room, nil
		case n < len(room) || size > mostRecord:
			return nil, room, ErrRecord
		}
	}
}

// Salt is the secret key of a file's hashes, so that clients cannot choose ids that collide; matches are compared
// with their labels all the same. It is the file's identity, too.
type Salt [16]byte

// NewSalt is a random one.
func NewSalt() (s Salt) {
	_, _ = rand.Read(s[:]) // it never fails
	return s
}

// Hash is the hash of a name of a kind.
func (s *Salt) Hash(kind byte, tenant, name string) uint32 {
	k0, k1 := binary.LittleEndian.Uint64(s[:]), binary.LittleEndian.Uint64(s[8:])
	h := k0 ^ uint64(kind)<<32 ^ uint64(len(tenant))<<16 ^ uint64(len(name))
	for _, text := range [...]string{tenant, name} {
		for len(text) > 0 {
			var b [8]byte
			n := copy(b[:], text)
			hi, lo := bits.Mul64(h^binary.LittleEndian.Uint64(b[:]), k1|1)
			h, text = hi^lo^k0, text[n:]
		}
	}
	hi, lo := bits.Mul64(h^k1, k0|1)
	return uint32(hi ^ lo)
}
