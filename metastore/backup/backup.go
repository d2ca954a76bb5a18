// Package backup writes all content of a store into one file, and reads it again.
//
// It is not promised to programs outside this module.
//
// Where to start: [Write] and [Open]. A file is valid as a whole or not at all: it ends with a SHA-256 over all of
// it, which Open compares before it uses anything.
//
// Sharp edges: a backup contains arguments and results of runs, log lines and hashes of tokens in the clear. Protect
// it like the store itself.
package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A file is its title; its head, as JSON after its length; blocks: a length, a kind, and the content; a length of
// zero; the account of all that, as JSON after its length; and the SHA-256 of all before.
const (
	title     = "carillon backup 1\n"
	blockSize = 256 << 10
	maxBlock  = 64 << 20
)

// The kinds of blocks.
const (
	holdsRows byte = iota + 1
	holdsEnded
	holdsLines
)

// Head describes the source of a backup.
type Head struct {
	At      time.Time `json:"at"`      // when it was begun
	Version string    `json:"version"` // of the program that wrote it
	From    string    `json:"from"`    // for people
	// ApplyVersion is the version of the rules that was in force. Write fills it in.
	ApplyVersion uint32 `json:"applyVersion"`
}

// Write writes a backup and returns its account. Without an error all of it was written, though perhaps not to a
// disk: all but finished runs that the store cannot read any more, which the account counts as left out.
func Write(ctx context.Context, to io.Writer, head Head, c metastore.Content) (metastore.Account, error) {
	w := &writer{to: to, sum: sha256.New()}
	head.ApplyVersion = kernel.FirstApplyVersion
	for row, err := range c.Rows(ctx) {
		if err != nil {
			return nil, fmt.Errorf("write backup: %w", err)
		}
		if state, ok := row.(*kernel.StoreRow); ok {
			head.ApplyVersion = state.InForce()
			break
		}
	}
	about, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	w.write([]byte(title))
	w.framed(about)
	from := metastore.Count(c)
	if err := w.content(ctx, from); err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	w.flush()
	w.write([]byte{0, 0, 0, 0})
	if about, err = json.Marshal(from.Account()); err != nil {
		return nil, err
	}
	w.framed(about)
	w.write(w.sum.Sum(nil))
	if w.err != nil {
		return nil, fmt.Errorf("write backup: %w", w.err)
	}
	return from.Account(), nil
}

func (w *writer) content(ctx context.Context, from metastore.Content) error {
	for row, err := range from.Rows(ctx) {
		if err = errors.Join(err, w.err); err != nil {
			return err
		}
		w.add(kernel.AppendRow(w.begin(holdsRows), row))
	}
	for run, err := range from.Ended(ctx) {
		if _, left := errors.AsType[*metastore.LeftOut](err); left { // the account counts it
			continue
		}
		if err = errors.Join(err, w.err); err != nil {
			return err
		}
		w.add(kernel.AppendRow(w.begin(holdsEnded), run))
	}
	for line, err := range from.Lines(ctx) {
		if err = errors.Join(err, w.err); err != nil {
			return err
		}
		w.add(line.Append(w.begin(holdsLines)))
	}
	return ctx.Err()
}

// writer writes blocks. After the first error it writes nothing more.
type writer struct {
	to    io.Writer
	sum   hash.Hash
	block []byte // not yet written
	kind  byte   // of it
	err   error
}

func (w *writer) write(b []byte) {
	if w.err == nil {
		w.sum.Write(b)
		_, w.err = w.to.Write(b)
	}
}

func (w *writer) framed(b []byte) {
	w.write(binary.LittleEndian.AppendUint32(nil, uint32(len(b))))
	w.write(b)
}

// begin is the block to append to.
func (w *writer) begin(kind byte) []byte {
	if w.kind != kind {
		w.flush()
		w.kind = kind
	}
	return w.block
}

func (w *writer) add(block []byte) {
	if w.block = block; len(block) >= blockSize {
		w.flush()
	}
}

func (w *writer) flush() {
	if len(w.block) > 0 {
		w.write(binary.LittleEndian.AppendUint32(nil, uint32(len(w.block)+1)))
		w.write([]byte{w.kind})
		w.write(w.block)
		w.block = w.block[:0]
	}
}

