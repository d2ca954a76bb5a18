package archive

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A node that lags takes segments as they are, and only runs beside them as records. The bytes of a segment that have
// arrived stay in a file until it is whole and its checksums are right; then it gets its name. The segments of two
// nodes differ: there may be a part of each, until one is whole.

// Whole is a segment on its way to another node. Its file remains readable when the archive deletes it.
type Whole struct {
	ID   string
	Head []byte // for Receive
	Size int64
	io.ReaderAt
}

// Send passes on the runs with numbers above after, up to and including upTo, in order: a segment that lies in that
// range and is intact as a whole, if whole is not nil, and all others as records, a part at a time. Purged runs are
// missing. A damaged record is passed on as one: the receiver decides whether to continue without it. The archive
// itself works on whatever a copy meets.
func (a *Archive) Send(ctx context.Context, after, upTo uint64, records func([]Record) error, whole func(*Whole) error) error {
	if last := a.Last(); upTo > last {
		return fmt.Errorf("copy archive %s: it ends at %d, not at %d", a.dir, last, upTo)
	}
	if err := a.Sync(); err != nil {
		return err
	}
	for after < upTo {
		s, limit := (*segment)(nil), upTo
		if whole != nil {
			s, limit = a.next(after, upTo)
		}
		sent, err := s.send(whole)
		for at := after; !sent && err == nil; {
			var part []Record
			if part, err = a.part(at, limit); len(part) == 0 {
				break
			}
			at = part[len(part)-1].Number
			err = errors.Join(err, records(part), ctx.Err())
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		after = limit
	}
	return nil
}

// next is the number up to which the file goes that has the next run, and a copy of it, with a file of its own, if it
// is a segment that lies in the range.
func (a *Archive) next(after, upTo uint64) (*segment, uint64) {
	a.files.RLock()
	defer a.files.RUnlock()
	for _, s := range a.sealed {
		if s.last <= after {
			continue
		}
		if file, err := os.Open(s.path); err == nil && s.after >= after && s.last <= upTo {
			own := *s
			own.file = file
			return &own, s.last
		} else if err == nil {
			_ = file.Close()
		}
		return nil, min(upTo, s.last)
	}
	return nil, upTo
}

// send passes on a segment and closes it. It reports false if it is damaged: its runs go as records then, and each that
// is damaged reports itself.
func (s *segment) send(whole func(*Whole) error) (sent bool, err error) {
	if s == nil {
		return false, nil
	}
	defer s.file.Close()
	err = s.verify()
	if _, damaged := errors.AsType[*disk.Damaged](err); damaged {
		return false, nil
	}
	if err == nil {
		err = whole(&Whole{ID: hex.EncodeToString(s.salt[:]), Head: append(s.salt[:], s.hidden...), Size: s.size, ReaderAt: s.file})
	}
	return true, err
}

const partSuffix = ".part"

// Arrived is the segments of which a part has arrived, and how many bytes that is.
func (a *Archive) Arrived() map[string]int64 {
	arrived := map[string]int64{}
	files, _ := filepath.Glob(filepath.Join(a.dir, "*"+partSuffix))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			arrived[strings.TrimSuffix(filepath.Base(f), partSuffix)] = info.Size()
		}
	}
	return arrived
}

// Receive takes a segment of some bytes from another node, those from a place on, which is 0 or what Arrived returned.
// Its runs must come after those that are here. Nothing may be appended meanwhile.
func (a *Archive) Receive(head []byte, from, size int64, bytes io.Reader) error {
	var want blocks.Salt
	hidden := head[min(copy(want[:], head), len(head)):]
	id := hex.EncodeToString(want[:])
	path, flags := filepath.Join(a.dir, id+partSuffix), os.O_CREATE|os.O_RDWR|os.O_APPEND
	if here := a.Arrived()[id]; from == 0 {
		flags |= os.O_TRUNC
	} else if from != here {
		return fmt.Errorf("receive segment %s from byte %d: %d bytes are here", id, from, here)
	}
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(file, bytes, size-from); err != nil { // the rest comes later
		return errors.Join(err, file.Close())
	}
	s := segment{path: path, file: file}
	if err = errors.Join(file.Sync(), s.open()); err == nil {
		err = s.verify()
	}
	if err == nil && (s.salt != want || len(hidden) > (s.runs+7)/8) {
		err = s.is("it is another one than was announced")
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("receive a segment: %w", errors.Join(err, os.Remove(path)))
	}
	return a.adopt(&s, hidden)
}

// adopt makes a segment that was received one of the archive's.
func (a *Archive) adopt(s *segment, hidden []byte) error {
	if err := a.Sync(); err != nil {
		return err
	}
	a.filing.Lock()
	defer a.filing.Unlock()
	if s.after < a.filed {
		return errors.Join(fmt.Errorf("receive a segment that begins after run %d: runs up to %d are here", s.after, a.filed), os.Remove(s.path))
	}
	if a.index.runs() > 0 {
		if err := a.seal(); err != nil {
			return err
		}
	}
	err := a.put(s, hidden)
	if err != nil {
		err = fmt.Errorf("receive a segment of archive %s: %w", a.dir, err)
		a.fail(err)
		return err
	}
	return errors.Join(a.mark(), a.removeParts())
}

// put gives a segment its name and begins an open file behind it.
func (a *Archive) put(s *segment, hidden []byte) error {
	path := filepath.Join(a.dir, nameOf(s.after))
	if countSet(hidden) > 0 {
		if err := writeGone(path, s.salt, hidden); err != nil {
			return err
		}
	}
	a.files.Lock()
	defer a.files.Unlock()
	if err := errors.Join(a.open.Close(), os.Rename(s.path, path), syncDir(a.dir)); err != nil {
		return err
	}
	if err := a.take(path); err != nil {
		return err
	}
	return a.newOpen(s.last)
}

// removeParts removes what has arrived of other segments.
func (a *Archive) removeParts() error {
	files, err := filepath.Glob(filepath.Join(a.dir, "*"+partSuffix))
	for _, f := range files {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}
