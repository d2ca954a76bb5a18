package loglines

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A file is blocks of records. The last file grows; when it has reached a size, it gets an index and a foot, and
// changes no more. A file's name has the number after which its records begin, and its salt.
type file struct {
	path   string
	file   *os.File
	salt   blocks.Salt
	old    bool   // it was there when the folder was opened
	last   uint64 // the number of its last record
	length int64  // where the next block goes

	// Guarded by Logs.mu.
	foot                    // zero while the file grows, but for newest
	index    *index         // nil = it is in the file
	runs     filter         // of the index in the file; nil = not read yet
	reported map[int64]bool // places of damage
}

const suffix = ".log"

func nameOf(after uint64, salt *blocks.Salt) string {
	return fmt.Sprintf("%016x-%x%s", after, *salt, suffix)
}

// parseName reads a name that nameOf made.
func parseName(name string) (after uint64, salt blocks.Salt, ok bool) {
	number, rest, _ := strings.Cut(strings.TrimSuffix(name, suffix), "-")
	after, err := strconv.ParseUint(number, 16, 64)
	b, wrong := hex.DecodeString(rest)
	if err != nil || wrong != nil || len(b) != len(salt) {
		return 0, salt, false
	}
	salt = blocks.Salt(b)
	return after, salt, name == nameOf(after, &salt)
}

func (f *file) hash(n name) uint32 { return f.salt.Hash('r', string(n.tenant), string(n.run[:])) }

// openFiles opens the files of the folder. It reads one whole only if that has no foot.
func (l *Logs) openFiles() error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // by name, and so by number
		after, salt, ok := parseName(e.Name())
		if !ok {
			continue
		}
		f := &file{path: filepath.Join(l.dir, e.Name()), salt: salt, last: after, old: true}
		if f.file, err = os.OpenFile(f.path, os.O_RDWR, 0o600); err != nil {
			return err
		}
		l.files = append(l.files, f)
		info, err := f.file.Stat()
		if err != nil {
			return err
		}
		f.length = info.Size()
		if ft, last, err := readFoot(f.file, f.length, &f.salt); err == nil {
			f.foot, f.last = ft, last
		} else if err := l.load(f); err != nil {
			return err
		}
		l.last = max(l.last, f.last)
	}
	if n := len(l.files); n > 0 && l.files[n-1].index != nil {
		l.open = l.files[n-1]
	}
	return nil
}

