package replica

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A snapshot file is its title, the version of the rules in force, the last entry in it and the last run in the
// archive by then, blocks of rows, each after its length, a length of zero, and the SHA-256 of all that. Restoring
// reads to the end before it uses a row.

const (
	snapshotTitle = "carillon snapshot 3\n"
	blockSize     = 256 << 10
	maxBlock      = 64 << 20
)

// Head is the head of a snapshot.
type Head struct {
	Rules uint32 // the version that was in force
	Index uint64 // of the last entry that is in the rows
	Ended uint64 // number of the last run that is in the history
}

// WriteSnapshot writes rows and returns their size in bytes.
func WriteSnapshot(to io.Writer, head Head, rows iter.Seq[kernel.Row]) (size int64, err error) {
	sum := sha256.New()
	w := io.MultiWriter(to, sum)
	write := func(b []byte) {
		if err == nil {
			var n int
			n, err = w.Write(b)
			size += int64(n)
		}
	}
	about := binary.LittleEndian.AppendUint32([]byte(snapshotTitle), head.Rules)
	write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(about, head.Index), head.Ended))
	block := make([]byte, 4, 4+2*blockSize)
	flush := func() {
		if n := len(block) - 4; err == nil && n > maxBlock {
			err = fmt.Errorf("a row of %d bytes is too long for a snapshot, which takes at most %d", n, maxBlock)
		}
		binary.LittleEndian.PutUint32(block, uint32(len(block)-4))
		write(block)
		block = block[:4]
	}
	for row := range rows {
		block = kernel.AppendRow(block, row)
		if len(block) >= blockSize {
			flush()
		}
		if err != nil {
			return size, err
		}
	}
	if len(block) > 4 {
		flush()
	}
	flush() // the empty block at the end
	if err == nil {
		_, err = to.Write(sum.Sum(nil))
	}
	return size + sha256.Size, err
}

var errSnapshot = errors.New("wrong checksum")

// ReadSnapshot is the rows of a snapshot. Its last yield is an error if the file is damaged, or if a program that
// knows the rules up to a version cannot read it. The head is set when all rows were read.
func ReadSnapshot(from io.Reader, knows uint32) (*Head, iter.Seq2[kernel.Row, error]) {
	head := new(Head)
	return head, func(yield func(kernel.Row, error) bool) {
		// Blocks are decoded in parallel, and yielded in their order.
		parts, stop := make(chan chan part, runtime.GOMAXPROCS(0)), make(chan struct{})
		var reading sync.WaitGroup
		defer reading.Wait()
		defer close(stop)
		reading.Go(func() {
			defer close(parts)
			err := readBlocks(from, knows, head, func(block []byte) bool {
				of := make(chan part, 1)
				select {
				case parts <- of:
					reading.Go(func() { of <- decodeBlock(block) })
					return true
				case <-stop:
					return false
				}
			})
			if err != nil {
				of := make(chan part, 1)
				of <- part{err: err}
				select {
				case parts <- of:
				case <-stop:
				}
			}
		})
		for of := range parts {
			p := <-of
			for _, row := range p.rows {
				if !yield(row, nil) {
					return
				}
			}
			if p.err != nil {
				yield(nil, p.err)
				return
			}
		}
	}
}

// VerifySnapshot reads a snapshot of rules up to a version, compares it with its checksum, and returns its head.
func VerifySnapshot(from io.Reader, knows uint32) (head Head, err error) {
	err = readBlocks(from, knows, &head, func([]byte) bool { return true })
	return head, err
}

// part is the rows of a block, and the error after them.
type part struct {
	rows []kernel.Row
	err  error
}

func decodeBlock(block []byte) (p part) {
	for len(block) > 0 && p.err == nil {
		var row kernel.Row
		if row, block, p.err = kernel.DecodeRow(block); p.err == nil {
			p.rows = append(p.rows, row)
		}
	}
	return p
}

// readBlocks calls take with each block, until it is false.
func readBlocks(from io.Reader, knows uint32, is *Head, take func(block []byte) bool) error {
	sum := sha256.New()
	in := bufio.NewReaderSize(from, blockSize)
	read := func(b []byte) error {
		if _, err := io.ReadFull(in, b); err != nil {
			return fmt.Errorf("truncated: %w", err)
		}
		sum.Write(b)
		return nil
	}
	title := make([]byte, len(snapshotTitle))
	if err := read(title); err != nil {
		return err
	}
	if string(title) != snapshotTitle {
		return fmt.Errorf("no snapshot: it begins with %q, want %q", title, snapshotTitle)
	}
	var about [20]byte
	if err := read(about[:]); err != nil {
		return err
	}
	is.Rules, is.Index, is.Ended = binary.LittleEndian.Uint32(about[:]), binary.LittleEndian.Uint64(about[4:]), binary.LittleEndian.Uint64(about[12:])
	if err := metastore.Readable("the snapshot", is.Rules, knows); err != nil {
		return err
	}
	var head [4]byte
	for {
		if err := read(head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == 0 {
			break
		}
		if n > maxBlock {
			return fmt.Errorf("a block of %d bytes, want at most %d", n, maxBlock)
		}
		block := make([]byte, n)
		if err := read(block); err != nil {
			return err
		}
		if !take(block) {
			return nil
		}
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if err := read(got); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return errSnapshot
	}
	return nil
}
