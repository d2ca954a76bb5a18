// Package dblog is a log of entries in a database that nodes share: a row for each entry.
//
// It is not promised to programs outside this module.
//
// The key of a row is its number, and the row names the hash of the one before. So of two nodes that write after the
// same row one is refused, even if it believes that it leads, and a database that has lost the end of the log refuses
// what was to follow it. Everything else is for speed: a lease names one node that writes at a time.
//
// Where to start: [Database] is what a database must do, log.go what a node does with it. memdb is a database in memory.
package dblog

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Hash identifies a row and all rows before it.
type Hash [sha256.Size]byte

// Row is an entry in the log.
type Row struct {
	Seq   uint64 // without gaps; row 0 is in an empty log already, with zero hashes
	Term  uint64 // in which it was written
	Prev  Hash   // of the row before it
	Hash  Hash
	Entry []byte
}

// hashed is the hash of a row with such content. The nonce is the writer's: of two that write the same entry only one
// finds its row.
func hashed(prev Hash, seq, term uint64, nonce string, entry []byte) (h Hash) {
	s := sha256.New()
	s.Write(prev[:])
	s.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seq), term))
	s.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(nonce))))
	s.Write([]byte(nonce))
	s.Write(entry)
	s.Sum(h[:0])
	return h
}

// Snapshot is one attempt to write the rows at an entry. Two attempts at the same entry have different parts: the rows
// come in no order, so parts of one never complete another.
type Snapshot struct {
	Name  string // of the attempt, unique in every history
	Seq   uint64 // of the last row in it
	Term  uint64 // in which it was written
	Hash  Hash   // of that row
	Parts int
}

// Database is what a log needs of a database: few statements, each of which happens whole or not at all. An error says
// nothing about whether it happened, and it may happen later, but not after the database has answered the same
// statement that was sent again. All methods may be called at the same time, by any number of nodes.
type Database interface {
	// Insert adds rows if the row before the first has the hash that it names and no row has their numbers, and
	// reports whether it did. now is the database's clock.
	Insert(ctx context.Context, rows []Row) (done bool, now time.Time, err error)
	// Rows reads rows after a number, in order: as many as have so many bytes of entries, and at least one.
	Rows(ctx context.Context, after uint64, bytes int) ([]Row, error)
	// End is the number and the hash of the last row, zero if that is row 0, and the database's clock.
	End(ctx context.Context) (seq uint64, hash Hash, now time.Time, err error)
	// Cut deletes rows with lower numbers, but none behind the newest snapshot.
	Cut(ctx context.Context, below uint64) error

	// Take begins a term, with a lease, unless another term has one; 0 = it has. The term is higher than those of all
	// rows, and than after.
	Take(ctx context.Context, node string, after uint64, lease time.Duration) (term uint64, err error)
	// Renew lets the lease of a node's term last for so long from now, and reports whether the node still had it: a
	// replica that lacked a term may have given the same number to another node.
	Renew(ctx context.Context, node string, term uint64, lease time.Duration) (held bool, err error)
	// Release ends the lease of a node's term, if it still has it.
	Release(ctx context.Context, node string, term uint64) error

	// Newest is the newest snapshot that was published; nil = there is none.
	Newest(ctx context.Context) (*Snapshot, error)
	// Part reads a part of a snapshot; nil = it is no longer there.
	Part(ctx context.Context, of Snapshot, n int) ([]byte, error)
	// PutPart writes a part of a snapshot that was not published. It never replaces one.
	PutPart(ctx context.Context, of Snapshot, n int, part []byte) error
	// Publish completes a snapshot whose parts are all there, if the log has its row, and it is newer than all others;
	// it reports whether it did.
	Publish(ctx context.Context, s Snapshot) (done bool, err error)
	// Sweep deletes snapshots but the newest two, and the parts of attempts that were not published, at entries up to a
	// number: a leader of a later term may be writing another.
	Sweep(ctx context.Context, upTo uint64) error
}
