package cli

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) jobsBackfill() *cobra.Command {
	var from, to, reason, idempotency string
	var parallel, priority int
	var replay, dry bool
	c := &cobra.Command{Use: "backfill <key>", Short: "Backfill past due times", Args: one("the key of a job"),
		Long: "Create runs for a recurring job's past due times, from --from until before --to: while the job was paused or disabled, while\n" +
			"no scheduler ran, or before the job existed. At most 10,000 due times. Due times that have a run are skipped unless --replay\n" +
			"is given. The request is idempotent.\n\nA time is " + pastHelp + ".",
		Example: lines("carillon jobs backfill shop.close-day --from 2026-11-01 --to 2026-11-08 --parallel 2 --dry-run",
			"carillon jobs backfill shop.close-day --from 24h", "carillon jobs backfill shop.close-day --from '2026-11-01 09:00' --to '2026-11-01 18:00' --replay"),
		ValidArgsFunction: a.completeKeys}
	f := c.Flags()
	f.StringVar(&from, "from", "", "start of the range")
	f.StringVar(&to, "to", "", "end of the range, exclusive (default: now)")
	f.IntVar(&parallel, "parallel", 1, "max parallel runs; job limits still apply")
	f.IntVar(&priority, "priority", 0, "of the runs, -100 to 100 (default: one below that of the job)")
	f.BoolVar(&replay, "replay", false, "run due times again that have a run")
	f.BoolVar(&dry, "dry-run", false, "show what would be created; store nothing")
	f.StringVar(&reason, "reason", "", "reason, recorded with the change")
	f.StringVar(&idempotency, "idempotency-key", "", "key that makes the request idempotent (default: a new one)")
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		if from == "" {
			return kernel.Invalid("--from is required: %s", pastHelp)
		}
		now := a.Now() // both ends are relative to one time
		start, err := readPast("--from", from, now)
		if err != nil {
			return err
		}
		body := map[string]any{"from": start, "parallel": parallel}
		if to != "" {
			end, err := readPast("--to", to, now)
			if err != nil {
				return err
			}
			body["to"] = end
		}
		if c.Flags().Changed("priority") {
			body["priority"] = priority
		}
		for name, on := range map[string]bool{"replay": replay, "dryRun": dry} {
			if on {
				body[name] = true
			}
		}
		if idempotency == "" {
			idempotency = rand.Text()
		}
		got, err := a.link.repeat(ctx, request{method: "POST", path: jobPath(args[0]) + "/backfill", key: idempotency, reason: reason, body: body})
		if err != nil {
			return a.meant(ctx, args[0], err)
		}
		var b api.Backfill
		if err := got.into(&b); err != nil {
			return err
		}
		v := view{raw: got.raw, text: func(p *page) { backfillLines(p, &b) }}
		if b.ID != "" {
			v.names = []string{b.ID}
		}
		return a.show(v)
	})
	return c
}

func backfillLines(p *page, b *api.Backfill) {
	did, of := "created", ""
	if b.DryRun {
		did = "would be created"
	}
	if b.Runs > 0 {
		of = ", due from " + p.moment(b.First) + " to " + p.moment(b.Last)
	}
	p.line("runs %s: %d of %d due times%s", did, b.Runs, b.Due, of)
	if b.Had > 0 {
		p.line("skipped: %d that have a run; --replay runs them again", b.Had)
	}
	if b.ID != "" {
		p.line("%s", p.paint(faint, "carillon runs list --parent "+b.ID))
	}
}

// pastHelp lists the forms of a past time.
const pastHelp = "2026-11-01, '2026-11-01 09:00' (local time), RFC 3339, or how long ago: 24h, 7d"

// readPast parses a past time. A day without a time of day begins at midnight.
func readPast(flag, text string, now time.Time) (time.Time, error) {
	text = strings.Join(strings.Fields(text), " ")
	var t time.Time
	if t.UnmarshalText([]byte(text)) == nil {
		return t, nil
	}
	if d, err := readSpan(flag, text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, kernel.Invalid("invalid %s %.40q: want %s", flag, text, pastHelp)
}
