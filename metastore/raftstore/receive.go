package raftstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// Raft grants no vote and takes no entry while it installs a snapshot. So a snapshot is received into a file before
// raft gets it, and the runs that ended before it are fetched after that (see behind.go): raft waits for no other
// node.

// incoming is the pattern of the files that hold a snapshot until raft has its own copy.
const incoming = "incoming-*.snapshot"

// clearIncoming removes what a crash has left.
func clearIncoming(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, incoming))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove unfinished snapshot: %w", err)
		}
	}
	return nil
}

// errReplaced answers a leader whose snapshot is not needed any more.
var errReplaced = errors.New("another snapshot arrived after this one")

// receive takes a snapshot from a leader, passes it on to raft when all of it is here, and answers as raft does. It
// returns at once, with a function that ends the transfer when another snapshot comes: the leader of this one may
// have stopped in the middle of it.
func (s *Store) receive(ctx context.Context, to chan<- raft.RPC, rpc raft.RPC) (replace context.CancelCauseFunc) {
	ctx, replace = context.WithCancelCause(ctx)
	s.duties.Go(func() {
		defer replace(nil)
		path, err := s.download(ctx, rpc)
		if path != "" {
			defer func() { _ = os.Remove(path) }()
		}
		if err == nil {
			err = s.install(ctx, to, rpc, path)
		}
		if err != nil {
			s.cfg.Logger.Warn("snapshot not installed", "err", err)
			_, _ = io.Copy(io.Discard, rpc.Reader) // the connection continues with another request
			rpc.Respond(nil, err)
		}
	})
	return replace
}

// download writes a snapshot to a file and names it.
func (s *Store) download(ctx context.Context, rpc raft.RPC) (path string, err error) {
	file, err := os.CreateTemp(s.cfg.Dir, incoming)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(file, whileContext{ctx, rpc.Reader})
	if size := rpc.Command.(*raft.InstallSnapshotRequest).Size; err == nil && n != size {
		err = fmt.Errorf("receive snapshot: %d of %d bytes arrived", n, size)
	}
	return file.Name(), errors.Join(err, file.Close())
}

// whileContext reads until a context ends.
type whileContext struct {
	ctx  context.Context
	from io.Reader
}

func (w whileContext) Read(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.from.Read(b)
}

// install passes a snapshot to raft and returns its answer.
func (s *Store) install(ctx context.Context, to chan<- raft.RPC, rpc raft.RPC, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	answer := make(chan raft.RPCResponse, 1)
	select {
	case to <- raft.RPC{Command: rpc.Command, Reader: bufio.NewReaderSize(file, 256<<10), RespChan: answer}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case r := <-answer:
		rpc.Respond(r.Response, r.Error)
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}
