package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// Polling intervals: without events, and the minimum with events.
const (
	lookEvery = 2 * time.Second
	lookLeast = 250 * time.Millisecond
)

// watch is the flag --watch.
type watch struct{ on bool }

func (w *watch) addFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&w.on, "watch", "w", false, "refresh on every change; Ctrl-C ends it with exit code 130")
}

// watched shows a view once, or whenever it changes. On a terminal a view replaces the one before; elsewhere it
// follows it.
func (a *asker) watched(ctx context.Context, w watch, look func(context.Context) (view, error)) error {
	if !w.on {
		v, err := look(ctx)
		if err != nil {
			return err
		}
		return a.show(v)
	}
	news := a.news(ctx)
	screen := screen{asker: a}
	shown := false
	for {
		v, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && (!shown || ExitCode(err) != Unavailable):
			return err
		case err != nil:
			a.remark("%v", err) // it may come back
			screen.height = 0
		default:
			if err := screen.show(v); err != nil {
				return err
			}
			shown = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookLeast):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-news:
		case <-time.After(lookEvery): // relative times change, too
		}
	}
}

// Escape sequences that make a terminal cut long lines, and wrap them again.
const (
	noWrap = "\x1b[?7l"
	wrap   = "\x1b[?7h"
)

// screen redraws a view in place.
type screen struct {
	*asker
	last   string
	height int // lines of the view that is shown
}

func (s *screen) show(v view) error {
	text, err := s.form(v)
	if err != nil || s.quiet || text == s.last {
		return err
	}
	s.last = text
	if s.format == "" && s.Terminal(s.out) {
		if s.height > 0 {
			text = fmt.Sprintf("\x1b[%dA\x1b[J", s.height) + text
		}
		s.height = strings.Count(s.last, "\n")
		text = noWrap + text + wrap // or a long line would take several rows
	}
	_, err = io.WriteString(s.out, text)
	return err
}

// news signals that something may have changed. The content of an event is ignored: it only triggers a new request.
func (a *asker) news(ctx context.Context) <-chan struct{} {
	news := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			a.listen(ctx, news)
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	}()
	return news
}

// listen receives events until the server ends the stream.
func (a *asker) listen(ctx context.Context, news chan<- struct{}) {
	q, err := a.link.compose(ctx, request{method: http.MethodGet, path: "/events"})
	if err != nil {
		return
	}
	q.Header.Set("Accept", "text/event-stream")
	response, err := a.link.http.Do(q)
	if err != nil {
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "data:") {
			continue
		}
		select {
		case news <- struct{}{}:
		default: // one is waiting already
		}
	}
}
