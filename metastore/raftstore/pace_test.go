package raftstore

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// slowLayer connects transports in memory, over a link of so many bytes a second.
type slowLayer struct {
	accepts chan net.Conn
	closed  chan struct{}
	to      *slowLayer
	rate    int
}

func newSlowLayer() *slowLayer {
	return &slowLayer{accepts: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *slowLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepts:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *slowLayer) Close() error {
	close(l.closed)
	return nil
}

func (*slowLayer) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *slowLayer) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	l.to.accepts <- far
	return &paced{Conn: slowConn{near, l.rate}}, nil
}

type slowConn struct {
	net.Conn
	rate int
}

func (c slowConn) Write(b []byte) (int, error) {
	const part = 16 << 10
	for n := 0; n < len(b); n += part {
		time.Sleep(part * time.Second / time.Duration(c.rate))
		if _, err := c.Conn.Write(b[n:min(len(b), n+part)]); err != nil {
			return n, err
		}
	}
	return len(b), nil
}

// Entries of any size get through a link of 2 Mbit/s, one by one and in a pipeline, although a request gets 5 s.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := newSlowLayer(), newSlowLayer()
		here.to, here.rate = there, 256<<10
		open := func(l *slowLayer) *raft.NetworkTransport {
			return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: l, MaxPool: 4, Timeout: rpcTimeout, Logger: logger{Logger: Config{}.withDefaults().Logger}})
		}
		leader, follower := listening{NetworkTransport: open(here), agreed: new(agreements)}, open(there)
		last, largest := uint64(0), 0
		go func() {
			for {
				select {
				case rpc := <-follower.Consumer():
					a := rpc.Command.(*raft.AppendEntriesRequest)
					ok, size := a.PrevLogEntry == last && a.PrevLogTerm == last, 0
					for _, e := range a.Entries {
						ok = ok && e.Index == last+1
						last, size = e.Index, size+len(e.Data)
					}
					largest = max(largest, size)
					rpc.Respond(&raft.AppendEntriesResponse{Term: a.Term, LastLog: last, Success: ok}, nil)
				case <-t.Context().Done():
					return
				}
			}
		}()
		// entries are in the term of their index, so that a request can be seen to follow on the one before.
		entries := func(from uint64, sizes ...int) *raft.AppendEntriesRequest {
			a := &raft.AppendEntriesRequest{Term: 100, PrevLogEntry: from - 1, PrevLogTerm: from - 1}
			for i, size := range sizes {
				a.Entries = append(a.Entries, &raft.Log{Index: from + uint64(i), Term: from + uint64(i), Data: make([]byte, size<<10)})
			}
			return a
		}
		for from := uint64(1); from <= 4; {
			a, answer := entries(from, []int{600, 600, 300, 4096}[from-1:]...), new(raft.AppendEntriesResponse)
			if err := leader.AppendEntries("f", "f", a, answer); err != nil || !answer.Success {
				t.Fatalf("entries from %d: %+v, %v", from, answer, err)
			}
			if from += uint64(len(a.Entries)); from-1 != last { // raft continues after these
				t.Fatalf("%d entries arrived, and %d are reported as sent", last, from-1)
			}
		}
		p, err := leader.AppendEntriesPipeline("f", "f")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.AppendEntries(entries(5, 600, 600, 300, 2048, 10, 10), new(raft.AppendEntriesResponse)); err != nil {
			t.Fatal(err)
		}
		for acknowledged := uint64(4); acknowledged < 10; {
			answer := <-p.Consumer()
			if err := answer.Error(); err != nil || !answer.Response().Success {
				t.Fatalf("%+v, %v", answer.Response(), err)
			}
			acknowledged = answer.Request().Entries[len(answer.Request().Entries)-1].Index
		}
		if largest != 4096<<10 {
			t.Errorf("the largest request held %d bytes", largest)
		}
		// A vanished node is noticed, after a time by the size of the request.
		here.to = newSlowLayer()
		go func() { <-here.to.accepts }() // and nothing reads from it
		began := time.Now()
		if err := leader.AppendEntries("g", "g", entries(11, 1024, 1024), new(raft.AppendEntriesResponse)); err == nil {
			t.Error("a request to a vanished node is answered")
		}
		if took := time.Since(began); took < rpcTimeout || took > rpcTimeout+2*time.Second*(perRequest/slowest) {
			t.Errorf("it took %v to notice that no node answers", took)
		}
		_ = p.Close()
		_ = leader.Close()
		_ = follower.Close()
	})
}
