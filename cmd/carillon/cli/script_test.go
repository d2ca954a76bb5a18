package cli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

type order struct {
	Item string `json:"item" carillon:"search"`
}

// shop is a worker's jobs, one for each way in which a run can end.
func shop() []jobs.Job {
	return []jobs.Job{
		jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			if o.Item == "nothing" {
				return jobs.NoRetry(errors.New("there is nothing to pack"))
			}
			jobs.Log(ctx).Info("packing", "item", o.Item)
			return jobs.Result(ctx, "packed "+o.Item)
		}), jobs.Options{Key: "shop.pack", Description: "Packs what was ordered.", Args: order{"a bell"}}),
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			jobs.Log(ctx).Warn("\x1b[31mthis takes\nlong")
			<-ctx.Done()
			return context.Cause(ctx)
		}), jobs.Options{Key: "shop.wait", MaxConcurrency: 1, Overlap: jobs.OverlapSkip, Tags: []string{"slow"}}),
		jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }),
			jobs.Options{Key: "shop.close-day", Cron: "0 30 2 1 1 ?", TimeZone: "Europe/Berlin", Retries: 2}),
	}
}

// fixture is a scheduler that is served over HTTP.
type fixture struct {
	*embed.Scheduler
	url   string
	asked atomic.Int64 // requests so far
}

func open(t *testing.T, change ...func(*embed.Config)) *fixture {
	t.Helper()
	return openWith(t, shop(), change...)
}

func openWith(t *testing.T, list []jobs.Job, change ...func(*embed.Config)) *fixture {
	t.Helper()
	conf := embed.Config{Worker: worker.Config{App: "shop", Name: "till", Slots: worker.Unlimited, Grace: -1}}
	for _, fn := range change {
		fn(&conf)
	}
	s, err := embed.Start(t.Context(), conf, list...)
	if err != nil {
		t.Fatal(err)
	}
	h := &fixture{Scheduler: s}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked.Add(1)
		s.Handler().ServeHTTP(w, r)
	}))
	h.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// call is one call of the program.
type call struct {
	ctx      context.Context
	in       string
	env      map[string]string
	terminal bool
	now      func() time.Time // nil = time.Now
}

// run calls the program and returns its output and exit code.
func (c call) run(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	code = c.into(&o, &e, args...)
	return o.String(), e.String(), code
}

func (c call) into(out, errs *bytes.Buffer, args ...string) int {
	root := rootOf(cli.Config{Terminal: func(any) bool { return c.terminal }, Now: c.now, Getenv: func(name string) string { return c.env[name] }})
	root.SetIn(strings.NewReader(c.in))
	root.SetOut(out)
	root.SetErr(errs)
	root.SetArgs(args)
	if c.ctx == nil {
		c.ctx = context.Background()
	}
	err := root.ExecuteContext(c.ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(errs, "carillon: %v\n", err)
	}
	return cli.ExitCode(err)
}

func rootOf(c cli.Config) *cobra.Command {
	root := &cobra.Command{Use: "carillon", SilenceErrors: true, SilenceUsage: true}
	verbs, others := cli.Commands(c)
	for _, v := range verbs { // slow machines must not fail tests; a test of the timeout sets the flag itself
		_ = v.PersistentFlags().Lookup("request-timeout").Value.Set("3m")
	}
	root.AddCommand(append(verbs, others...)...)
	return root
}

func (h *fixture) env() map[string]string { return map[string]string{"CARILLON_SERVER": h.url} }

// TestScripts runs testdata/*.txt: commands, their output (! marks the error output) and exit codes.
// "% until <run1> is Processing" and "% until till is idle" wait; "% as <token1>" authenticates with a token from then
// on (the first is an admin's). A dot is an empty line. Values that vary are in <>; runs are numbered in order.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no scripts: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(raw))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(raw) {
				t.Errorf("%s: look at what differs with -update and git diff:\n%s", file, firstDifference(string(raw), got))
			}
		})
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\n got %s", i+1, w[i], strings.Join(g[min(i, len(g)):min(i+8, len(g))], "\n     "))
		}
	}
	return "there is more at the end:\n" + strings.Join(g[len(w):], "\n")
}