// Save has write fill a file of a name that is not taken. The file exists when write has returned without an error,
// all of it reads as a backup, and it is on disk.
func Save(ctx context.Context, path string, write func(io.Writer) error) (f *File, err error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, kernel.Refuse(jobs.Conflict, "%s exists: choose another name; backups are never overwritten", path)
	}
	to, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".unfinished-*") // readable to its owner only
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ignoreGone(os.Remove(to.Name()))) }()
	buffered := bufio.NewWriterSize(to, 1<<20)
	if err := errors.Join(write(buffered), buffered.Flush(), to.Sync(), to.Close()); err != nil {
		return nil, err
	}
	if f, err = Open(ctx, to.Name()); err != nil {
		return nil, err
	}
	f.path = path
	if err := os.Link(to.Name(), path); err != nil { // unlike a rename, this never replaces a newer file
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return f, errors.Join(dir.Sync(), dir.Close())
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// File is a backup whose checksum was right.
type File struct {
	Head
	// Account is its content.
	Account metastore.Account
	path    string
	size    int64
}

var _ metastore.Content = (*File)(nil)

var errDamaged = errors.New("checksum mismatch")

// Open reads a backup to its end, and refuses a truncated or damaged one.
func Open(ctx context.Context, path string) (*File, error) {
	f := &File{path: path}
	err := f.read(ctx, func(byte, []byte) (bool, error) { return true, nil }, true)
	if err != nil {
		return nil, fmt.Errorf("backup %s: %w", path, err)
	}
	return f, nil
}

// read reads the blocks. With whole it checks the checksum, and takes the head and the account; later reads rely on
// that.
func (f *File) read(ctx context.Context, block func(kind byte, b []byte) (goOn bool, err error), whole bool) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if whole {
		f.size = info.Size()
	} else if info.Size() != f.size {
		return errDamaged
	}
	r := &reader{in: bufio.NewReaderSize(file, blockSize), sum: sha256.New()}
	if !whole {
		r.sum = nil
	}
	if got := r.read(len(title)); r.err == nil && string(got) != title {
		return fmt.Errorf("no backup: it begins with %q, want %q", got, title)
	}
	var head Head
	if err := r.json(&head); err != nil {
		return err
	}
	if err := metastore.Readable("it", head.ApplyVersion, kernel.ApplyVersion); err != nil {
		return err
	}
	for {
		n := r.number()
		if r.err != nil {
			return r.err
		}
		if n == 0 {
			break
		}
		b := r.read(int(n))
		if r.err != nil {
			return r.err
		}
		if goOn, err := block(b[0], b[1:]); err != nil || !goOn {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if !whole {
		return nil
	}
	if err := r.json(&f.Account); err != nil {
		return err
	}
	want := r.sum.Sum(nil)
	if got := r.read(sha256.Size); r.err != nil || !slices.Equal(got, want) {
		return errors.Join(r.err, errDamaged)
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return errDamaged
	}
	f.Head = head
	return nil
}

// reader reads what a writer wrote, up to the first error.
type reader struct {
	in  *bufio.Reader
	sum hash.Hash // nil = unused
	err error
}

func (r *reader) read(n int) []byte {
	b := make([]byte, n)
	if r.err == nil {
		if _, err := io.ReadFull(r.in, b); err != nil {
			r.err = fmt.Errorf("truncated: %w", err)
		} else if r.sum != nil {
			r.sum.Write(b)
		}
	}
	return b
}

func (r *reader) number() uint32 {
	n := binary.LittleEndian.Uint32(r.read(4))
	if n > maxBlock && r.err == nil {
		r.err = errDamaged
	}
	if r.err != nil {
		return 0
	}
	return n
}

func (r *reader) json(v any) error {
	b := r.read(int(r.number()))
	if r.err != nil {
		return r.err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return errDamaged
	}
	return nil
}

// part reads the blocks of one kind.
func part[R any](ctx context.Context, f *File, kind byte, decode func([]byte) (R, []byte, error)) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		err := f.read(ctx, func(is byte, b []byte) (bool, error) {
			if is != kind {
				return is < kind, nil // blocks are ordered by kind
			}
			for len(b) > 0 {
				row, rest, err := decode(b)
				if err != nil {
					return false, err
				}
				if !yield(row, nil) {
					return false, nil
				}
				b = rest
			}
			return true, nil
		}, false)
		if err != nil {
			yield(none, fmt.Errorf("backup %s: %w", f.path, err))
		}
	}
}

// Rows are all rows but those of finished runs.
func (f *File) Rows(ctx context.Context) iter.Seq2[kernel.Row, error] {
	return part(ctx, f, holdsRows, kernel.DecodeRow)
}

// Ended are the finished runs.
func (f *File) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error] {
	return part(ctx, f, holdsEnded, func(b []byte) (*kernel.Run, []byte, error) {
		row, rest, err := kernel.DecodeRow(b)
		run, ok := row.(*kernel.Run)
		if err == nil && !ok {
			err = errDamaged
		}
		return run, rest, err
	})
}

// Lines are the log lines of handlers.
func (f *File) Lines(ctx context.Context) iter.Seq2[metastore.LogLine, error] {
	return part(ctx, f, holdsLines, metastore.DecodeLogLine)
}
