package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	"github.com/reugn/go-quartz/quartz"
	"github.com/robfig/cron/v3"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// engine reads an expression and answers with a function that finds the first due time after another, in a zone. The
// zero time is no due time.
type engine func(expr string, zone *time.Location) (func(after time.Time) time.Time, error)

var engines = map[string]engine{
	"ours": func(expr string, zone *time.Location) (func(time.Time) time.Time, error) {
		s, err := schedule.Parse(schedule.Spec{Expr: expr, Zone: zone.String()})
		if err != nil {
			return nil, err
		}
		return func(after time.Time) time.Time {
			due, _ := s.Next(after)
			return due
		}, nil
	},
	"go-quartz": func(expr string, zone *time.Location) (func(time.Time) time.Time, error) {
		trigger, err := quartz.NewCronTriggerWithLoc(expr, zone)
		if err != nil {
			return nil, err
		}
		return func(after time.Time) time.Time {
			due, err := trigger.NextFireTime(after.UnixNano())
			if err != nil {
				return time.Time{}
			}
			return time.Unix(0, due)
		}, nil
	},
	"robfig/cron": func(expr string, zone *time.Location) (func(time.Time) time.Time, error) {
		parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
		s, err := parser.Parse(expr)
		if err != nil {
			return nil, err
		}
		return func(after time.Time) time.Time { return s.Next(after.In(zone)) }, nil
	},
	"gronx": func(expr string, zone *time.Location) (func(time.Time) time.Time, error) {
		if !gronx.IsValid(expr) {
			return nil, errors.New("gronx says that it is not valid")
		}
		return func(after time.Time) time.Time {
			due, err := gronx.NextTickAfter(expr, after.In(zone), false)
			if err != nil {
				return time.Time{}
			}
			return due
		}, nil
	},
}

// question asks for n due times of an expression after a Unix second; answer has them, fewer if no more follow, or
// says why there are none.
type (
	question struct {
		Engine, Expr, Zone string
		After              int64
		N                  int
	}
	answer struct {
		Times []int64
		Error string
	}
)

func (q question) String() string {
	return fmt.Sprintf("%q in %s after %s", q.Expr, q.Zone, time.Unix(q.After, 0).UTC().Format(time.RFC3339))
}

func (q question) answer() (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{Error: fmt.Sprint("panic: ", r)}
		}
	}()
	zone, err := time.LoadLocation(q.Zone)
	if err != nil {
		return answer{Error: err.Error()}
	}
	next, err := engines[q.Engine](q.Expr, zone)
	if err != nil {
		return answer{Error: err.Error()}
	}
	for after := time.Unix(q.After, 0); len(a.Times) < q.N; {
		if after = next(after); after.IsZero() {
			break
		}
		a.Times = append(a.Times, after.Unix())
	}
	return a
}

const isChild = "SCHEDULE_PEERS_CHILD"

// TestMain lets the program of the tests be the child process, too.
func TestMain(m *testing.M) {
	if os.Getenv(isChild) == "" {
		os.Exit(m.Run())
	}
	debug.SetMaxStack(64 << 20) // an endless recursion need not fill the machine first
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		if err := out.Encode(q.answer()); err != nil {
			panic(err)
		}
	}
}

// ask puts questions to child processes. One that a child does not survive is answered with its last words, and the
// others are put to the next child.
func ask(t *testing.T, questions []question) []answer {
	t.Helper()
	var answers []answer
	for len(answers) < len(questions) {
		more, lastWords := askChild(t, questions[len(answers):])
		answers = append(answers, more...)
		if lastWords != "" {
			answers = append(answers, answer{Error: lastWords})
		}
	}
	return answers
}

// patience is how long a child may think about one answer. An engine that never comes to an end is not waited for.
const patience = time.Minute

// heard keeps what a child says, and gives it time for more.
type heard struct {
	said bytes.Buffer
	more *time.Timer
}

func (h *heard) Write(p []byte) (int, error) {
	h.more.Reset(patience)
	return h.said.Write(p)
}

func askChild(t *testing.T, questions []question) (answers []answer, lastWords string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := heard{more: time.AfterFunc(patience, cancel)}
	defer out.more.Stop()
	var in bytes.Buffer
	for _, q := range questions {
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), isChild+"=1")
	var errs bytes.Buffer
	child.Stdin, child.Stdout, child.Stderr = &in, &out, &errs
	failed := child.Run()
	for d := json.NewDecoder(&out.said); ; {
		var a answer
		if d.Decode(&a) != nil {
			break
		}
		answers = append(answers, a)
	}
	switch {
	case ctx.Err() != nil:
		lastWords = "no answer"
	case failed != nil:
		lastWords, _, _ = strings.Cut(errs.String(), "\n\n")
	case len(answers) < len(questions):
		lastWords = "the child ended early"
	}
	return answers, lastWords
}
