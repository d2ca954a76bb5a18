package auditsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// file appends lines to a file, which it opens again when it was renamed or deleted.
type file struct {
	name, path string
	f          *os.File
}

func (s *file) Name() string { return s.name }

// Send appends the lines and syncs the file. A write that failed half way leaves nothing.
func (s *file) Send(_ context.Context, lines [][]byte) error {
	if err := s.open(); err != nil {
		return err
	}
	before, err := s.f.Stat()
	if err != nil {
		return s.broken(err)
	}
	if _, err = s.f.Write(bytes.Join(lines, nil)); err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		return s.broken(errors.Join(err, s.f.Truncate(before.Size())))
	}
	return nil
}

// broken closes the file, so that the next Send opens it.
func (s *file) broken(err error) error {
	s.Close()
	return err
}

// Close closes the file.
func (s *file) Close() {
	if s.f != nil {
		_ = s.f.Close() // it is synced
		s.f = nil
	}
}

// open opens the file, unless it is open and still has its name.
func (s *file) open() error {
	if s.f != nil {
		is, err := os.Stat(s.path)
		if was, wasErr := s.f.Stat(); err == nil && wasErr == nil && os.SameFile(is, was) {
			return nil
		}
		s.Close()
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := whole(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if dir, err := os.Open(filepath.Dir(s.path)); err == nil { // its name is durable; not every system can sync a folder
		_ = dir.Sync()
		_ = dir.Close()
	}
	s.f = f
	return nil
}

// whole removes a line at the end that was cut off by a crash: it has no line feed, and is sent again.
func whole(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.Name())
	}
	end := st.Size()
	part := make([]byte, 64<<10)
	for at := end; at > 0; {
		n := min(int64(len(part)), at)
		if _, err := f.ReadAt(part[:n], at-n); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			if last := at - n + int64(i) + 1; last < end {
				return f.Truncate(last)
			}
			return nil
		}
		at -= n
	}
	if end > 0 {
		return f.Truncate(0)
	}
	return nil
}
