package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/ledgerfile"
)

func (a *asker) ledgerCommand() *cobra.Command {
	return group("ledger", "Prove that each due time had a run or a reason",
		lines("carillon ledger export shop.close-day --from 2026-11-01 > november.jsonl", "carillon ledger verify november.jsonl --key 9f2c..."),
		a.ledgerExport(), a.ledgerKey(), a.ledgerVerify())
}

func (a *asker) ledgerExport() *cobra.Command {
	var from, to string
	var all bool
	c := &cobra.Command{Use: "export [key]", Short: "Export a signed ledger", Args: counted("at most one key of a job", 0, 1),
		Long: "Write a signed ledger of a recurring job, or with --all of all recurring jobs, to standard output: the schedules that each job\n" +
			"had, a line for each due time from --from until before --to with its run or with the reason why there is none, and a\n" +
			"signature. Runs that retention has purged are in no ledger: it contains the time from which on it is complete.\n\nA time is " + pastHelp + ".",
		Example: lines("carillon ledger export shop.close-day --from 2026-11-01 --to 2026-12-01 > november.jsonl", "carillon ledger export --all --from 24h > day.jsonl"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if all == (len(args) == 1) {
				return kernel.Invalid("want the key of a job or --all")
			}
			if from == "" {
				return kernel.Invalid("--from is required: %s", pastHelp)
			}
			q, now := url.Values{}, a.Now()
			if len(args) == 1 {
				q.Set("job", args[0])
			}
			for flag, text := range map[string]string{"from": from, "to": to} {
				if text == "" {
					continue
				}
				t, err := readPast("--"+flag, text, now)
				if err != nil {
					return err
				}
				q.Set(flag, t.UTC().Format(time.RFC3339Nano))
			}
			out := bufio.NewWriter(a.out)
			if err := a.link.download(ctx, "/ledger/export", q, out); err != nil {
				return err
			}
			return out.Flush()
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().BoolVar(&all, "all", false, "all recurring jobs")
	c.Flags().StringVar(&from, "from", "", "start of the range")
	c.Flags().StringVar(&to, "to", "", "end of the range, exclusive (default: now)")
	return c
}

func (a *asker) ledgerKey() *cobra.Command {
	return &cobra.Command{Use: "key", Short: "Show the public key that signs ledgers", Args: none,
		Long:    "Show the public key of the cluster, with which \"carillon ledger verify\" checks signatures. It is made at the first use, and is\nthe same after a restore.",
		Example: lines("carillon ledger key -o name > ledger.key"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/ledger/key", nil)
			if err != nil {
				return err
			}
			var k api.LedgerKey
			if err := got.into(&k); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, names: []string{k.Key}, text: func(p *page) { p.line("%s", k.Key) }})
		})}
}

func (a *asker) ledgerVerify() *cobra.Command {
	var key string
	c := &cobra.Command{Use: "verify <file>", Short: "Verify a signed ledger, offline", Args: one("a file, or - for standard input"),
		Long: "Verify a ledger without a server: its signature and that no line was changed, and that its records are those of the due\n" +
			"times, which are computed again from the schedules in its first line. Due times without a record, records without a due\n" +
			"time, second records and records in a wrong order are listed; the exit code is then 1.",
		Example: lines("carillon ledger verify november.jsonl --key 9f2c..."),
		RunE: a.does(func(_ context.Context, args []string) error {
			if key == "" {
				return kernel.Invalid("--key is required: the public key of the cluster, as \"carillon ledger key\" prints it")
			}
			var r *ledgerfile.Report
			err := a.reading(args[0], func(in io.Reader) (err error) { r, err = ledgerfile.Verify(in, key); return err })
			if err != nil {
				return err
			}
			return a.showLedger(r)
		})}
	c.Flags().StringVar(&key, "key", "", "public key of the cluster")
	return c
}

func (a *asker) showLedger(r *ledgerfile.Report) error {
	problems := r.Problems
	if problems == nil {
		problems = []string{}
	}
	raw, err := json.Marshal(map[string]any{"tenant": r.Header.Tenant, "from": r.Header.From, "to": r.Header.To, "records": r.Records, "proven": r.Proven,
		"purged": r.Purged, "extra": r.Extra, "open": r.Open, "unchecked": r.Unchecked, "problems": problems, "more": r.More})
	if err != nil {
		return err
	}
	err = a.show(view{raw: raw, text: func(p *page) {
		p.line("%s: the signature is right, and no line was changed", r.Summary())
		p.line("%d due times have a run or a reason", r.Proven)
		if r.Purged > 0 {
			p.line("%d due times have no record: they are before the time from which the ledger is complete, and retention may have purged their runs", r.Purged)
		}
		if r.Extra > 0 {
			p.line("%d runs of backfills are for times that were no due times then, or that a range without runs keeps", r.Extra)
		}
		if r.Open > 0 {
			p.line("%d due times were undecided when the ledger was exported", r.Open)
		}
		for _, text := range r.Unchecked {
			p.line("not checked: %s", clean(text))
		}
		for _, text := range problems {
			p.line("%s", clean(text))
		}
		if r.More > 0 {
			p.line("... and %d more", r.More)
		}
	}})
	if err != nil || len(problems) == 0 {
		return err
	}
	return &Exit{Code: Failed, Text: fmt.Sprintf("the ledger has %d problems", len(problems)+r.More)}
}