// play runs the commands of a script and answers with the script as it would have to be.
func play(t *testing.T, script string) string {
	h := open(t, func(c *embed.Config) { c.Tokens = strings.Contains(script, "% as ") })
	var b strings.Builder
	s := scrub{fixture: h}
	token := ""
	if strings.Contains(script, "% as ") {
		s.of(h.guard(t))
	}
	for line := range strings.Lines(script) {
		command, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ carillon ")
		if strings.HasPrefix(line, "#") || line == "\n" {
			b.WriteString(line)
		}
		if name, is := strings.CutPrefix(line, "% as "); is {
			b.WriteString(line)
			token = s.back(strings.TrimSpace(name))
		}
		if triggerFlags, is := strings.CutPrefix(line, "% until "); is {
			b.WriteString(line)
			run, state, _ := strings.Cut(strings.TrimSpace(s.back(triggerFlags)), " is ")
			until(t, line, func() bool {
				if state == "idle" { // a worker counts a run a moment longer than the run lasts
					out, _, _ := call{env: h.env()}.run("workers", "list", "-o", "json")
					return strings.Contains(out, `"running": 0`)
				}
				out, _, _ := call{env: h.env()}.run("runs", "show", run, "-o", "json")
				return strings.Contains(out, `"state": "`+state+`"`)
			})
		}
		if !is {
			continue
		}
		c := call{env: h.env()}
		c.env["CARILLON_TOKEN"] = token
		command, c.in, _ = strings.Cut(command, " <<< ")
		c.in = strings.ReplaceAll(c.in, "<newline>", "\n")
		out, errs, code := c.run(split(s.back(command))...)
		b.WriteString(line)
		for one := range strings.Lines(s.of(out)) {
			if one == "\n" {
				one = ".\n" // an empty line would be one of the script
			}
			b.WriteString(one)
		}
		for one := range strings.Lines(s.of(errs)) {
			b.WriteString("! " + one)
		}
		if code != 0 {
			fmt.Fprintf(&b, "exit %d\n", code)
		}
	}
	return b.String()
}

// empty marks an argument that was in quotes, and may be empty.
const empty = "\x00"

// split is a command line as a shell would split it, with single quotes.
func split(line string) (args []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			args[len(args)-1] += strings.ReplaceAll(part, "<newline>", "\n") + empty
			continue
		}
		for j, piece := range strings.Split(part, " ") {
			if j > 0 || i == 0 {
				args = append(args, piece)
			} else {
				args[len(args)-1] += piece
			}
		}
	}
	var all []string
	for _, w := range args {
		if w != "" {
			all = append(all, strings.ReplaceAll(w, empty, ""))
		}
	}
	return all
}

// scrub takes out what differs from time to time.
type scrub struct {
	*fixture
	runs   []string
	tokens []string
}

