package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Limits of one question: due times, and bytes of a line.
const (
	defaultNext = 5
	mostNext    = 10_000
	longestLine = 64 << 10
)

// rfc3339 is strict: time.Parse accepts an hour of one digit, a comma, and an offset of 24 hours.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func newNext() *cobra.Command {
	q := question{N: new(int)}
	var gap, overlap, lang string
	c := &cobra.Command{
		Use:   "next <schedule>",
		Short: "Show the due times of a schedule, without a server",
		Long: "Show the due times of a schedule: a cron expression, an interval, an ISO 8601 repeat or an instant. Intervals count\n" +
			"from --after.\n\n" +
			"With - as the schedule, read requests from standard input, a JSON object in each line with the fields expr, zone, after,\n" +
			"n, gap, overlap and key. Print a line for each: {\"times\":[...]} in UTC, or {\"error\":\"...\"}.",
		Example: "  carillon next '30 2 * * MON-FRI' --zone Europe/Berlin\n" +
			"  carillon next '30 2 * * *' --zone Europe/Berlin --after 2026-03-28T00:00:00Z -n 3\n" +
			"  carillon next 'H H(0-5) * * *' --key default/report\n" +
			"  echo '{\"expr\":\"@hourly\",\"n\":3}' | carillon next -",
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("%s needs a schedule; see %s --help", c.CommandPath(), c.CommandPath())
			case len(args) > 1:
				return usage("%s takes one schedule: put it in quotes, as in %s '30 2 * * *'", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "-" {
				if c.Flags().NFlag() > 0 {
					return usage("with -, flags are not allowed: put them into the lines of the input")
				}
				return answerLines(c.InOrStdin(), c.OutOrStdout())
			}
			if lang != "en" && lang != "zh" {
				return usage("invalid --lang %.20q: want en or zh", lang)
			}
			q.Expr = args[0]
			err := errors.Join(q.Gap.UnmarshalText([]byte(gap)), q.Overlap.UnmarshalText([]byte(overlap)))
			if err != nil {
				return usageError{err}
			}
			a, err := q.ask(time.Now())
			if err != nil {
				return usage("%v%s", err, pointer(q.Expr, err))
			}
			return a.print(c.OutOrStdout(), q.Expr, lang)
		},
	}
	c.Flags().StringVar(&q.Zone, "zone", "", "IANA name of the time zone (default UTC)")
	c.Flags().StringVar(&q.After, "after", "", "RFC 3339 instant to look from (default now)")
	c.Flags().IntVarP(q.N, "count", "n", defaultNext, fmt.Sprintf("number of due times, at most %d", mostNext))
	c.Flags().StringVar(&gap, "gap", "", "when clocks skip the time: after, before or skip (default after)")
	c.Flags().StringVar(&overlap, "overlap", "", "when the time of day occurs twice: first, second or both (default first)")
	c.Flags().StringVar(&q.Key, "key", "", "what H hashes: tenant and key of the job, such as default/report")
	c.Flags().StringVar(&lang, "lang", "en", "language of the description: en or zh")
	return c
}

// question is a line of the input, or the flags.
type question struct {
	Expr    string           `json:"expr"`
	Zone    string           `json:"zone"`
	After   string           `json:"after"` // RFC 3339; empty: now
	N       *int             `json:"n"`     // nil: defaultNext
	Gap     schedule.Gap     `json:"gap"`
	Overlap schedule.Overlap `json:"overlap"`
	Key     string           `json:"key"`
}

// ahead is a schedule with its due times, fewer than requested if it ends.
type ahead struct {
	*schedule.Schedule
	times    []time.Time
	finished bool
}

