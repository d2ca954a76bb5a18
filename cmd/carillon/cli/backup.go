package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/backup"
)

func (a *asker) backupCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{Use: "backup <file>", Short: "Back up a scheduler", Args: one("the file to write"),
		Long: "Back up a running scheduler: jobs, live and finished runs, the audit log, tokens, logs. The file appears once it is complete\n" +
			"and on disk; an existing file is never overwritten. Protect it like the store itself. With --data: back up a stopped server.\n\n" +
			"For a scheduler whose store is a database, the error names the database's own backup command.",
		Example: lines("carillon backup /var/backups/carillon-2026-11-21.backup", "carillon backup --data /var/lib/carillon now.backup"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			write := func(to io.Writer) error { return a.link.download(ctx, "/backup", nil, to) }
			if dir != "" {
				if a.Stopped == nil {
					return kernel.Invalid("--data is not supported by this program")
				}
				content, done, err := a.Stopped(dir)
				if err != nil {
					return err
				}
				write = func(to io.Writer) error {
					_, err := backup.Write(ctx, to, backup.Head{At: a.Now().UTC(), Version: a.Version, From: "directory " + dir}, content)
					return errors.Join(err, done.Close())
				}
			}
			f, err := backup.Save(ctx, args[0], write)
			if err != nil {
				return err
			}
			var size int64
			if info, err := os.Stat(args[0]); err == nil {
				size = info.Size()
			}
			raw, err := json.Marshal(map[string]any{"file": args[0], "bytes": size, "at": f.At, "from": f.From, "holds": f.Account.Counts()})
			if err != nil {
				return err
			}
			return a.show(view{raw: raw, names: args, text: func(p *page) {
				p.line("%s: %s, as of %s", args[0], bytesText(size), f.At.Local().Format(time.DateTime))
				p.line("%s", f.Account)
			}})
		})}
	c.Flags().StringVar(&dir, "data", "", "back up the data directory of a stopped server")
	return c
}
