package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// lines turns the server's log into log records, and remembers the worst of it: a server that does not start gives the
// reason nowhere else.
type lines struct {
	to            *slog.Logger
	authenticator bool // logs refused connections itself, and not too often

	mu     sync.Mutex
	error  error
	second int64 // Unix, of the last line
	logged int   // lines in it
	left   int   // lines that were left out since
}

// mostLines is how many warnings are logged in a second. Each forbidden request of a session is one, and each invalid
// one of a stranger: they must not fill the disk.
const mostLines = 10

func (l *lines) write(level slog.Level, format string, v []any) {
	if l.to == nil {
		return
	}
	args := []any{"says", redact(fmt.Sprintf(format, v...))}
	if level >= slog.LevelWarn {
		left, ok := l.turn(time.Now())
		if !ok {
			return
		}
		if left > 0 {
			args = append(args, "count", left)
		}
	}
	l.to.Log(context.Background(), level, "nats server", args...)
}

// turn reports whether there is room for a line, and how many were left out since the last.
func (l *lines) turn(now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := now.Unix(); second != l.second {
		l.second, l.logged = second, 0
	}
	if l.logged++; l.logged > mostLines {
		l.left++
		return 0, false
	}
	left, l.left = l.left, 0
	return left, true
}

// secrets match what must not get into a log, from any source: tokens, and passwords in addresses.
var secrets = regexp.MustCompile(`(carillon_)[0-9A-Za-z._-]+|(://)[^/@\s]*@`)

func redact(s string) string { return secrets.ReplaceAllString(s, "$1$2***") }

func (l *lines) worst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.error
}

// Noticef logs what a server does all day.
func (l *lines) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }

// Warnf logs what may be wrong. That names in certificates are not checked is expected: keys are (see mutual).
func (l *lines) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	if strings.Contains(format, "solicited routes will not be verified") {
		level = slog.LevelDebug
	}
	l.write(level, format, v)
}

// Errorf logs what is wrong, and what a user tried and may not.
func (l *lines) Errorf(format string, v ...any) {
	level := slog.LevelError
	if strings.Contains(format, "handshake error") { // of a server that is no member, or not yet: it tries each second while it joins
		level = slog.LevelWarn
	}
	if l.authenticator && strings.Contains(fmt.Sprintf(format, v...), server.ErrAuthentication.Error()) {
		level = slog.LevelDebug
	}
	l.write(level, format, v)
}

// Fatalf logs why the server does not start.
func (l *lines) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.error = errors.Join(l.error, fmt.Errorf(format, v...))
	l.mu.Unlock()
	l.write(slog.LevelError, format, v) // there are not many: the server ends with it
}

// Debugf logs nothing.
func (l *lines) Debugf(string, ...any) {}

// Tracef logs nothing.
func (l *lines) Tracef(string, ...any) {}
