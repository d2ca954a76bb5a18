package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/backup"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
)

// Commands on a store that no server uses: copy it to another, or restore a backup.

// mover is one move.
type mover struct {
	out, errs io.Writer
	reported  time.Time // when progress was printed last
}

func newStore() *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Copy a scheduler's data to another kind of store", Example: "  carillon store copy --from /var/lib/carillon --to postgres://carillon@db/carillon", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var from, to, fromSecret, toSecret string
	carry := &cobra.Command{
		Use:   "copy",
		Short: "Copy a store to an empty one, and compare",
		Long: "Copy the store of a stopped scheduler to an empty one: jobs and their schedules' progress, live and finished runs, missed due\n" +
			"times, counts, tokens, sessions, the audit log, and log lines. The copy is read again and compared before it becomes valid,\n" +
			"so an interrupted copy leaves nothing: start it again. The source does not change.\n\n" +
			"A store is a data directory, a file of carillon backup (only --from), or the URL of a database.",
		Example: "  carillon store copy --from /var/lib/carillon --to postgres://carillon@db/carillon --to-password-file db.password\n" +
			"  carillon store copy --from mariadb://carillon@db/carillon --to ./moved",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			m := &mover{out: c.OutOrStdout(), errs: c.ErrOrStderr()}
			return stoppable(c, func(ctx context.Context) error {
				if from == "" || to == "" {
					return usage("store copy needs --from and --to: a data directory, a backup, or the URL of a database")
				}
				source, err := openPlace(ctx, "--from", from, fromSecret)
				if err != nil {
					return err
				}
				fill, err := fillOf("--to", to, toSecret)
				if err != nil {
					return errors.Join(err, source.Close())
				}
				account, err := metastore.Carry(ctx, source, fill, m.progress)
				if err = errors.Join(err, source.Close()); err != nil {
					return err
				}
				_, err = fmt.Fprintf(m.out, "copied and compared: %s\nStart the server with the new store, never again with the old one.\n", account)
				return err
			})
		},
	}
	carry.Flags().StringVar(&from, "from", "", "source: a data directory, a backup, postgres://... or mariadb://...")
	carry.Flags().StringVar(&to, "to", "", "target: an empty or missing directory, or the URL of a database without a store")
	carry.Flags().StringVar(&fromSecret, "from-password-file", "", "file with the source database's password")
	carry.Flags().StringVar(&toSecret, "to-password-file", "", "file with the target database's password")
	c.AddCommand(carry)
	return c
}

// gaps are the policies for due times since a backup.
var gaps = map[string]jobs.Misfire{"policy": "", "skip": jobs.MisfireSkip, "once": jobs.MisfireOnce, "all": jobs.MisfireAll}

func newRestore() *cobra.Command {
	var data, gap string
	c := &cobra.Command{
		Use:   "restore <file>",
		Short: "Restore a backup to a new data directory",
		Long: "Restore a file of carillon backup to a new data directory. It is a new cluster of one node: nodes of the old cluster cannot\n" +
			"join it, and the old leader cannot fire in it. Runs that were live in the backup start again.\n\n" +
			"--gap decides about due times since the backup: skip fires none, once fires the newest of each job, all fires all;\n" +
			"policy (the default) applies each job's misfire policy once a server runs.",
		Example: "  carillon restore carillon.backup --data /var/lib/carillon\n  carillon restore carillon.backup --data /var/lib/carillon --gap skip",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("restore takes one file, made by carillon backup; see carillon restore --help")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			m := &mover{out: c.OutOrStdout(), errs: c.ErrOrStderr()}
			misfire, known := gaps[gap]
			switch {
			case !known:
				return usage("invalid --gap %.20q: want policy, skip, once or all", gap)
			case data == "":
				return usage("restore needs --data: the directory to create")
			}
			return stoppable(c, func(ctx context.Context) error { return m.restore(ctx, args[0], data, misfire) })
		},
	}
	c.Flags().StringVar(&data, "data", "", "data directory to create: empty or missing")
	c.Flags().StringVar(&gap, "gap", "policy", "due times since the backup: policy, skip, once or all")
	return c
}

