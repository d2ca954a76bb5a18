//go:build unix

package processtest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// called is a server whose responses, and their times, a test decides.
type called struct {
	t     *testing.T
	url   string
	calls chan call
}

// call is a request that waits for its answer.
type call struct {
	path, callback string
	reply          chan string
}

func newCalled(t *testing.T) *called {
	c := &called{t: t, calls: make(chan call, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := call{r.URL.Path, r.URL.Query().Get("callback"), make(chan string, 1)}
		c.calls <- k
		select {
		case text := <-k.reply:
			_, _ = w.Write([]byte(text))
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// next is the next request, which must be for a path.
func (c *called) next(path string) call {
	c.t.Helper()
	select {
	case k := <-c.calls:
		if k.path != path {
			c.t.Fatalf("%s is called, want %s", k.path, path)
		}
		return k
	case <-time.After(time.Minute):
		c.t.Fatalf("%s is not called within a minute", path)
	}
	return call{}
}

// hireHTTP starts a worker of HTTP jobs, which may call this machine.
func (h *fixture) hireHTTP(name string, flags ...string) *process {
	h.t.Helper()
	path, err := carillonProgram()
	if err != nil {
		h.t.Fatal(err)
	}
	p := start(h.t, "carillon worker "+name, path, nil,
		append([]string{"worker", "--name", name, "--nats", "nats://" + h.nats, "--http-jobs-allow", "127.0.0.1"}, flags...)...)
	h.known(p)
	return p
}
