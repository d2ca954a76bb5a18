package raftstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// Snapshots contain no runs that have ended. A node that gets one fetches the missing part of its archive from
// another: segments as they are on disk, and records of the runs beside them, in the order of their numbers, and a
// SHA-256 over all at the end. What has arrived is kept, so that an interrupted transfer continues where it was, even
// inside a segment.

// wanted requests runs.
type wanted struct {
	After   uint64           `json:"after"`             // this number
	UpTo    uint64           `json:"upTo"`              // including this one; 0 = as far as there are any
	Arrived map[string]int64 `json:"arrived,omitempty"` // bytes that the node has of segments
}

// offered answers it, before the records.
type offered struct {
	UpTo    uint64 `json:"upTo"`
	Refused string `json:"refused,omitempty"`
}

const (
	mostRecord = 64 << 20
	recordHead = 12 // number and length; a length of 0 ends the list
	// isSegment, as the length, announces a segment instead: the length of its head, the head, its size, the place
	// from which its bytes follow, and those. The number is 0.
	isSegment   = 1<<32 - 1
	mostSegment = 64 << 20 // bytes of its head
	// perFill is how many bytes of records are written at once.
	perFill = 4 << 20
	// fetchPatience is how long one part may take to arrive.
	fetchPatience = 30 * time.Second
)

// serveArchive sends another node what it lacks.
func (s *Store) serveArchive(c *link.Conn) {
	defer c.Close()
	var w wanted
	_ = c.SetDeadline(time.Now().Add(rpcTimeout))
	if err := link.Read(c, &w, maxCall); err != nil {
		return
	}
	last := s.archive.Last()
	o := offered{UpTo: w.UpTo}
	switch {
	case w.UpTo == 0:
		o.UpTo = last
	case w.UpTo > last:
		o.Refused = fmt.Sprintf("this node's archive ends at %d", last)
	}
	if err := link.Write(c, o); err != nil || o.Refused != "" {
		return
	}
	sum := sha256.New()
	to := io.MultiWriter(c, sum)
	var buf []byte
	err := s.archive.Send(s.ctx, w.After, o.UpTo, func(part []archive.Record) error {
		buf = buf[:0]
		for _, r := range part {
			if r.Damaged != nil {
				s.cfg.Logger.Error("a damaged run is left out of a copy", "node", c.Peer.Name, "err", r.Damaged)
				continue
			}
			buf = binary.BigEndian.AppendUint64(buf, r.Number)
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(r.Body)))
			buf = append(buf, r.Body...)
		}
		_ = c.SetDeadline(time.Now().Add(fetchPatience))
		_, err := to.Write(buf)
		return err
	}, func(whole *archive.Whole) error { return sendSegment(c, to, whole, &w) })
	if err == nil {
		_, err = to.Write(make([]byte, recordHead))
	}
	if err == nil {
		_, err = c.Write(sum.Sum(nil))
	}
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Logger.Warn("the archive could not be sent", "node", c.Peer.Name, "err", err)
	}
}

// sendSegment sends what another node lacks of a segment.
func sendSegment(c *link.Conn, to io.Writer, whole *archive.Whole, w *wanted) error {
	from := w.Arrived[whole.ID]
	if from < 0 || from > whole.Size {
		from = 0
	}
	b := make([]byte, 8, 64)
	b = binary.BigEndian.AppendUint32(b, isSegment)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(whole.Head))), whole.Head...)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(whole.Size)), uint64(from))
	if _, err := to.Write(b); err != nil {
		return err
	}
	for from < whole.Size {
		_ = c.SetDeadline(time.Now().Add(fetchPatience))
		n, err := io.Copy(to, io.NewSectionReader(whole, from, min(perFill, whole.Size-from)))
		if err != nil {
			return err
		}
		from += n
	}
	return nil
}

