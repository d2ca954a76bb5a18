package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
)

// A process is ready only when its first token is stored: /readyz responds 503 before, and other requests are served.
func TestReadyAfterTheFirstToken(t *testing.T) {
	s, err := embed.Open(t.Context(), embed.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	f := &front{begun: make(chan struct{})}
	pages := f.whole(s.Ready, s.Handler())
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		return w.Code, w.Body.String()
	}
	p := &process{cfg: &config{Data: t.TempDir(), Node: "n1", Auth: "on"}, out: new(strings.Builder), log: slog.New(slog.DiscardHandler)}
	in := filepath.Join(p.cfg.Data, adminFile)
	if err := os.Mkdir(in, 0o700); err != nil { // no token can be written
		t.Fatal(err)
	}
	if err := p.begin(t.Context(), s, f.begun); err == nil || !strings.Contains(err.Error(), in) {
		t.Fatalf("begin: %v", err)
	}
	if code, body := get("/readyz"); code != 503 || !strings.Contains(body, "first token") {
		t.Errorf("/readyz before: %d %s", code, body)
	}
	if code, body := get("/livez"); code != 200 {
		t.Errorf("/livez before: %d %s", code, body)
	}

	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	beginning, leave := context.WithCancel(t.Context())
	begun := make(chan error, 1)
	go func() { begun <- p.begin(beginning, s, f.begun) }()
	<-f.begun
	if _, err := os.Stat(in); err != nil {
		t.Errorf("begun without a token: %v", err)
	}
	if code, body := get("/readyz"); code != 200 {
		t.Errorf("/readyz after: %d %s", code, body)
	}
	leave()
	if err := <-begun; err != nil {
		t.Error(err)
	}
}
