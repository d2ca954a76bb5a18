package cli_test

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
)

// completions returns what a shell would offer, without descriptions.
func completions(t *testing.T, env map[string]string, args ...string) []string {
	t.Helper()
	out, errs, code := call{env: env}.run(append([]string{cobra.ShellCompRequestCmd}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, errs)
	}
	var all []string
	for line := range strings.Lines(out) {
		offer, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !strings.HasPrefix(offer, ":") {
			all = append(all, offer)
		}
	}
	return all
}

func TestComplete(t *testing.T) {
	h := open(t)
	run, _, code := call{env: h.env()}.run("jobs", "trigger", "shop.pack", "--wait", "-o", "name")
	if code != 0 {
		t.Fatal("no run")
	}
	run = strings.TrimSpace(run)
	later, _, _ := call{env: h.env()}.run("jobs", "trigger", "shop.pack", "--in", "24h", "-o", "name")
	later = strings.TrimSpace(later)
	keys := []string{"shop.close-day", "shop.pack", "shop.wait"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"jobs", "show", ""}, keys},
		{[]string{"jobs", "trigger", "shop.p"}, keys[1:2]},
		{[]string{"jobs", "pause", "shop.pack", ""}, nil},
		{[]string{"runs", "list", "--job", "shop.c"}, keys[:1]},
		{[]string{"runs", "list", "--state", "Ter"}, []string{"Terminated"}},
		{[]string{"runs", "show", ""}, []string{later, run}},
		{[]string{"runs", "show", later[:30]}, []string{later}},
		{[]string{"runs", "cancel", run, later[:30]}, []string{later}},
		{[]string{"runs", "again", ""}, []string{run}},
		{[]string{"jobs", "edit", "shop.pack", "--clear", "retryd"}, []string{"retryDelay", "retryDelayMax"}},
		{[]string{"jobs", "edit", "shop.pack", "--set", "over"}, []string{"overlap="}},
		{[]string{"jobs", "edit", "shop.pack", "--overlap", ""}, []string{"skip", "queue", "queue_one", "replace"}},
		{[]string{"jobs", "edit", "shop.pack", "--zone", "europe/berl"}, []string{"Europe/Berlin"}},
		{[]string{"jobs", "delete", "shop.pack", "--runs", ""}, []string{"cancel", "finish"}},
		{[]string{"settings", "debug", ""}, []string{"on", "off"}},
		{[]string{"settings", "debug", "on", ""}, []string{"recurring", "triggered", "all"}},
		{[]string{"jobs", "list", "-o", ""}, []string{"json", "yaml", "name"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish", "powershell"}},
	} {
		if got := completions(t, h.env(), c.args...); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.args, got, c.want)
		}
	}
	if got := completions(t, h.env(), "runs", "list", "--worker", ""); len(got) != 1 || !strings.HasPrefix(got[0], "till") {
		t.Errorf("workers: %q", got)
	}
}

// Without a server, completion offers and prints nothing.
func TestCompleteAlone(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	for _, env := range []map[string]string{{"CARILLON_SERVER": s.URL}, {"CARILLON_SERVER": "nonsense"}} {
		if got := completions(t, env, "jobs", "show", ""); got != nil {
			t.Errorf("got %q", got)
		}
	}
}

// Each shell gets a script that asks this program.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, errs, code := (call{}).run("completion", shell); code != 0 || !strings.Contains(out, "__complete") {
			t.Errorf("%s: exit code %d: %s", shell, code, errs)
		}
	}
	if _, errs, code := (call{}).run("completion", "csh"); code != 2 || !strings.Contains(errs, "csh") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// Each command has a description and an example, and accepts its examples.
func TestExamples(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s has no description or no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			_, command, is := strings.Cut(strings.TrimSpace(line), "carillon ")
			if !is || strings.ContainsAny(command, "|<>") || strings.HasPrefix(command, "help ") {
				continue
			}
			if problem := parses(split(command)); problem != nil {
				t.Errorf("%s: its example %q: %v", c.CommandPath(), command, problem)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	for _, c := range rootOf(cli.Config{}).Commands() {
		walk(c)
	}
}

// parses returns an error if the flags or the number of arguments of a command line are wrong.
func parses(args []string) error {
	root := rootOf(cli.Config{})
	root.SetOut(new(bytes.Buffer))
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
