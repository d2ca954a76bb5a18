package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// The layout of pages in a bbolt file: go.etcd.io/bbolt/internal/common, page.go, bucket.go.
const (
	pageHead    = 16 // number, flags, count and overflow
	elementHead = 16

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagFree   = 0x10

	elementIsBucket = 0x01
	bucketHead      = 16
	noFreelist      = ^uint64(0)
	countElsewhere  = 0xFFFF
)

// boltPages is a walk through the pages of a bbolt file that no process writes to.
type boltPages struct {
	file io.ReaderAt
	meta boltMeta
	used []bool
}

// checkPages refuses a bbolt file in which bbolt would loop, or that it would overwrite later: each page must have
// one use, and keys must be in order.
//
// Both meta pages must be valid. Of two, bbolt takes the valid one, which may lack the last commit: the file would
// then miss a vote that was given, or files full of entries. No crash leaves such a page: it is in one sector and is
// written after all the rest is on the disk.
func checkPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	metas, err := readMetas(f)
	if err != nil {
		return err
	}
	for i, meta := range metas {
		if !meta.valid {
			return &Damaged{Path: path, What: fmt.Sprintf("meta page %d has a wrong checksum", i)}
		}
	}
	meta := newestMeta(metas)
	p := boltPages{f, meta, make([]bool, meta.pages)}
	p.used[0], p.used[1] = true, true
	if err = p.tree(meta.root); err == nil {
		err = p.freelist()
	}
	if _, known := errors.AsType[*os.PathError](err); err != nil && !known {
		return &Damaged{Path: path, What: err.Error()}
	}
	return err
}

// page reads a page, which must have no other reference.
func (p *boltPages) page(id uint64) ([]byte, error) {
	if id >= p.meta.pages {
		return nil, fmt.Errorf("reference to page %d of %d", id, p.meta.pages)
	}
	b := make([]byte, p.meta.pageSize)
	if _, err := p.file.ReadAt(b, int64(id*p.meta.pageSize)); err != nil {
		return nil, err
	}
	if says := binary.NativeEndian.Uint64(b); says != id {
		return nil, fmt.Errorf("page %d has the number %d", id, says)
	}
	more := uint64(binary.NativeEndian.Uint32(b[12:]))
	if more >= p.meta.pages-id {
		return nil, fmt.Errorf("page %d continues for %d more, of %d in all", id, more, p.meta.pages)
	}
	for i := id; i <= id+more; i++ {
		if p.used[i] {
			return nil, fmt.Errorf("page %d has two uses", i)
		}
		p.used[i] = true
	}
	if more > 0 {
		rest := make([]byte, more*p.meta.pageSize)
		if _, err := p.file.ReadAt(rest, int64((id+1)*p.meta.pageSize)); err != nil {
			return nil, err
		}
		b = append(b, rest...)
	}
	return b, nil
}

// tree walks through a page of a bucket and all below it.
func (p *boltPages) tree(id uint64) error {
	b, err := p.page(id)
	if err != nil {
		return err
	}
	if err := p.elements(b); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (p *boltPages) elements(b []byte) error {
	if len(b) < pageHead {
		return errors.New("too short")
	}
	flags, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if flags != flagBranch && flags != flagLeaf || pageHead+count*elementHead > len(b) {
		return fmt.Errorf("flags are %#x, with %d elements", flags, count)
	}
	if flags == flagBranch && count == 0 {
		return errors.New("a branch without elements")
	}
	var last []byte
	for i := range count {
		at := pageHead + i*elementHead
		field := func(n int) uint64 { return uint64(binary.NativeEndian.Uint32(b[at+4*n:])) }
		pos, keyLength, valueLength := field(0), field(1), uint64(0)
		if flags == flagLeaf {
			pos, keyLength, valueLength = field(1), field(2), field(3)
		}
		begin := uint64(at) + pos
		if begin+keyLength+valueLength > uint64(len(b)) {
			return fmt.Errorf("element %d ends outside", i)
		}
		key, value := b[begin:begin+keyLength], b[begin+keyLength:begin+keyLength+valueLength]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("element %d is out of order", i)
		}
		last = key
		var err error
		switch {
		case flags == flagBranch:
			err = p.tree(binary.NativeEndian.Uint64(b[at+8:]))
		case field(0) == elementIsBucket && len(value) < bucketHead:
			err = errors.New("too short for a bucket")
		case field(0) == elementIsBucket && binary.NativeEndian.Uint64(value) != 0:
			err = p.tree(binary.NativeEndian.Uint64(value))
		case field(0) == elementIsBucket:
			err = p.elements(value[bucketHead:])
		case field(0) != 0:
			err = fmt.Errorf("flags are %#x", field(0))
		}
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// freelist checks that no page in use is listed as free.
func (p *boltPages) freelist() error {
	if p.meta.free == noFreelist {
		return nil
	}
	b, err := p.page(p.meta.free)
	if err != nil {
		return fmt.Errorf("list of free pages: %w", err)
	}
	count, ids := uint64(binary.NativeEndian.Uint16(b[10:])), b[pageHead:]
	if count == countElsewhere {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if binary.NativeEndian.Uint16(b[8:]) != flagFree || count > uint64(len(ids)/8) {
		return errors.New("unreadable list of free pages")
	}
	for i := range count {
		id := binary.NativeEndian.Uint64(ids[8*i:])
		if id >= p.meta.pages || p.used[id] {
			return fmt.Errorf("page %d is listed as free, but is in use or does not exist", id)
		}
		p.used[id] = true
	}
	return nil
}
