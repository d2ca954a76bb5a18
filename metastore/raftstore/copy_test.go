package raftstore

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
)

// copyTo writes records to a buffer.
func copyTo(w io.Writer) func([]archive.Record) error {
	return func(part []archive.Record) error {
		for _, r := range part {
			fmt.Fprintf(w, "%d %x\n", r.Number, r.Body)
		}
		return nil
	}
}

// copyInto fills an archive up to a number.
func copyInto(to *archive.Archive, upTo uint64) func([]archive.Record) error {
	return func(part []archive.Record) error { return to.Fill(ctx, part, upTo) }
}

// dialer makes connections whose reads call a function, and may fail.
func dialer(read func(n int) (int, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &watched{c, read}, nil
	}
}

type watched struct {
	net.Conn
	read func(n int) (int, error)
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		return n, err
	}
	return w.read(n)
}
