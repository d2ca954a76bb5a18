package ui

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// logPart is the log of a run on its page.
type logPart struct {
	Lines  []metastore.LogLine
	Before bool   // there are lines before those
	Find   string // only lines that contain it, case-insensitive
	Found  int    // total number of these
}

// pageLines is how many of the last lines of a log a page shows.
const pageLines = 300

func (u *UI) logPart(r *http.Request, v visitor, id jobs.ID) (logPart, error) {
	p := logPart{Find: strings.TrimSpace(r.URL.Query().Get("find"))}
	var err error
	if p.Find == "" {
		p.Lines, p.Before, err = u.ops.Tail(r.Context(), v.Who, id, pageLines)
	} else {
		wanted := strings.ToLower(p.Find)
		err = u.eachLine(r.Context(), v.Who, id, func(line metastore.LogLine) error {
			if !strings.Contains(strings.ToLower(line.Text), wanted) {
				return nil
			}
			p.Found++
			if len(p.Lines) == 2*pageLines {
				p.Lines = append(p.Lines[:0], p.Lines[pageLines:]...)
			}
			p.Lines = append(p.Lines, line)
			return nil
		})
		p.Lines = p.Lines[max(0, len(p.Lines)-pageLines):]
		p.Before = p.Found > len(p.Lines)
	}
	for i := range p.Lines {
		p.Lines[i].Text = plain.Visible(p.Lines[i].Text)
	}
	return p, err
}

// eachLine calls fn with the lines of a run, oldest first.
func (u *UI) eachLine(ctx context.Context, who ops.Who, id jobs.ID, fn func(metastore.LogLine) error) error {
	var after metastore.LogPosition
	for {
		lines, err := u.ops.Log(ctx, who, id, after, ops.MaxLines)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := fn(line); err != nil {
				return err
			}
		}
		if len(lines) < ops.MaxLines {
			return nil
		}
		after = lines[len(lines)-1].LogPosition
	}
}

// logFile serves the whole log as a text file.
func (u *UI) logFile(r *http.Request, v visitor) (answer, error) {
	id, err := runID(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := u.ops.Run(r.Context(), v.Who, id); err != nil {
		return answer{}, err
	}
	return answer{write: func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="run-`+id.String()+`.log"`)
		out := bufio.NewWriter(w)
		err := u.eachLine(r.Context(), v.Who, id, func(line metastore.LogLine) error {
			_, err := fmt.Fprintf(out, "%s %d %-5s %s\n", line.At.UTC().Format(time.RFC3339Nano), line.Attempt, line.Level, plain.Visible(line.Text))
			return err
		})
		if err != nil {
			_, _ = fmt.Fprintln(out, "the log is incomplete: it could not be read to its end")
		}
		_ = out.Flush() // the browser may have gone
	}}, nil
}