// load builds the index of a file in memory.
func (l *Logs) load(f *file) error {
	x, newest := &index{newest: map[uint32]uint32{}}, int64(0)
	last, damaged, err := l.scan(f, f.length, func(place int64, r *label) {
		newest = max(newest, r.stored)
		x.add(f.hash(r.name), entry{place: uint32(place), number: r.number, count: uint32(r.count), first: r.first})
	})
	if err != nil {
		return err
	}
	if damaged { // the lines that are lost may be the last
		info, err := f.file.Stat()
		if err != nil {
			return err
		}
		newest = max(newest, info.ModTime().Unix())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.index, f.newest = x, max(f.newest, newest)
	f.last = max(f.last, last)
	return nil
}

// scan calls fn for the records in the first bytes of a file, with their places, and returns the number of the last.
// Unreadable blocks are reported and skipped: at the end a crash leaves some, and anywhere damage. They stay in the
// file.
func (l *Logs) scan(f *file, size int64, fn func(place int64, r *label)) (last uint64, damaged bool, err error) {
	scan := blocks.Scanner{File: f.file, Size: size}
	bad := int64(-1) // where unreadable blocks began
	for {
		at := scan.At
		h, content, err := blocks.Head{}, []byte(nil), error(nil)
		if at < scan.Size {
			h, content, err = scan.Next()
		}
		if errors.Is(err, blocks.ErrUnreadable) {
			if damaged = true; bad < 0 {
				bad = at
			}
			err = scan.Skip()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return 0, false, fmt.Errorf("read log file %s: %w", f.path, err)
		}
		if bad >= 0 {
			l.report(f, bad, fmt.Sprintf("%d bytes from offset %d on are unreadable", at-bad, bad))
			bad = -1
		}
		if at >= scan.Size {
			return last, damaged, nil
		}
		if h.Kind != blocks.Lines {
			continue // an index that a crash left unfinished, or one that is damaged
		}
		err = blocks.EachRecord(&h, content, func(in int, number uint64, record []byte) error {
			r, _, err := readLabel(&f.salt, record)
			if err == nil {
				last = max(last, number)
				fn(at+blocks.HeadSize+int64(in), &r)
			}
			return err
		})
		if err != nil {
			damaged = true
			l.report(f, at, fmt.Sprintf("block at offset %d: %v", at, err))
		}
	}
}

// report reports damage at a place of a file, once.
func (l *Logs) report(f *file, at int64, what string) {
	l.mu.Lock()
	known := f.reported[at]
	if f.reported == nil {
		f.reported = map[int64]bool{}
	}
	f.reported[at] = true
	l.mu.Unlock()
	if !known {
		l.cfg.Damaged(&disk.Damaged{Path: f.path, What: what + "; its other lines are kept"})
	}
}

// begin makes the file that grows.
func (l *Logs) begin() error {
	f := &file{salt: blocks.NewSalt(), last: l.last, index: &index{newest: map[uint32]uint32{}}}
	f.path = filepath.Join(l.dir, nameOf(l.last, &f.salt))
	var err error
	if f.file, err = os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("make log file: %w", err)
	}
	if err := disk.SyncFolder(l.dir); err != nil {
		return fmt.Errorf("make log file: %w", errors.Join(err, f.file.Close(), os.Remove(f.path)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files, l.open = append(slices.Clip(l.files), f), f
	return nil
}

// seal ends the file that grows. It is on disk then.
func (l *Logs) seal() error {
	f := l.open
	w := blocks.Writer{At: f.length, Last: f.last}
	made := f.index.seal(&w, &f.salt, f.newest)
	if _, err := f.file.WriteAt(w.B, f.length); err != nil {
		return fmt.Errorf("seal log file: %w", err)
	}
	if err := f.file.Sync(); err != nil {
		l.err = fmt.Errorf("seal log file: %w", err)
		return l.err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.foot, f.index, f.length = made, nil, f.length+int64(len(w.B))
	l.open = nil
	return nil
}

// each calls fn for the records of a file that may be of a run and begin after a position, in order, until it returns
// false. With across, one that begins before and ends after the position comes first.
func (l *Logs) each(f *file, n name, after metastore.LogPosition, across bool, fn func(e entry) bool) error {
	h := f.hash(n)
	for {
		l.mu.RLock()
		inMemory := f.index != nil
		var found []entry
		if inMemory {
			found = f.index.of(h)
		}
		p, runs := pages{foot: f.foot, file: f.file}, f.runs
		l.mu.RUnlock()
		if inMemory {
			found = slices.DeleteFunc(found, func(e entry) bool {
				return e.begin().Compare(after) <= 0 && !(across && e.end().Compare(after) > 0)
			})
			slices.SortFunc(found, func(a, b entry) int { return a.begin().Compare(b.begin()) })
			for _, e := range found {
				if !fn(e) {
					break
				}
			}
			return nil
		}
		if runs == nil {
			if runs = p.filter(); p.err == nil {
				l.mu.Lock()
				f.runs = runs
				l.mu.Unlock()
			}
		}
		if p.err == nil && !runs.has(h) {
			return nil
		}
		at := p.from(h, after)
		for i := at - 1; across && i >= 0; i-- { // past those of another run with the same hash
			e := p.entry(i)
			if e.link != h || e.number != after.Attempt {
				break
			}
			if r, _, err := l.record(f, e); err == nil && r.name == n {
				if e.end().Compare(after) > 0 {
					at = i
				}
				break
			}
		}
		for ; at < p.entries; at++ {
			e := p.entry(at)
			if p.err != nil || e.link != h || !fn(e) {
				break
			}
			after, across = e.begin(), false
		}
		if !errors.Is(p.err, blocks.ErrUnreadable) {
			return p.err
		}
		l.report(f, p.pages, fmt.Sprintf("the index at offset %d is unreadable", p.pages))
		if err := l.load(f); err != nil {
			return err
		}
	}
}

// record reads the record of an entry. A damaged one is reported.
func (l *Logs) record(f *file, e entry) (r label, lines []byte, err error) {
	record, _, err := blocks.ReadRecord(f.file, int64(e.place), 0, nil)
	if err == nil {
		r, lines, err = readLabel(&f.salt, record)
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		l.report(f, int64(e.place), fmt.Sprintf("record at offset %d: %v", e.place, err))
	}
	return r, lines, err
}