// fetchArchive fetches the archive up to a number (0 = as far as any node has it), from any node that has it, and
// does not give up before ctx ends: nothing may be applied after a gap.
func (s *Store) fetchArchive(ctx context.Context, upTo uint64) error {
	if err := s.completable(upTo); err != nil {
		return err
	}
	began, at := time.Now(), s.archive.Last()
	s.cfg.Logger.Info("fetching the archive", "last", at)
	for {
		var errs []error
		for _, m := range s.known() {
			err := s.fetchFrom(ctx, m, upTo)
			if err == nil {
				s.cfg.Logger.Info("archive fetched", "address", m.Address, "first", at, "last", s.archive.Last(), "took", time.Since(began))
				return nil
			}
			if jobs.CodeOf(err) == jobs.NotFound {
				return fmt.Errorf("%w: %w", ErrRemoved, err)
			}
			errs = append(errs, fmt.Errorf("from %s: %w", m.Address, err))
		}
		err := fmt.Errorf("fetch the archive, from run %d on: %w", s.archive.Last(), errors.Join(errs...))
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		s.episodes.Failed(slog.LevelWarn, "", "archive not fetched yet", "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-s.failed:
			return err
		case <-time.After(s.cfg.Heartbeat):
		}
	}
}

// fill adds records to the archive.
func (s *Store) fill(ctx context.Context, part []archive.Record, last uint64) error {
	err := s.archive.Fill(ctx, part, last)
	if err == nil && s.progress != nil {
		s.progress()
	}
	return err
}

func (s *Store) fetchFrom(ctx context.Context, m other, upTo uint64) error {
	c, err := s.link.Dial(ctx, m.Address, m.ID, link.ForArchive)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(fetchPatience))
	w := wanted{After: s.archive.Last(), UpTo: upTo, Arrived: s.archive.Arrived()}
	if err := link.Write(c, w); err != nil {
		return err
	}
	var o offered
	if err := link.Read(c, &o, maxCall); err != nil {
		return err
	}
	if o.Refused != "" {
		return kernel.Refuse(jobs.Unavailable, "%s", o.Refused)
	}
	in := &summed{from: c, sum: sha256.New(), progress: s.progress}
	var part []archive.Record
	for size := 0; ; {
		r, more, err := in.record()
		if err != nil {
			return err
		}
		if more == isSegment {
			if len(part) > 0 {
				if err := s.fill(ctx, part, part[len(part)-1].Number); err != nil {
					return err
				}
				part, size = part[:0], 0
			}
			if err := in.segment(s.archive); err != nil {
				return err
			}
			continue
		}
		if more == 0 {
			break
		}
		part, size = append(part, r), size+len(r.Body)
		if size >= perFill {
			if err := s.fill(ctx, part, r.Number); err != nil {
				return err
			}
			part, size = part[:0], 0
		}
	}
	want, got := in.sum.Sum(nil), make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !slices.Equal(want, got) {
		return errors.New("checksum mismatch after the transfer")
	}
	return s.fill(ctx, part, o.UpTo)
}

// summed reads what another node sends and computes its checksum.
type summed struct {
	from     *link.Conn
	sum      hash.Hash
	progress func() // called when something has arrived; nil = no waiter
}

func (in *summed) Read(b []byte) (int, error) {
	_ = in.from.SetDeadline(time.Now().Add(fetchPatience))
	n, err := in.from.Read(b)
	in.sum.Write(b[:n])
	if n > 0 && in.progress != nil {
		in.progress()
	}
	return n, err
}

// record is the next record; size 0 is the end, and isSegment that a segment follows.
func (in *summed) record() (r archive.Record, size uint32, err error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return r, 0, err
	}
	size = binary.BigEndian.Uint32(head[8:])
	if size == 0 || size == isSegment {
		return r, size, nil
	}
	if size > mostRecord {
		return r, 0, fmt.Errorf("a record of %d bytes is longer than any", size)
	}
	r = archive.Record{Number: binary.BigEndian.Uint64(head[:]), Body: make([]byte, size)}
	_, err = io.ReadFull(in, r.Body)
	return r, size, err
}

// segment reads a segment into an archive.
func (in *summed) segment(to *archive.Archive) error {
	var b [4]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(b[:])
	if size > mostSegment {
		return fmt.Errorf("the head of a segment has %d bytes", size)
	}
	head := make([]byte, size+16)
	if _, err := io.ReadFull(in, head); err != nil {
		return err
	}
	place := head[size:]
	return to.Receive(head[:size], int64(binary.BigEndian.Uint64(place[8:])), int64(binary.BigEndian.Uint64(place)), in)
}