func (m *mover) restore(ctx context.Context, file, data string, gap jobs.Misfire) error {
	from, err := backup.Open(ctx, file)
	if err != nil {
		return err
	}
	fill, err := fillOf("--data", data, "")
	if err != nil {
		return err
	}
	account, err := metastore.Carry(ctx, from, fill, m.progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(m.out, "restored in %s, as of %s: %s\n", data, from.At.Local().Format(time.DateTime), account)
	if gap == "" {
		_, err := fmt.Fprintln(m.out, "each job's misfire policy decides about due times since then, once a server runs")
		return err
	}
	fired, missed, err := decideGap(ctx, filepath.Join(data, raftstore.RowsFolder), gap)
	if err != nil {
		return fmt.Errorf("decide about due times since the backup: %w; delete %s and restore again", err, data)
	}
	_, err = fmt.Fprintf(m.out, "of the due times since then, %d became runs and %d are in the ledger as missed\n", fired, missed)
	return err
}

// decideGap leads briefly, to decide about all due times up to now.
func decideGap(ctx context.Context, dir string, gap jobs.Misfire) (fired int, missed uint64, err error) {
	s, err := raftstore.Open(raftstore.Config{Dir: dir, Logs: hashicorp.Kinds(), Node: "restore"})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	state, err := s.State(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, term := time.Now(), state.Term+1
	lead := kernel.Envelope{ID: jobs.NewID(now), Tenant: jobs.DefaultTenant, Actor: "leader:restore", Command: kernel.Lead{Term: term, Node: "restore"}}
	if err := s.Apply(ctx, []kernel.Envelope{lead})[0].Err; err != nil {
		return 0, 0, err
	}
	return controlplane.CatchUp(ctx, s, term, gap, now)
}

// stoppable ends what it does at a signal.
func stoppable(c *cobra.Command, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := do(ctx)
	if err != nil && ctx.Err() != nil && c.Context().Err() == nil {
		return &cli.Exit{Code: interrupted, Text: fmt.Sprintf("stopped: %v", err)}
	}
	return err
}

// progressEvery is the interval of progress lines.
const progressEvery = 2 * time.Second

func (m *mover) progress(s metastore.Step) {
	if now := time.Now(); now.Sub(m.reported) > progressEvery {
		if !m.reported.IsZero() {
			fmt.Fprintf(m.errs, "%d rows %s\n", s.Rows, s.What)
		}
		m.reported = now
	}
}

// place is content that can be closed.
type place struct {
	metastore.Content
	io.Closer
}

// noCloser has nothing to close.
type noCloser struct{}

func (noCloser) Close() error { return nil }

// databaseAt reports whether where is the URL of a database, and adds the password of a file to it.
func databaseAt(flag, where, secret string) (string, bool, error) {
	u, err := url.Parse(where)
	if err != nil || !slices.Contains([]string{"postgres", "postgresql", "mariadb", "mysql"}, u.Scheme) {
		if strings.Contains(where, "://") {
			return "", false, usage("invalid %s: want a directory, or a URL such as postgres://carillon@db/carillon or mariadb://carillon@db/carillon", flag)
		}
		if secret != "" {
			return "", false, usage("%s-password-file needs a database as %s", flag, flag)
		}
		return "", false, nil
	}
	if hasPassword(u) {
		return "", false, usage("%s has a password, which other users of this machine can read: put it into a file and use %s-password-file", flag, flag)
	}
	if secret != "" {
		password, err := secretIn(secret)
		if err != nil {
			return "", false, err
		}
		u.User = url.UserPassword(u.User.Username(), password)
	}
	return u.String(), true, nil
}

// openPlace opens the source of a copy.
func openPlace(ctx context.Context, flag, where, secret string) (*place, error) {
	database, is, err := databaseAt(flag, where, secret)
	switch {
	case err != nil:
		return nil, err
	case is:
		f, err := sqlstore.Freeze(ctx, sqlstore.Config{URL: database})
		if err != nil {
			return nil, err
		}
		return &place{f, f}, nil
	}
	info, err := os.Stat(where)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	if info.IsDir() {
		content, closer, err := openStopped(where)
		if err != nil {
			return nil, err
		}
		return &place{content, closer}, nil
	}
	f, err := backup.Open(ctx, where)
	if err != nil {
		return nil, err
	}
	return &place{f, noCloser{}}, nil
}

// openStopped opens the data directory of a stopped server.
func openStopped(dir string) (metastore.Content, io.Closer, error) {
	rows, err := raftstore.RowsIn(dir)
	if err != nil {
		return nil, nil, err
	}
	f, err := raftstore.Freeze(raftstore.Config{Dir: rows, Logs: hashicorp.Kinds()})
	if err != nil {
		return nil, nil, err
	}
	return f, f, nil
}

// fillOf returns how the target of a copy is filled.
func fillOf(flag, where, secret string) (metastore.Fill, error) {
	database, is, err := databaseAt(flag, where, secret)
	switch {
	case err != nil:
		return nil, err
	case is:
		return func(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
			return sqlstore.Fill(ctx, sqlstore.Config{URL: database}, from, check)
		}, nil
	}
	files, err := os.ReadDir(where)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, usage("%s: %v", flag, err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), raftstore.RowsFolder+".") { // an earlier attempt may have left these
			return nil, kernel.Refuse(jobs.Conflict, "directory %s is not empty: want an empty or missing one", where)
		}
	}
	return func(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
		if err := os.MkdirAll(where, 0o700); err != nil {
			return err
		}
		return raftstore.Fill(ctx, raftstore.Config{Dir: filepath.Join(where, raftstore.RowsFolder), Logs: hashicorp.Kinds()}, from, check)
	}, nil
}
