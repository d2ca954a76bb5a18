package bubble_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// table reads the rows of a table of docs/retention.md, by its head.
func table(t *testing.T, head string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/retention.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), head+"\n")
	if !found {
		t.Fatalf("the page has no table %q", head)
	}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if strings.Contains(line, "---") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("the table %q has %d rows", head, len(rows))
	}
	return rows
}

// moment reads a time of the page: in January 2000, or in the December before.
func moment(t *testing.T, text string) time.Time {
	t.Helper()
	year := "2000-"
	if strings.HasPrefix(text, "12-") {
		year = "1999-"
	}
	at, err := time.Parse("2006-01-02 15:04", year+text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The runs of a backfill are those that its page states.
func TestBackfillsAsTheirPageStates(t *testing.T) {
	tests.Long(t)
	rows := table(t, "| from | until before | replay | runs made | left out |")
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		c.Start(worker.Config{}, nightly(&busy{}, jobs.Options{}))
		c.Pass(90 * time.Minute)
		c.Do(kernel.Pause{Key: "nightly"})
		c.PassUntil(day(1).Add(10*time.Hour + 30*time.Minute))
		c.Do(kernel.Resume{Key: "nightly"})
		for _, row := range rows {
			done, err := opsOf(c).Backfill(t.Context(), person, ops.Backfill{Key: "nightly", From: moment(t, row[0]), To: moment(t, row[1]), Replay: row[2] == "yes"})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(done.Runs, done.Had); got != row[3]+" "+row[4] {
				t.Errorf("from %s to %s, replay %q: %s, the page states %s %s", row[0], row[1], row[2], got, row[3], row[4])
			}
			c.Pass(time.Minute)
		}
	})
}

// The end of a pause treats missed due times as its page states.
func TestResumesAsTheirPageStates(t *testing.T) {
	tests.Long(t)
	for _, row := range table(t, "| missed | due times that get their runs | those that the ledger still names |") {
		bubble.Run(t, func(t *testing.T, c *bubble.System) {
			c.Start(worker.Config{}, nightly(&busy{}, jobs.Options{}))
			c.Pass(90 * time.Minute)
			c.Do(kernel.Pause{Key: "nightly"})
			c.PassUntil(day(1).Add(5*time.Hour + 30*time.Minute))
			if _, _, err := opsOf(c).Resume(t.Context(), person, "nightly", ops.Resumption{Missed: ops.Missed(row[0])}); err != nil {
				t.Fatal(err)
			}
			c.Pass(time.Minute)
			var made []string
			for _, run := range c.Runs("nightly")[1:] {
				made = append(made, run.Due.Format("15:04"))
			}
			if len(made) == 0 {
				made = []string{"none"}
			}
			left := uint64(0)
			for _, m := range c.Missed("nightly") {
				left += m.Count
			}
			if !slices.Equal(made, strings.Fields(row[1])) || fmt.Sprint(left) != row[2] {
				t.Errorf("missed %s: runs of %v, and %d are left; the page states %s and %s", row[0], made, left, row[1], row[2])
			}
		})
	}
}
