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

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// lines turns the server's log into log records, and remembers the worst of it: a server that does not start gives the
// reason nowhere else.
type lines struct {
	to            *slog.Logger
	episodes      *episode.Log
	authenticator bool // logs refused connections itself, and not too often

	mu    sync.Mutex
	error error
}

func newLines(to *slog.Logger, authenticator bool) *lines {
	return &lines{to: to, episodes: episode.New(to), authenticator: authenticator}
}

// settling is how long what belongs to each start and each join lasts at most; such lines are logged if it lasts longer.
const settling = 10 * time.Second

// settles matches what a server reports while it starts, or while another one joins or restarts.
var settles = regexp.MustCompile(`handshake error|to route|Router connection|Route Error`)

// varying matches what differs between lines of one kind: subjects, accounts, ports and numbers of connections.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\[[^\]]*\]|[0-9]+`)

// dialled finds the address of a server that cannot be reached.
var dialled = regexp.MustCompile(`dial tcp ([^ ]+):`)

func (l *lines) write(level slog.Level, format string, v []any) {
	if l.to == nil {
		return
	}
	says := redact(fmt.Sprintf(format, v...))
	if level < slog.LevelWarn {
		l.to.Log(context.Background(), level, "nats server", "says", says)
		return
	}
	kind := varying.ReplaceAllString(says, "#")
	if to := dialled.FindStringSubmatch(says); to != nil {
		kind = to[1]
	}
	patience := time.Duration(0)
	if settles.MatchString(says) {
		level, patience = slog.LevelWarn, settling
	}
	l.episodes.Lasts(patience, level, kind, "nats server", "says", says)
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

// expected is in a warning that means no harm: names in certificates are not checked because keys are (see mutual).
const expected = "solicited routes will not be verified"

// Warnf logs what may be wrong.
func (l *lines) Warnf(format string, v ...any) {
	level := slog.LevelWarn
	if strings.Contains(fmt.Sprintf(format, v...), expected) {
		level = slog.LevelDebug
	}
	l.write(level, format, v)
}

// ofClient matches lines about one connection.
var ofClient = regexp.MustCompile(` - (cid|rid):[0-9]+ - `)

// Errorf logs what is wrong, and what a user tried and may not.
func (l *lines) Errorf(format string, v ...any) {
	level := slog.LevelError
	if ofClient.MatchString(fmt.Sprintf(format, v...)) {
		level = slog.LevelWarn // what a connection tried or lost, which harms no other
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
