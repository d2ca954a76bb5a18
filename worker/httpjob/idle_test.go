package httpjob

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// As many calls to one host at a time as a worker has slots keep their connections for the next ones.
func TestConnectionsAreKept(t *testing.T) {
	const calls = 256
	var dialled atomic.Int64
	var mu sync.Mutex
	waiting, all := 0, make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		mine := all
		if waiting++; waiting == calls { // each has a connection of its own
			waiting, all = 0, make(chan struct{})
			close(mine)
		}
		mu.Unlock()
		<-mine
		_, _ = w.Write([]byte(`{}`))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dialled.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := own(t).client()
	defer client.CloseIdleConnections()
	for range 3 {
		var group sync.WaitGroup
		for range calls {
			group.Go(func() {
				if _, err := call(t.Context(), client, "POST", server.URL, nil, []byte(`{}`), true); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	// net/http keeps no connection whose own goroutines had no processor for 50 ms: a few of them may be made anew.
	if n := dialled.Load(); n > calls+calls/8 {
		t.Errorf("%d connections were made for %d calls at a time", n, calls)
	}
}