// ask answers a question relative to now.
func (q question) ask(now time.Time) (ahead, error) {
	n := defaultNext
	if q.N != nil {
		n = *q.N
	}
	if n < 1 || n > mostNext {
		return ahead{}, fmt.Errorf("invalid n %d: want 1 to %d", n, mostNext)
	}
	after := now
	if q.After != "" {
		after = time.Time{}
		if err := after.UnmarshalText([]byte(q.After)); err != nil || !rfc3339.MatchString(q.After) {
			return ahead{}, fmt.Errorf("invalid after %.40q: want an RFC 3339 instant such as 2027-03-01T09:00:00Z", q.After)
		}
	}
	if after.Unix() < 0 { // the zero time means now
		return ahead{}, errors.New("after lies before 1970")
	}
	s, err := schedule.Parse(schedule.Spec{Expr: q.Expr, Zone: q.Zone, Anchor: after, Gap: q.Gap, Overlap: q.Overlap, Key: q.Key})
	if err != nil {
		return ahead{}, err
	}
	a := ahead{Schedule: s}
	for range n {
		due, ok := s.Next(after)
		if !ok {
			a.finished = true
			break
		}
		a.times = append(a.times, due)
		after = due
	}
	return a, nil
}

// print describes the schedule, warns, and lists the due times, with a remark where clocks change.
func (a ahead) print(w io.Writer, expr, lang string) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n%s\n", strings.TrimSpace(expr), a.WordsIn(lang))
	for _, warning := range a.WarningsIn(lang) {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}
	fmt.Fprintln(out)
	for _, due := range a.times {
		line := a.In(due).Format("Mon 2006-01-02 15:04:05 -07:00") + "   " + due.Format(time.RFC3339)
		if remark := a.RemarkIn(lang, due); remark != "" {
			line += "   " + remark
		}
		fmt.Fprintln(out, line)
	}
	if a.finished {
		fmt.Fprintln(out, "finished")
	}
	return out.Flush()
}

// pointer marks the position of an error under the text, if it is ASCII, so that columns match.
func pointer(expr string, err error) string {
	at, ok := errors.AsType[*schedule.Error](err)
	switch {
	case !ok || at.Field == "zone" || len(expr) > 100 || at.Offset > len(expr):
		return ""
	case strings.ContainsFunc(expr, func(r rune) bool { return r < ' ' || r > '~' }):
		return ""
	}
	return "\n  " + expr + "\n  " + strings.Repeat(" ", at.Offset) + "^"
}

// reply is a line of the output: one of the two.
type reply struct {
	Times []string `json:"times,omitzero"` // in UTC and whole seconds; empty if none is left
	Error string   `json:"error,omitempty"`
}

// answerLines answers each line in order, as soon as it is read. A wrong line is answered with an error; only the end
// of the input or a closed output ends it.
func answerLines(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, longestLine)
	encoder := json.NewEncoder(out) // one write a line
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadSlice('\n')
		tooLong := err == bufio.ErrBufferFull
		for err == bufio.ErrBufferFull {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the questions: %w", err)
		}
		if len(line) == 0 { // nothing follows the last newline
			return nil
		}
		answer := reply{Error: fmt.Sprintf("the line is longer than %d bytes", longestLine)}
		if !tooLong {
			answer = answerLine(line)
		}
		if err := encoder.Encode(answer); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}

func answerLine(line []byte) reply {
	q, err := readQuestion(line)
	if err != nil {
		return reply{Error: err.Error()}
	}
	a, err := q.ask(time.Now())
	if err != nil {
		return reply{Error: err.Error()}
	}
	r := reply{Times: make([]string, len(a.times))}
	for i, due := range a.times {
		r.Times[i] = due.Format(time.RFC3339)
	}
	return r
}

// readQuestion decodes a line as one JSON object. Its errors do not mention Go types.
func readQuestion(line []byte) (q question, err error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
		at, isPolicy := errors.AsType[*schedule.Error](err)
		switch {
		case isPolicy:
			return q, at
		case isType && wrong.Field == "n":
			return q, errors.New("n must be a whole number")
		case isType && wrong.Field != "":
			return q, fmt.Errorf("%s must be a text", wrong.Field)
		case isType:
			return q, errors.New("a question is a JSON object")
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return q, errors.New("the line ends before the JSON object does")
		}
		return q, fmt.Errorf("invalid question: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return q, errors.New("there is more than one JSON object on the line")
	}
	return q, nil
}
