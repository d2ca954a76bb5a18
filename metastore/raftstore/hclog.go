package raftstore

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// logger lets raft log to a slog.Logger. Raft's info is detail to an operator, and is logged one level lower.
type logger struct {
	*slog.Logger
	name     string
	args     []any
	episodes *episode.Log // nil: everything is logged
}

var _ hclog.Logger = logger{}

// unreachable are raft's messages about a peer that does not answer, which are one episode of that peer.
var unreachable = []string{"failed to contact", "failed to appendEntries to", "failed to make requestVote RPC",
	"failed to pipeline appendEntries", "failed to start pipeline replication to", "failed to send snapshot to"}

// heals are raft's other errors that come from connections, or from a change of leaders, and end by themselves.
var heals = []string{"failed to accept connection", "failed to decode incoming command", "failed to flush response", "peer has newer term, stopping replication",
	"failed to install snapshot"}

// elections are warnings that belong to each change of leaders.
var elections = []string{"heartbeat timeout reached, starting election", "Election timeout reached, restarting election", "new leader elected, stepping down",
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election"}

// routine are warnings about nodes that restart or vote, which mean nothing to an operator.
var routine = []string{"rejecting vote request since we have a leader", "rejecting pre-vote request since we have a leader", "appendEntries rejected, sending older logs",
	"duplicate requestVote from", "rejecting vote request since our last term is greater", "rejecting pre-vote request since our last term is greater",
	"rejecting vote request since our last index is greater", "rejecting pre-vote request since our last index is greater", "previous log term mis-match",
	"failed to get previous log", "clearing log suffix",
	"failed to heartbeat to"} // the last one names an address; "failed to contact" names the node

const peerUnreachable = "raft peer does not answer"

func (l logger) write(level slog.Level, msg string, args []any) {
	switch {
	case slices.Contains(heals, msg):
		level = slog.LevelWarn
	case slices.Contains(elections, msg):
		level = slog.LevelInfo
	case slices.Contains(routine, msg):
		level = slog.LevelDebug
	}
	if l.name != "" {
		args = append(args[:len(args):len(args)], "part", l.name)
	}
	switch {
	case l.episodes == nil || level < slog.LevelInfo:
		l.Logger.Log(context.Background(), level, msg, args...)
	case slices.Contains(unreachable, msg):
		l.episodes.Lasts(peerPatience, slog.LevelWarn, peerIn(args), peerUnreachable, append([]any{"cause", msg}, args...)...)
	default:
		l.episodes.Failed(level, peerIn(args), msg, args...)
	}
}

// peerPatience is how long a peer may be unreachable without a line in the log: nodes restart faster.
const peerPatience = 2 * time.Second

// peerIn returns the node that a message is about, or "".
func peerIn(args []any) string {
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "peer", "target", "server-id":
			if s, ok := args[i+1].(raft.Server); ok {
				return string(s.ID)
			}
			return fmt.Sprint(args[i+1])
		}
	}
	return ""
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
	return logger{l.Logger.With(args...), l.name, append(l.args[:len(l.args):len(l.args)], args...), l.episodes}
}

func (l logger) Name() string { return l.name }

func (l logger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return logger{l.Logger, name, l.args, l.episodes}
}

func (l logger) ResetNamed(name string) hclog.Logger {
	return logger{l.Logger, name, l.args, l.episodes}
}

func (l logger) SetLevel(hclog.Level)  {}
func (l logger) GetLevel() hclog.Level { return hclog.Info }

func (l logger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.Handler(), slog.LevelDebug)
}

func (l logger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
