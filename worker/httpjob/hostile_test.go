package httpjob_test

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// hostile is a server that does all that a server should not.
func hostile(stop <-chan struct{}) http.Handler {
	zeros := make([]byte, 64<<10)
	mux := http.NewServeMux()
	raw := func(path string, do func(net.Conn)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				do(conn)
				conn.Close()
			}
		})
	}
	raw("/reset", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
	raw("/garbage", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n") })
	raw("/half", func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":") })
	raw("/headers", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 200)+"\r\n")
	})
	raw("/drip-headers", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-A: ")
		for {
			if _, err := io.WriteString(c, "a"); err != nil || wait(stop) {
				return
			}
		}
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/inside", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "file:///etc/passwd")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 4 << 10 { // 256 MiB of zeros
			if _, err := z.Write(zeros); err != nil {
				return
			}
		}
		_ = z.Close()
	})
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) { <-stop })
	mux.HandleFunc("/drip", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, " "); err != nil || wait(stop) {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/html", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<b>ok</b>")
	})
	return mux
}

// wait lets a little time pass, and reports whether the test has ended.
func wait(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	case <-time.After(20 * time.Millisecond):
		return false
	}
}

// Rows 65 to 70: with any server at the other end, the attempt ends, with a code for what it was.
func TestHostileServers(t *testing.T) {
	stop := make(chan struct{})
	p := &site{t: t, times: map[string]int{}, breaker: httpjob.Breaker{Off: true}, far: httptest.NewServer(hostile(stop))}
	t.Cleanup(p.far.Close)
	t.Cleanup(func() { close(stop) })
	t.Cleanup(p.start(""))
	runs := map[string]jobs.ID{}
	wants := map[string]struct{ code, text string }{
		"/reset": {"connect", ""}, "/garbage": {"connect", "malformed"}, "/half": {"connect", "EOF"}, "/headers": {"connect", ""},
		"/loop": {"connect", "3 redirects"}, "/inside": {"blocked_address", "169.254.169.254"}, "/file": {"blocked_address", "scheme file"},
		"/endless": {"", "more than 65536 bytes"}, "/bomb": {"", "more than 65536 bytes"},
		"/silent": {"timeout", ""}, "/drip": {"timeout", ""}, "/drip-headers": {"timeout", ""},
		"dead": {"connect", "refused"}, "metadata": {"blocked_address", "169.254.169.254"}, "metadata6": {"blocked_address", "fd00:ec2::254"},
	}
	for path := range wants {
		at := "FAR" + path
		switch path {
		case "dead":
			at = "http://127.0.0.1:2/" // not one that was just closed: another test could listen there
		case "metadata":
			at = "http://169.254.169.254/latest/meta-data/"
		case "metadata6":
			at = "http://[fd00:ec2::254]/latest/meta-data/"
		}
		key := jobs.Key(strings.TrimPrefix(path, "/"))
		timeout := time.Minute
		if wants[path].code == "timeout" {
			timeout = time.Second
		}
		p.make(key, `{"request":[{"url":"`+at+`"}]}`, kernel.Settings{Retries: new(0), Timeout: &timeout})
		runs[path] = p.begin(key, "")
	}
	for path, want := range wants {
		run := p.end(runs[path])
		code := run.Code()
		if run.Cause == kernel.ByTimeout {
			code = "timeout"
		}
		if run.State != jobs.Terminated || code != want.code || !strings.Contains(run.Error, want.text) {
			t.Errorf("%s: %s by %s, code %q: %s", path, run.State, run.Cause, code, run.Error)
		}
	}
	p.make("html", `{"request":[{"url":"FAR/html"}]}`, kernel.Settings{})
	if run := p.run("html", ""); run.State != jobs.Succeeded || string(run.Result) != `"\u003cb\u003eok\u003c/b\u003e"` {
		t.Errorf("what is no JSON is a text: %s %s %s", run.State, run.Error, run.Result)
	}
}
