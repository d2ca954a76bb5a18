package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) purgeCommand() *cobra.Command {
	var job, before, reason string
	var keep int
	var all, dry bool
	c := &cobra.Command{Use: "purge", Short: "Purge finished runs", Args: none,
		Long: "Purge finished runs with their logs and results. Hourly counts and live runs are kept. The scheduler purges by itself,\n" +
			"by the settings of each job: keepFor, keepSucceeded and keepOthers.",
		Example: lines("carillon purge --job shop.pack --before 5d --dry-run", "carillon purge --job shop.pack --keep 10", "carillon purge --all --before 30d --reason 'audit finished'")}
	c.Flags().StringVar(&job, "job", "", "runs of this job, which may have been deleted")
	c.Flags().BoolVar(&all, "all", false, "runs of all jobs")
	c.Flags().StringVar(&before, "before", "", "runs that ended before: an age such as 5d, or a time (default: all finished runs)")
	c.Flags().IntVar(&keep, "keep", 0, "keep this many of the job's newest runs")
	c.Flags().BoolVar(&dry, "dry-run", false, "show how many runs would be purged")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	complete(c, "job", a.completeKeys)
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		if (job == "") != all {
			return kernel.Invalid("give a job (--job %s), or --all", cmp.Or(job, "KEY"))
		}
		body := map[string]any{"dryRun": dry}
		if job != "" {
			body["job"] = job
		}
		if keep != 0 {
			body["keep"] = keep
		}
		if before != "" {
			at, err := readAge("--before", before, a.Now())
			if err != nil {
				return err
			}
			body["before"] = at
		}
		got, err := a.link.do(ctx, request{method: "POST", path: "/purge", body: body, reason: reason})
		if err != nil {
			return err
		}
		var done api.Purged
		if err := got.into(&done); err != nil {
			return err
		}
		return a.show(view{raw: got.raw, text: func(p *page) {
			p.line("%s", purgedText(&done, p.moment(&done.Before)))
		}})
	})
	return c
}

func purgedText(done *api.Purged, before string) string {
	verb, more, plural := "purged", "", "s"
	if done.DryRun {
		verb = "would purge"
	}
	if done.More {
		more = "more than "
	} else if done.Runs == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s %s%d run%s that ended before %s", verb, more, done.Runs, plural, before)
}

func keptText(p *page, k *api.Kept) string {
	text := bytesText(k.Bytes)
	if k.MaxBytes > 0 {
		text += " of at most " + bytesText(k.MaxBytes)
	}
	if k.PurgedAt != nil {
		text += fmt.Sprintf("; %d purged %s", k.Purged, p.ago(k.PurgedAt))
	}
	return text
}

// readAge parses an age or a past time.
func readAge(flag, text string, now time.Time) (time.Time, error) {
	if d, err := readSpan(flag, text); err == nil {
		return now.Add(-d), nil
	}
	at, _, ok := momentOf(text, now)
	if !ok || at.After(now) {
		return at, kernel.Invalid("invalid %s %.40q: want an age such as 5d, or a past time such as 2026-11-01 or '2026-11-01 09:00'", flag, text)
	}
	return at, nil
}
