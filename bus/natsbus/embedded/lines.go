package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// lines turns what the server says into log records, and remembers the worst of it: a server that does not start
// says why nowhere else.
type lines struct {
	to *slog.Logger

	mu    sync.Mutex
	error error
}

func (l *lines) say(level slog.Level, format string, v []any) {
	if l.to != nil {
		l.to.Log(context.Background(), level, "nats server", "says", fmt.Sprintf(format, v...))
	}
}

func (l *lines) worst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.error
}

// Noticef is for what a server does all day.
func (l *lines) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Warnf is for what may be wrong.
func (l *lines) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v) }

// Errorf is for what is wrong, and for what a user tried and may not.
func (l *lines) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Fatalf is for why the server does not start.
func (l *lines) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.error = errors.Join(l.error, fmt.Errorf(format, v...))
	l.mu.Unlock()
	l.say(slog.LevelError, format, v)
}

// Debugf is never on.
func (l *lines) Debugf(string, ...any) {}

// Tracef is never on.
func (l *lines) Tracef(string, ...any) {}
