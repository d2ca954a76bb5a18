package api

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// The memory of requests in process is estimated from their bodies, with measured factors: a body takes a multiple of
// its size until its request is answered, because it is read, checked, and turned into commands.
const (
	perByte     = 8   // of a body
	perBulkByte = 4   // of a bulk, which is read item by item
	perItem     = 512 // of a bulk, in addition to its bytes

	maxBulkBody = 64 << 20

	// LeastMemory is the lowest limit of the memory of requests: the largest request needs it.
	LeastMemory = perBulkByte*maxBulkBody + perItem*kernel.MaxBulk

	defaultMemory         = 1 << 30
	defaultMemoryPerToken = 512 << 20
)

// memory is the memory of requests in process.
type memory struct {
	most int64 // of all requests
	each int64 // of those of one token, or of one address without a token

	mu   sync.Mutex
	used int64
	of   map[string]int64
}

// take counts n more bytes of a name, or returns the refusal of a reached limit.
func (m *memory) take(name string, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.of[name]+n > m.each:
		return kernel.Exhausted(kernel.BoundRequestOfToken, "too many large requests at the same time: those of this token take about %d bytes of memory, and limits.request-memory-per-token is %d: "+
			"send fewer or smaller ones at a time, or raise the limit", m.of[name]+n, m.each)
	case m.used+n > m.most:
		return kernel.Exhausted(kernel.BoundRequestBytes, "too many large requests at the same time: they take about %d bytes of memory, and limits.request-memory is %d: "+
			"try again later, or raise the limit", m.used+n, m.most)
	}
	if m.of == nil {
		m.of = map[string]int64{}
	}
	m.used += n
	m.of[name] += n
	return nil
}

func (m *memory) give(name string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if left := m.of[name] - n; left > 0 {
		m.of[name] = left
	} else {
		delete(m.of, name)
	}
}

// exhausted returns the problem of a limit that is reached only for now.
func exhausted(detail string) *Problem {
	p := problem(http.StatusTooManyRequests, codeExhausted, detail)
	p.header = map[string]string{"Retry-After": "1"}
	return p
}

// counted is the body of a request: its bytes count from their arrival to the end of the request.
type counted struct {
	io.ReadCloser
	memory *memory
	name   string
	full   func(error) // gets refusals
	factor int64
	taken  int64
	bulk   []byte // the whole body, if it is a bulk
}

type countedKey struct{}

// Read fails with a *Problem when a limit is reached.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if full := c.take(int64(n) * c.factor); full != nil {
		return 0, full
	}
	return n, err
}

func (c *counted) take(n int64) error {
	if n <= 0 {
		return nil
	}
	if err := c.memory.take(c.name, n); err != nil {
		c.full(err)
		return exhausted(err.Error())
	}
	c.taken += n
	return nil
}

// Counted limits the memory of the bodies that a handler reads: per token if the API has authenticated the request,
// else per address.
func (a *API) Counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		asker := who(r.Context())
		c := &counted{ReadCloser: r.Body, memory: &a.memory, name: "address " + addressOf(r), full: func(err error) { a.refused(asker.Tenant, err) }, factor: perByte}
		if asker.Actor != "" {
			c.name = string(asker.Tenant) + "/" + asker.Actor
		}
		if isBulk(r) {
			c.factor = perBulkByte
		}
		defer func() { c.memory.give(c.name, c.taken) }()
		r = r.WithContext(context.WithValue(r.Context(), countedKey{}, c))
		r.Body = c
		next.ServeHTTP(w, r)
	})
}