var (
	secret = regexp.MustCompile(`carillon_[a-z0-9]+_[a-z0-9]{8}_[A-Z0-9]{26}`)
	uuid   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	differ = []struct {
		re *regexp.Regexp
		by string
	}{
		{regexp.MustCompile(`finished runs take +.*`), "finished runs take  <kept>"}, // measured now and then
		{regexp.MustCompile(`(?s)"kept": \{.*?\n  \}`), `"kept": <kept>`},
		{regexp.MustCompile(`2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
		{regexp.MustCompile(`\w{3} 2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d`), "<time>"},
		{regexp.MustCompile(`2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d`), "<time>"},
		{regexp.MustCompile(`(?m)^\w{3} 2\d{3}-\d\d-\d\d  .*`), "<day>"},
		{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "<clock>"},
		{regexp.MustCompile(`\bin \d[\d.hmsd]*`), "<when>"},
		{regexp.MustCompile(`<?\b\d[\d.hmsd]* ago`), "<when>"},
		{regexp.MustCompile(`(?m)(^|  |\(|, )now(\)|  |:|$)`), "$1<when>$2"},
		{regexp.MustCompile(`<?\b\d[\d.]*ms\b`), "<d>"},
		{regexp.MustCompile(`\b[01]\.\ds\b`), "<d>"},
		// On a slow machine more than a moment: how long a worker is up, what a run took in text, in a field and in a
		// list, and how late runs began.
		{regexp.MustCompile(`(\d/any +)\d[\d.hms]*`), "${1}<d>"},
		{regexp.MustCompile(`\b([A-Z]\w+ after )\d[\d.hms]*`), "${1}<d>"},
		{regexp.MustCompile(`(?m)^(took +)\d[\d.hms]*`), "${1}<d>"},
		{regexp.MustCompile(`\b([A-Z]\w+ +\d+(?:/\d+)? +<when> +)\d[\d.hms]*`), "${1}<d>"},
		{regexp.MustCompile(`\b\d[\d.hms]*( \(median\)| \(99 of 100\))`), "<d>$1"},
		{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<hash>"},
		{regexp.MustCompile(`"pid": \d+`), `"pid": <n>`},
		{regexp.MustCompile(`"running": \d+`), `"running": <n>`}, // at the worker's last heartbeat
		{regexp.MustCompile(`"name": "till-\w+"`), `"name": "till-<nonce>"`},
		{regexp.MustCompile(`till-[0-9A-Za-z]+`), `till-<nonce>`},
		{regexp.MustCompile(`(\S) {2,}`), `$1  `},
	}
)

// of is a text without what differs.
func (s *scrub) of(text string) string {
	text = uuid.ReplaceAllStringFunc(text, func(id string) string {
		for i, known := range s.runs {
			if id == known {
				return fmt.Sprintf("<run%d>", i+1)
			}
		}
		s.runs = append(s.runs, id)
		return fmt.Sprintf("<run%d>", len(s.runs))
	})
	text = secret.ReplaceAllStringFunc(text, func(token string) string {
		s.tokens = append(s.tokens, token)
		return fmt.Sprintf("<token%d>", len(s.tokens))
	})
	for i, token := range s.tokens {
		text = strings.ReplaceAll(text, strings.Split(token, "_")[2], fmt.Sprintf("<id%d>", i+1))
	}
	host, _ := os.Hostname()
	text = strings.ReplaceAll(strings.ReplaceAll(text, s.url, "<server>"), `"`+host+`"`, `"<host>"`)
	text = strings.ReplaceAll(text, "  "+host+"  ", "  <host>  ")
	for _, d := range differ {
		text = d.re.ReplaceAllString(text, d.by)
	}
	return text
}

// back is a command with the runs that it means.
func (s *scrub) back(command string) string {
	for i, id := range s.runs {
		command = strings.ReplaceAll(command, fmt.Sprintf("<run%d>", i+1), id)
	}
	for i, token := range s.tokens {
		command = strings.ReplaceAll(command, fmt.Sprintf("<token%d>", i+1), token)
		command = strings.ReplaceAll(command, fmt.Sprintf("<id%d>", i+1), strings.Split(token, "_")[2])
	}
	return command
}

// guard lets only those in who have a token, and is the first of them.
func (h *fixture) guard(t *testing.T) string {
	t.Helper()
	_, token, err := h.Ops().Grant(t.Context(), ops.Who{Actor: "person:test", Role: ops.Admin}, ops.NewToken{Name: "root", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.New(api.Config{Ops: h.Ops(), Who: api.NewAccess(h.Ops(), false).Who}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return token
}

// until looks until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 2*time.Minute {
			t.Fatal("it never comes to this: " + what)
		}
	}
}
