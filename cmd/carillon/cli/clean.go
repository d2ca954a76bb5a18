package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) cleanCommand() *cobra.Command {
	var job, before, reason string
	var keep int
	var all, dry bool
	c := &cobra.Command{Use: "clean", Short: "Clear runs away that are over", Args: none,
		Long: "Clear runs away that are over, with their logs and results. Counts by the hour stay, and live runs are not concerned.\n" +
			"By itself that happens as the settings of each job say: keepFor, keepSucceeded and keepOthers.",
		Example: lines("carillon clean --job shop.pack --before 5d --dry-run", "carillon clean --job shop.pack --keep 10", "carillon clean --all --before 30d --reason 'audit is over'")}
	c.Flags().StringVar(&job, "job", "", "of this job, which may have been deleted")
	c.Flags().BoolVar(&all, "all", false, "of all jobs")
	c.Flags().StringVar(&before, "before", "", "those that ended before: an age such as 5d, or a time (default: all that are over)")
	c.Flags().IntVar(&keep, "keep", 0, "but so many of the job, the newest")
	c.Flags().BoolVar(&dry, "dry-run", false, "only say what would go")
	c.Flags().StringVar(&reason, "reason", "", "why; kept with the change")
	complete(c, "job", a.completeKeys)
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		if (job == "") != all {
			return kernel.Invalid("say of which job (--job %s), or --all", cmp.Or(job, "KEY"))
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
		got, err := a.link.do(ctx, request{method: "POST", path: "/clean", body: body, reason: reason})
		if err != nil {
			return err
		}
		var done api.Cleaned
		if err := got.into(&done); err != nil {
			return err
		}
		return a.say(view{raw: got.raw, text: func(p *page) {
			p.line("%s", cleanedText(&done, p.moment(&done.Before)))
		}})
	})
	return c
}

func cleanedText(done *api.Cleaned, before string) string {
	var b strings.Builder
	if done.More {
		b.WriteString("more than ")
	}
	fmt.Fprintf(&b, "%d run", done.Runs)
	if done.Runs != 1 || done.More {
		b.WriteString("s")
	}
	if done.DryRun {
		b.WriteString(" would go")
	} else {
		b.WriteString(" cleared away")
	}
	return b.String() + ": what ended before " + before
}

func keptText(p *page, k *api.Kept) string {
	text := bytesText(k.Bytes)
	if k.MaxBytes > 0 {
		text += " of at most " + bytesText(k.MaxBytes)
	}
	if k.CleanedAt != nil {
		text += fmt.Sprintf("; %d cleared away %s", k.Cleaned, p.ago(k.CleanedAt))
	}
	return text
}

// readAge reads how long ago, or when.
func readAge(flag, text string, now time.Time) (time.Time, error) {
	if d, err := readSpan(flag, text); err == nil {
		return now.Add(-d), nil
	}
	at, ok := momentOf(text, now)
	if !ok || at.After(now) {
		return at, kernel.Invalid("%s %.40q is neither an age such as 5d nor a time that has passed, such as 2026-11-01 or '2026-11-01 09:00'", flag, text)
	}
	return at, nil
}
