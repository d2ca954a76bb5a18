package raftstore

import (
	"context"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logger lets raft log to a slog.Logger. Raft's info is detail to an operator, and is logged one level lower.
type logger struct {
	*slog.Logger
	name   string
	args   []any
	recent *recent // nil: everything is logged
}

// recent suppresses messages that raft logs many times a second, as it does while a node is down.
type recent struct {
	mu   sync.Mutex
	when map[string]time.Time
}

const sayEvery = 10 * time.Second

// again reports whether a message was logged a moment ago.
func (s *recent) again(msg string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.when[msg]) < sayEvery {
		return true
	}
	if s.when == nil || len(s.when) > 1000 {
		s.when = make(map[string]time.Time)
	}
	s.when[msg] = now
	return false
}

var _ hclog.Logger = logger{}

func (l logger) write(level slog.Level, msg string, args []any) {
	if level >= slog.LevelWarn && l.recent.again(msg) {
		return
	}
	if l.name != "" {
		args = append(args[:len(args):len(args)], "part", l.name)
	}
	l.Logger.Log(context.Background(), level, msg, args...)
}

func (l logger) enabled(level slog.Level) bool {
	return l.Logger.Enabled(context.Background(), level)
}

func (l logger) Log(level hclog.Level, msg string, args ...any) {
	switch {
	case level >= hclog.Error:
		l.Error(msg, args...)
	case level == hclog.Warn:
		l.Warn(msg, args...)
	case level == hclog.Info:
		l.Info(msg, args...)
	}
}

func (l logger) Trace(string, ...any)          {}
func (l logger) Debug(string, ...any)          {}
func (l logger) Info(msg string, args ...any)  { l.write(slog.LevelDebug, msg, args) }
func (l logger) Warn(msg string, args ...any)  { l.write(slog.LevelWarn, msg, args) }
func (l logger) Error(msg string, args ...any) { l.write(slog.LevelError, msg, args) }

func (l logger) IsTrace() bool { return false }
func (l logger) IsDebug() bool { return false }
func (l logger) IsInfo() bool  { return l.enabled(slog.LevelDebug) }
func (l logger) IsWarn() bool  { return l.enabled(slog.LevelWarn) }
func (l logger) IsError() bool { return l.enabled(slog.LevelError) }

func (l logger) ImpliedArgs() []any { return l.args }

func (l logger) With(args ...any) hclog.Logger {
	return logger{l.Logger.With(args...), l.name, append(l.args[:len(l.args):len(l.args)], args...), l.recent}
}

func (l logger) Name() string { return l.name }

func (l logger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return logger{l.Logger, name, l.args, l.recent}
}

func (l logger) ResetNamed(name string) hclog.Logger { return logger{l.Logger, name, l.args, l.recent} }

func (l logger) SetLevel(hclog.Level)  {}
func (l logger) GetLevel() hclog.Level { return hclog.Info }

func (l logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.Handler(), slog.LevelDebug)
}

func (l logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
