package api_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
)

// pipes is a listener whose connections stay in the process, so that time can be virtual.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	here, there := net.Pipe()
	p.conns <- there
	return here
}

// serve runs a test with a server on pipes, in virtual time.
func serve(t *testing.T, test func(*testing.T, *fixture, *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		server := api.NewServer(api.Hosts(nil, d.Handler), newLog(io.Discard))
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(p) }()
		before := d.snapshot()
		test(t, d, p)
		if after := d.snapshot(); after != before {
			t.Errorf("%s became %s", before, after)
		}
		_ = server.Close()
		<-done
		time.Sleep(time.Minute) // the server is polite to connections that it has cut off
	})
}

// raw sends text as it is, however long the other side takes it, and reads what comes back.
func raw(t *testing.T, p *pipes, text string) *http.Response {
	t.Helper()
	c := p.dial()
	defer c.Close()
	go func() { _, _ = io.WriteString(c, text) }()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Rows 1, 5 and 6: what is too large or ambiguous on the wire.
func TestTransport(t *testing.T) {
	post := "POST " + trigger + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	large := strings.Repeat(" ", 600<<10)
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"a large body with its length", post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large), 413},
		{"a large body without its length", post + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(large), large), 413},
		{"a large body where viewers read", "GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(large), large), 413},
		{"a header of 1 MiB", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
		{"a token of 10 MB", "GET /livez HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + strings.Repeat("x", 10<<20) + "\r\n\r\n", 431},
		{"10000 headers", "GET /livez HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-Many: 1\r\n", 10_000) + "\r\n", 431},
		{"NUL in a header", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: a\x00b\r\n\r\n", 400},
		{"a line break in a header", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: a\rb\r\n\r\n", 400},
		{"two lengths", post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		{"a length that is none", post + "Content-Length: -1\r\n\r\n{}", 400},
		{"a length with a sign", post + "Content-Length: +2\r\n\r\n{}", 400},
		{"two lengths in one header", post + "Content-Length: 2, 3\r\n\r\n{}", 400},
		{"an encoding beside chunks", post + "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501},
		{"an encoding that is not known", post + "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 501},
		{"two encodings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 501},
		{"another host", "GET /livez HTTP/1.1\r\nHost: evil.com\r\nX-Forwarded-Host: localhost\r\nConnection: close\r\n\r\n", 421},
		{"another host, in the line", "GET http://evil.com/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 421},
		{"no host", "GET /livez HTTP/1.1\r\n\r\n", 400},
		{"two hosts", "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			serve(t, func(t *testing.T, _ *fixture, p *pipes) {
				if r := raw(t, p, c.text); r.StatusCode != c.want || !r.Close {
					t.Errorf("%d, closed %v; want %d", r.StatusCode, r.Close, c.want)
				}
			})
		})
	}
}

// A request with two lengths ends in one place for a proxy and in another for the server. What stands between is not
// taken for a request of its own.
func TestNoRequestIsSmuggled(t *testing.T) {
	smuggled := "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, body := range map[string]string{
		"both lengths":          fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 12+len(smuggled)),
		"the other order":       fmt.Sprintf("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 12+len(smuggled)),
		"chunks, and no length": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				server := api.NewServer(api.Guard(newLog(io.Discard), "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					asked = append(asked, r.URL.Path+" "+string(body))
				})), newLog(io.Discard))
				done := make(chan struct{})
				go func() { defer close(done); _ = server.Serve(p) }()
				c := p.dial()
				go func() { _, _ = io.WriteString(c, "POST /first HTTP/1.1\r\nHost: localhost\r\n"+body+smuggled) }()
				all, err := io.ReadAll(c) // until the server hangs up
				if n := strings.Count(string(all), "HTTP/1.1 "); err != nil || n != 1 || !strings.Contains(string(all), "Connection: close") {
					t.Errorf("%d answers, %v: %s", n, err, all)
				}
				_ = c.Close()
				_ = server.Close()
				<-done
				if len(asked) != 1 || asked[0] != "/first {}" {
					t.Errorf("asked for %q", asked)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// Row 3: who sends a header byte by byte is cut off, many at a time.
func TestSlowHeaders(t *testing.T) {
	serve(t, func(t *testing.T, _ *fixture, p *pipes) {
		begun, cut := time.Now(), make(chan time.Duration, 200)
		for range 200 {
			go func() {
				c := p.dial()
				defer c.Close()
				go func() { _, _ = io.Copy(io.Discard, c) }()
				for {
					if _, err := io.WriteString(c, "G"); err != nil {
						cut <- time.Since(begun)
						return
					}
					time.Sleep(time.Second)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		asked := time.Now()
		if r := raw(t, p, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); r.StatusCode != 200 || time.Since(asked) > 0 {
			t.Errorf("another client meanwhile: %d after %v", r.StatusCode, time.Since(asked))
		}
		for range 200 {
			if after := <-cut; after > 7*time.Second {
				t.Fatalf("cut off after %v", after)
			}
		}
	})
}

// Row 4: a client that sends a body byte by byte gets an error, and is disconnected.
func TestSlowBody(t *testing.T) {
	serve(t, func(t *testing.T, _ *fixture, p *pipes) {
		c := p.dial()
		defer c.Close()
		go func() {
			_, err := io.WriteString(c, "POST "+trigger+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
			for err == nil {
				_, err = io.WriteString(c, " ")
				time.Sleep(time.Second)
			}
		}()
		begun := time.Now()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != 408 || !r.Close || time.Since(begun) > 11*time.Second {
			t.Errorf("%+v after %v (%v)", r, time.Since(begun), err)
		}
	})
}

// A connection whose request is not read to its end is closed soon after the response, from any handler: it is not kept
// for a client that continues slowly.
func TestUnreadRequestsAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		path, more string
		want       int
		within     time.Duration
	}{
		"a slow body":           {trigger, "", 408, 12 * time.Second},
		"one of unknown length": {trigger, "Transfer-Encoding: chunked\r\n", 408, 12 * time.Second},
		"not read":              {"/nowhere", "", 404, 2 * time.Second},
		"one that is too large": {trigger, "Content-Length: 600000\r\n", 413, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, func(t *testing.T, _ *fixture, p *pipes) {
				conn := p.dial()
				defer conn.Close()
				length := c.more
				if length == "" {
					length = "Content-Length: 1000\r\n"
				}
				chunk := " "
				if strings.Contains(length, "chunked") {
					chunk = "1\r\n \r\n"
				}
				begun, cut := time.Now(), make(chan time.Duration, 1)
				go func() {
					_, err := io.WriteString(conn, "POST "+c.path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+length+"\r\n")
					if c.want == 413 {
						_, err = io.WriteString(conn, strings.Repeat(" ", 550<<10))
					}
					for err == nil {
						_, err = io.WriteString(conn, chunk)
						time.Sleep(100 * time.Millisecond)
					}
					cut <- time.Since(begun)
				}()
				reader := bufio.NewReader(conn)
				r, err := http.ReadResponse(reader, nil)
				if err != nil || r.StatusCode != c.want {
					t.Fatalf("%+v (%v), want %d", r, err, c.want)
				}
				_, _ = io.Copy(io.Discard, reader) // until the server closes
				if after := <-cut; after > c.within {
					t.Errorf("closed after %v, want %v at most", after, c.within)
				}
			})
		})
	}
}

// hungUp is the body of a client that goes away in the middle.
type hungUp struct{ cancel context.CancelFunc }

func (h hungUp) Read([]byte) (int, error) {
	h.cancel()
	return 0, errors.New("connection reset by peer")
}

// Row 12: a client that disconnects leaves nothing behind, and logs no error and no warning.
func TestClientGoesAway(t *testing.T) {
	d := newFixture(t)
	before := d.snapshot()
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", trigger, hungUp{cancel})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if after := d.snapshot(); after != before || w.Code != 400 || strings.Contains(d.log.String(), "ERROR") {
		t.Errorf("%d; %s became %s; %s", w.Code, before, after, d.log.String())
	}
	// It sent all of its body, and does not wait for the answer.
	w = httptest.NewRecorder()
	r = httptest.NewRequestWithContext(ctx, "POST", trigger, strings.NewReader(`{}`))
	r.Header.Set("Content-Type", "application/json")
	d.ServeHTTP(w, r)
	if after := d.snapshot(); after != before || w.Code != 499 || strings.Contains(d.log.String(), "ERROR") || strings.Contains(d.log.String(), "WARN") {
		t.Errorf("%d %s; %s became %s; %s", w.Code, w.Body, before, after, d.log.String())
	}
}

// Rows 8, 9, 60 and 63: routes are what they are, whatever a path or a header would like them to be.
func TestRoutesAreWhatTheyAre(t *testing.T) {
	d := newFixture(t)
	for _, c := range []struct {
		method, path string
		want         int
		allow        string
	}{
		{"GET", "/api/v1/../../etc/passwd", 404, ""}, {"GET", "/static/../../etc/passwd", 404, ""}, {"GET", "/api/v1/jobs/..", 404, ""},
		{"GET", "/docs/..%2f..%2fetc%2fpasswd", 404, ""}, {"GET", "/docs/%2e%2e/%2e%2e/go.mod", 404, ""},
		{"GET", "/docs/..%5c..%5cgo.mod", 404, ""}, {"GET", "/docs/style.css%00.gohtml", 404, ""}, {"GET", "/docs/", 404, ""},
		{"TRACE", "/api/v1/jobs", 405, "GET, POST"}, {"PUT", "/api/v1/jobs/billing.charge", 405, "GET, PATCH, DELETE"}, {"DELETE", "/api/v1/settings", 405, "GET, PATCH"},
		{"GET", trigger, 405, "POST"}, {"GET", "/api/v1/jobs/billing.charge/pause", 405, "POST"}, {"POST", "/livez", 405, "GET"},
	} {
		before := d.snapshot()
		a := d.send(c.method, c.path, "", "X-HTTP-Method-Override", "POST", "X-Method-Override", "POST")
		if p := a.problem(t); p.Status != c.want || a.Header.Get("Allow") != c.allow || d.snapshot() != before {
			t.Errorf("%s %s: %d, Allow %q; want %d, %q", c.method, c.path, p.Status, a.Header.Get("Allow"), c.want, c.allow)
		}
	}
}

func TestRequestsAreNamed(t *testing.T) {
	d := newFixture(t)
	for given, kept := range map[string]bool{"abc-123": true, "": false, "a b": false, "a\"b": false, strings.Repeat("x", 65): false} {
		if id := d.send("GET", "/livez", "", "X-Request-Id", given).Header.Get("X-Request-Id"); (id == given) != kept || len(id) < 7 {
			t.Errorf("%q became %q", given, id)
		}
	}
}

// Bodies without authentication are not read on public routes, either: none of them has a body.
func TestBodiesOfStrangers(t *testing.T) {
	serve(t, func(t *testing.T, _ *fixture, p *pipes) {
		for path, want := range map[string]int{"/nowhere": 404, "/livez": 405, "/api/nowhere": 404, "/openapi.json": 405} {
			begun := time.Now()
			r := raw(t, p, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500000\r\n\r\n{")
			if took := time.Since(begun); r.StatusCode != want || took > 0 {
				t.Errorf("%s: %d after %v, want %d", path, r.StatusCode, took, want)
			}
		}
	})
}

// Streams of HTTP/2 that are opened and reset at once keep only so many requests in process: a connection that opens
// more than can wait is closed, and others are answered meanwhile.
func TestRapidReset(t *testing.T) {
	release := make(chan struct{})
	var running, most atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			return
		}
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-release // busy, whether or not the client still waits
		running.Add(-1)
	})
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.NewServer(api.Guard(newLog(io.Discard), "", handler), newLog(io.Discard))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer close(release)
	trust := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trust.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), trust)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		head := []byte{0, 0, byte(len(payload)), kind, flags}
		return append(binary.BigEndian.AppendUint32(head, stream), payload...)
	}
	const headers, reset, settings, goAway = 1, 3, 4, 7
	request := []byte{0x82, 0x87, 0x84, 0x41, 1, 'x'} // GET https://x/, by the static table of HPACK
	var sent []byte
	for stream := uint32(1); stream < 2*10_000; stream += 2 {
		sent = append(sent, frame(headers, 5, stream, request)...)          // END_STREAM, END_HEADERS
		sent = append(sent, frame(reset, 0, stream, []byte{0, 0, 0, 8})...) // CANCEL
	}
	go func() { // fails when the server closes
		_, _ = conn.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settings, 0, 0, nil)...))
		_, _ = conn.Write(sent)
	}()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	closed := false
	for in := bufio.NewReader(conn); ; {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			break
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(in, payload); err != nil {
			break
		}
		if head[3] == goAway {
			const enhanceYourCalm = 11
			if closed = true; len(payload) < 8 || binary.BigEndian.Uint32(payload[4:]) != enhanceYourCalm {
				t.Errorf("GOAWAY %x", payload)
			}
			break
		}
	}
	if !closed || most.Load() > 250 {
		t.Errorf("closed %v, after %d requests in process at the same time", closed, most.Load())
	}
	answer, err := server.Client().Get(server.URL + "/other")
	if err != nil || answer.StatusCode != 200 || answer.ProtoMajor != 2 {
		t.Fatalf("another client: %+v, %v", answer, err)
	}
	answer.Body.Close()
}
