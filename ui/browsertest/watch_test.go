package browsertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The watch hears what it is there for: each of these pages does one thing that no page may do.
func TestWatch(t *testing.T) {
	for name, c := range map[string]struct{ page, heard string }{
		"console":   {`<script>console.error("oh dear")</script>`, "oh dear"},
		"exception": {`<script>null.x</script>`, "a script threw"},
		"policy":    {`<meta http-equiv="Content-Security-Policy" content="script-src 'none'"><script>1</script>`, "the policy was broken"},
		"elsewhere": {`<img alt="" src="http://127.0.0.1:9/x.png">`, "request to another site: http://127.0.0.1:9/x.png"},
		"dialog":    {`<script>alert("hello")</script>`, "a dialog opened: hello"},
		"missing":   {`<img alt="" src="/missing.png">`, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><title>x</title>`+c.page)
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			b := (&fixture{t: t, url: server.URL}).newTab(true)
			b.expect("127.0.0.1:9")
			b.open("/")
			heard := func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return strings.Contains(strings.Join(append(b.troubles, b.forgiven...), "\n"), c.heard)
			}
			for deadline := time.Now().Add(patience); !heard(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("not heard: %s; but %q", c.heard, b.troubles)
				}
			}
			b.expect("")
		})
	}
}

// The walk's measures find what they are there for.
func TestMeasures(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><title>x</title><p id="a" style="width:500px;color:#aaa">pale</p><p id="a">dark</p><button></button>`)
	}))
	defer server.Close()
	b := (&fixture{t: t, url: server.URL}).newTab(true)
	b.open("/")
	b.look(light, 360)
	if out := ask[[]string](b, wide); len(out) < 2 || !strings.Contains(out[1], "pale") {
		t.Errorf("what sticks out: %q", out)
	}
	if pale := ask[[]string](b, faint); len(pale) != 1 || !strings.Contains(pale[0], "pale") {
		t.Errorf("what is hard to read: %q", pale)
	}
	if ids := ask[[]string](b, twice); len(ids) != 1 {
		t.Errorf("ids twice: %q", ids)
	}
	if list := b.nameless(); len(list) != 1 || list[0] != "button" {
		t.Errorf("nameless: %q", list)
	}
}
