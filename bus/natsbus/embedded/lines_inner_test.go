package embedded

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A route that cannot be dialled is one episode for each server, and a brief one is none.
func TestRoutesAreEpisodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := newLines(slog.New(slog.NewTextHandler(&b, nil)), false)
		defer l.episodes.Reset()
		dial := func(seconds int, to string) {
			for i := range seconds {
				l.Errorf("Error trying to connect to route (attempt %v): %v", i, "dial tcp "+to+": connect: connection refused")
				time.Sleep(time.Second)
			}
		}
		dial(5, "10.0.0.9:6222")
		time.Sleep(time.Minute)
		if synctest.Wait(); b.Len() > 0 {
			t.Fatalf("a restart is logged: %s", &b)
		}
		dial(30, "10.0.0.2:6222")
		dial(30, "10.0.0.3:6222")
		time.Sleep(time.Minute)
		synctest.Wait()
		for text, want := range map[string]int{"level=WARN": 2, "level=INFO": 2, "level=ERROR": 0, "10.0.0.2": 2, "10.0.0.3": 2, "nats server: ended": 2} {
			if n := strings.Count(b.String(), text); n != want {
				t.Errorf("%d times %s, want %d:\n%s", n, text, want, &b)
			}
		}
	})
}

// What a client tries again and again is one line, whatever the number of its connection and its subject; what the
// server fails to do is an error.
func TestLinesOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := newLines(slog.New(slog.NewTextHandler(&b, nil)), false)
		defer l.episodes.Reset()
		for i := range 100 {
			l.Errorf("%s - %s%s", "127.0.0.1:"+strings.Repeat("1", i%5+1)+" - cid:7", `Publish Violation - Subject "a`+strings.Repeat("x", i)+`"`, "")
		}
		l.Errorf("Error listening on port: %v", "address already in use")
		synctest.Wait()
		if n, errors := strings.Count(b.String(), "level=WARN"), strings.Count(b.String(), "level=ERROR"); n != 1 || errors != 1 {
			t.Errorf("%d warnings and %d errors, want one of each:\n%s", n, errors, &b)
		}
	})
}
