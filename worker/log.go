package worker

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	logEvery  = 250 * time.Millisecond // a batch of lines waits this long at most
	logBatch  = 64 << 10               // or until it has this many bytes of text
	logLine   = 8 << 10                // what is kept of one line
	logBuffer = 4 << 20                // lines that wait for the bus; beyond that they are dropped, and counted
	lineCost  = 96                     // what a line costs beside its text
)

// logbook gathers the lines of all handlers until they are sent.
type logbook struct {
	mu      sync.Mutex
	lines   []metastore.LogLine
	size    int
	dropped int
	first   chan struct{} // gets a token with the first line
	full    chan struct{} // gets a token when a batch is full
}

// attemptLog is how far the log of one attempt is; guarded by logbook.mu.
type attemptLog struct {
	sequence uint64
	size     int
	cut      bool
}

func newLogbook() *logbook {
	return &logbook{first: make(chan struct{}, 1), full: make(chan struct{}, 1)}
}

// append adds a line of an attempt. Beyond metastore.MaxLog a last line marks that the rest is missing.
func (b *logbook) append(a *attempt, level, text string) {
	text = plain.Short(text, logLine)
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.log.cut {
		return
	}
	if b.size >= logBuffer {
		b.dropped++
		return
	}
	if a.log.size += len(text) + lineCost; a.log.size > metastore.MaxLog {
		a.log.cut = true
		level, text = "WARN", "the log of this attempt ends here: it has reached its limit of 1 MiB"
	}
	a.log.sequence++
	b.lines = append(b.lines, metastore.LogLine{
		Tenant: a.in.Tenant, Run: a.ID, LogPosition: metastore.LogPosition{Attempt: a.Attempt, Sequence: a.log.sequence},
		At: kernel.Instant(time.Now()), Level: level, Text: text,
	})
	if b.size == 0 {
		ring(b.first)
	}
	if b.size += len(text) + lineCost; b.size >= logBatch {
		ring(b.full)
	}
}

// number makes the next line of an attempt the n-th, and returns how many lines from there on are known already. n = 0
// means unnumbered: the lines of a log that was begun elsewhere are then appended.
func (b *logbook) number(a *attempt, n uint64) (known uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case n > 0 && n <= a.log.sequence:
		return a.log.sequence - n + 1
	case n > 0:
		a.log.sequence = n - 1
	case a.spent > 0 && a.log.sequence == 0:
		a.log.sequence = uint64(time.Now().UnixMilli())
	}
	return 0
}

// ended reports whether the attempt's log is full.
func (b *logbook) ended(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.log.cut
}

// take empties the book.
func (b *logbook) take() (lines []metastore.LogLine, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines, dropped = b.lines, b.dropped
	b.lines, b.size, b.dropped = nil, 0, 0
	return lines, dropped
}

// ring leaves a token in the channel, without blocking.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sendLogs sends what handlers write, a batch at a time, until ctx ends; and then the rest.
func (w *Worker) sendLogs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
			defer cancel()
			w.flushLogs(last)
			return
		case <-w.lines.first:
		}
		select {
		case <-ctx.Done():
		case <-w.lines.full:
			w.flushLogs(ctx)
		case <-time.After(logEvery):
			w.flushLogs(ctx)
		}
	}
}

func (w *Worker) flushLogs(ctx context.Context) {
	lines, dropped := w.lines.take()
	if dropped > 0 {
		w.episodes.Failed(slog.LevelWarn, "", "handlers write faster than their log can be sent: lines are dropped", "lines", dropped)
	}
	for len(lines) > 0 {
		size, n := 0, 0
		for n < len(lines) && (n == 0 || size+len(lines[n].Text)+lineCost <= logBatch) {
			size += len(lines[n].Text) + lineCost
			n++
		}
		s := bus.Signal{Topic: bus.TopicLog, Tenant: w.config.Tenant, Data: metastore.EncodeLogLines(lines[:n])}
		if err := w.bus.Signal(ctx, s); err != nil {
			w.log.Debug("log lines are lost", "lines", n, "err", err)
		}
		lines = lines[n:]
	}
}

// logHandler turns what a handler logs into lines: the message, then its attributes as slog's text has them.
type logHandler struct {
	book    *logbook
	attempt *attempt
	text    slog.Handler // writes attributes to buf
	mu      *sync.Mutex  // guards buf
	buf     *bytes.Buffer
}

// textPrefix is what slog's text handler writes before the attributes of a record without time and message.
const textPrefix = `level=INFO msg=""`

func newLogHandler(b *logbook, a *attempt) logHandler {
	buf := new(bytes.Buffer)
	return logHandler{book: b, attempt: a, text: slog.NewTextHandler(buf, nil), mu: new(sync.Mutex), buf: buf}
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return !h.book.ended(h.attempt) }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slog.NewRecord(time.Time{}, slog.LevelInfo, "", 0)
	r.Attrs(func(a slog.Attr) bool { attrs.AddAttrs(a); return true })
	text, err := h.format(ctx, attrs)
	if err != nil {
		return err
	}
	h.book.append(h.attempt, levelName(r.Level), r.Message+text)
	return nil
}

func (h logHandler) format(ctx context.Context, attrs slog.Record) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf.Reset()
	if err := h.text.Handle(ctx, attrs); err != nil {
		return "", err
	}
	line := bytes.TrimSuffix(bytes.TrimPrefix(h.buf.Bytes(), []byte(textPrefix)), []byte("\n"))
	if len(line) > logLine {
		line = line[:logLine]
	}
	return string(line), nil
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.text = h.text.WithAttrs(attrs)
	return h
}

func (h logHandler) WithGroup(name string) slog.Handler {
	h.text = h.text.WithGroup(name)
	return h
}

// levelName is the name of the level that l reaches.
func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "ERROR"
	case l >= slog.LevelWarn:
		return "WARN"
	case l >= slog.LevelInfo:
		return "INFO"
	}
	return "DEBUG"
}
