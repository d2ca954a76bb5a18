// Package cli has the client commands of carillon: one for each verb, sent over HTTP.
//
// It is not promised to programs outside this module.
//
// Where to start: [Commands]. Each file has the commands of one resource (jobs.go, runs.go, settings.go ...). Only
// link.go sends HTTP, only output.go writes tables, JSON and YAML, and exit.go has the exit codes.
//
// Sharp edges: -o json prints the API's response unchanged, with fields that this version does not know. Texts from
// jobs and users (errors, log lines, reasons) are printed without their control characters.
package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures the commands. The zero value works.
type Config struct {
	// Terminal reports whether a stream is a terminal; nil means never.
	Terminal func(stream any) bool
	// Now is the clock that relative times are counted from; nil means time.Now.
	Now func() time.Time
	// Stopped opens the data directory of a stopped server for a backup; nil means that only running servers can be
	// backed up.
	Stopped func(dir string) (metastore.Content, io.Closer, error)
	// Version is the program's.
	Version string
	// Getenv reads the environment; nil means os.Getenv.
	Getenv func(string) string
}

// The default address of a scheduler, and the environment variables that override it.
const (
	defaultServer = "http://127.0.0.1:8080"
	envServer     = "CARILLON_SERVER"
	envToken      = "CARILLON_TOKEN"
	envTokenFile  = "CARILLON_TOKEN_FILE"
	envNoColor    = "NO_COLOR"
)

// asker is one invocation of the program: the server it calls and how it prints responses.
type asker struct {
	Config
	server, tokenFile, caFile, token string
	timeout                          time.Duration // of one request
	format                           string        // "" = a table
	quiet                            bool

	in        io.Reader
	out, errs io.Writer
	answers   *bufio.Reader // buffers in, once a question has been asked
	link      *link         // once it is open
}

// Commands returns the client commands, and completion and help topics, for the program's root command.
func Commands(c Config) (verbs, others []*cobra.Command) {
	if c.Terminal == nil {
		c.Terminal = func(any) bool { return false }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	a := &asker{Config: c}
	verbs = []*cobra.Command{a.overviewCommand(), a.jobsCommand(), a.runsCommand(), a.workersCommand(), a.appsCommand(), a.calendarsCommand(), a.outboxCommand(), a.forecastCommand(), a.explainCommand(), a.settingsCommand(), a.purgeCommand(),
		a.tokensCommand(), a.tenantsCommand(), a.auditCommand(), a.ledgerCommand(), a.alarmsCommand(), a.batchesCommand(), a.clusterCommand(), a.backupCommand(), a.whoamiCommand(),
		a.applyCommand(), a.diffCommand(), a.exportCommand(), a.importCommand()}
	for _, c := range verbs {
		a.addFlags(c)
		c.SetFlagErrorFunc(wrongFlag)
	}
	return verbs, []*cobra.Command{completionCommand(), exitCodesTopic()}
}

// addFlags adds the common flags to a command and its subcommands.
func (a *asker) addFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&a.server, "server", "", "URL of the scheduler (default $"+envServer+", else "+defaultServer+")")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the token (default: $"+envToken+", else the file $"+envTokenFile+")")
	f.StringVar(&a.caFile, "ca-file", "", "PEM file of certificate authorities for the server, instead of the system's (default: $CARILLON_CA_FILE)")
	f.DurationVar(&a.timeout, "request-timeout", 10*time.Second, "timeout of one request ($CARILLON_REQUEST_TIMEOUT overrides the default)")
	f.StringVarP(&a.format, "output", "o", "", "json, yaml or name, instead of a table (default: $CARILLON_OUTPUT)")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print nothing; use the exit code")
	f.StringVar(&a.token, "token", "", "")
	must(f.MarkHidden("token")) // it exists so that open can refuse it with a reason
	complete(c, "output", choices("json", "yaml", "name"))
}

// does wraps fn as a command's body: it reads the common flags, and cancels fn when the program gets a signal.
func (a *asker) does(fn func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		a.in, a.out, a.errs = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
		if err := a.readEnv(c); err != nil {
			return err
		}
		if !slices.Contains([]string{"", "json", "yaml", "name"}, a.format) {
			return kernel.Invalid("invalid -o %.20q: want json, yaml or name", a.format)
		}
		if err := a.open(); err != nil {
			return err
		}
		if a.link.inTheClear() {
			a.remark("warning: the token is sent to %s without TLS: use https", a.link.base)
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err := fn(ctx, args)
		if err != nil && ctx.Err() != nil {
			return &Exit{Code: Interrupted}
		}
		return err
	}
}

// readEnv sets flags that are not given from the environment. Server and token have rules of their own.
func (a *asker) readEnv(c *cobra.Command) error {
	for name, variable := range map[string]string{"ca-file": "CARILLON_CA_FILE", "request-timeout": "CARILLON_REQUEST_TIMEOUT", "output": "CARILLON_OUTPUT"} {
		text := a.Getenv(variable)
		if text == "" || c.Flags().Changed(name) {
			continue
		}
		if err := c.Flags().Lookup(name).Value.Set(text); err != nil {
			return kernel.Invalid("invalid $%s %.60q: %v", variable, text, err)
		}
	}
	return nil
}

var flagName = regexp.MustCompile(`(?m)^.{0,6}--([a-z-]+)`)

// wrongFlag explains an error about a flag and suggests the nearest one.
func wrongFlag(c *cobra.Command, err error) error {
	if name, is := strings.CutPrefix(err.Error(), "unknown flag: --"); is {
		known := map[string]string{}
		for _, f := range flagName.FindAllStringSubmatch(c.Flags().FlagUsages(), -1) { // without the hidden ones
			known[f[1]] = ""
		}
		if meant, far := plain.Closest(name, known); far <= plain.Slip {
			return kernel.Invalid("%s has no flag --%s; did you mean --%s?", c.CommandPath(), name, meant)
		}
		return kernel.Invalid("%s has no flag --%s; see %s --help", c.CommandPath(), name, c.CommandPath())
	}
	text, _, _ := strings.Cut(err.Error(), ": strconv.")
	return kernel.Invalid("%s; see %s --help", text, c.CommandPath())
}

// group returns a command that only has subcommands.
func group(use, short, example string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Example: example,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			known := map[string]string{}
			for _, sub := range c.Commands() {
				known[sub.Name()] = ""
			}
			if meant, far := plain.Closest(args[0], known); far <= plain.Slip {
				return kernel.Invalid("there is no command %q; did you mean %s %s?", c.CommandPath()+" "+args[0], c.CommandPath(), meant)
			}
			return kernel.Invalid("there is no command %q; see %s --help", c.CommandPath()+" "+args[0], c.CommandPath())
		}}
	c.AddCommand(subs...)
	return c
}

// one requires exactly one argument, none forbids arguments.
func one(what string) cobra.PositionalArgs { return counted(what, 1, 1) }

func none(c *cobra.Command, args []string) error { return counted("", 0, 0)(c, args) }

func counted(what string, least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return kernel.Invalid("%s needs %s; see %s --help", c.CommandPath(), what, c.CommandPath())
		case most == 0 && len(args) > 0:
			return kernel.Invalid("%s takes no arguments, but %q is given", c.CommandPath(), args[0])
		case most > 0 && len(args) > most:
			return kernel.Invalid("%s takes %s, but %q is given as well", c.CommandPath(), what, args[most])
		}
		return nil
	}
}

// lines formats the examples of a command.
func lines(examples ...string) string { return "  " + strings.Join(examples, "\n  ") }

// must panics on errors that only a bug can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
