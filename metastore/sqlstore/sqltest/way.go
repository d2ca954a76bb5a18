package sqltest

import (
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
)

// Way is a network between a program and a database, which a test may break.
type Way struct {
	// URL is that of the database over this way.
	URL string

	network, address string // of the database
	listener         net.Listener

	mu     sync.Mutex
	frozen chan struct{} // closed when nothing is held up any more; nil = nothing is
	cut    bool
	open   map[net.Conn]struct{}
}

// NewWay makes a way to the database of a URL.
func NewWay(t testing.TB, database string) *Way {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{network: "tcp", address: u.Host, open: map[net.Conn]struct{}{}}
	q := u.Query()
	if socket := q.Get("socket"); socket != "" {
		w.network, w.address = "unix", socket
	}
	if dir := q.Get("host"); dir != "" {
		w.network, w.address = "unix", filepath.Join(dir, ".s.PGSQL.5432")
	}
	q.Del("socket")
	if u.Scheme == "postgres" {
		q.Del("host")
		q.Set("sslmode", "disable")
	}
	if w.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = w.listener.Addr().String(), q.Encode()
	w.URL = u.String()
	go w.accept()
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.Cut()
		w.Mend()
	})
	return w
}

func (w *Way) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.carry(near)
	}
}

// carry carries a connection.
func (w *Way) carry(near net.Conn) {
	if !w.add(near) {
		return
	}
	w.held()
	far, err := net.Dial(w.network, w.address)
	if err != nil || !w.add(far) {
		_ = near.Close()
		return
	}
	go w.copy(far, near)
	w.copy(near, far)
}

func (w *Way) add(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = c.Close()
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *Way) copy(to, from net.Conn) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, to)
		delete(w.open, from)
		_ = to.Close()
		_ = from.Close()
	}()
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		w.held()
		if _, e := to.Write(b[:n]); e != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// held waits while the way is frozen.
func (w *Way) held() {
	w.mu.Lock()
	until := w.frozen
	w.mu.Unlock()
	if until != nil {
		<-until
	}
}

// Freeze lets no byte pass any more: connections stay, and new ones are accepted, as with a database that is frozen.
func (w *Way) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen == nil {
		w.frozen = make(chan struct{})
	}
}

// Cut ends all connections, and each that is made.
func (w *Way) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for c := range w.open {
		_ = c.Close()
	}
}

// Mend lets all pass again.
func (w *Way) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut = false; w.frozen != nil {
		close(w.frozen)
	}
	w.frozen = nil
}
