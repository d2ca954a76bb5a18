//go:build linux

package processtest

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each situation is on the page, in the table of running nodes and in that of starting ones, for each store, and the page
// has no others. What a row says is right by the same judge as when it was played: the alerts, too.
func TestThePageHasEachSituation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/when-the-store-is-away.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(string(page), "\n## A node that runs\n")
	running, starting, ok := strings.Cut(tables, "\n## A node that starts\n")
	if !ok {
		t.Fatal("the page lacks a heading of a table")
	}
	starting, _, _ = strings.Cut(starting, "\n## ")
	t.Run("running", func(t *testing.T) { samePage(t, running, func(k *situation) outcome { return k.running }) })
	t.Run("starting", func(t *testing.T) { samePage(t, starting, func(k *situation) outcome { return k.starting }) })
}

func samePage(t *testing.T, table string, of func(*situation) outcome) {
	rows := map[string]*seen{}
	for line := range strings.Lines(table) {
		if cells := cellsOf(line); len(cells) == 7 && cells[0] != "situation" && cells[0][0] != '-' {
			rows[cells[0]+", "+cells[1]] = seenIn(t, cells[2:])
		}
	}
	for _, k := range situations {
		for _, store := range k.stores {
			want, name := of(&k), k.name+", "+store
			if want == 0 {
				continue
			}
			t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
				switch row := rows[name]; {
				case row == nil:
					t.Error("the page does not have it")
				case want == ends:
					k.judgeEnd(t, row, store != onRaft && !k.standby)
				default:
					k.judge(t, want, row)
				}
			})
			delete(rows, name)
		}
	}
	for name := range rows {
		t.Errorf("%s is not played", name)
	}
}

// cellsOf are the cells of a row of a table.
func cellsOf(row string) (cells []string) {
	row = strings.ReplaceAll(strings.TrimSpace(row), `\|`, "/")
	for cell := range strings.SplitSeq(strings.Trim(row, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// seenIn is what a row says: what [seen.String] writes.
func seenIn(t *testing.T, cells []string) *seen {
	t.Helper()
	var numbers []int
	for _, field := range strings.FieldsFunc(strings.Join(cells[:3], " "), func(r rune) bool { return r == ' ' || r == ',' }) {
		if n, err := strconv.Atoi(field); err == nil {
			numbers = append(numbers, n)
		}
	}
	o := &seen{log: strings.Trim(cells[4], "`"), alerts: strings.FieldsFunc(cells[3], func(r rune) bool { return r == ' ' || r == ',' })}
	switch {
	case strings.HasPrefix(cells[0], "exit code") && len(numbers) == 1:
		o.code = numbers[0]
	case len(numbers) == 5:
		o.live, o.ready, o.leads, o.read, o.page, o.write = http.StatusOK, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	default:
		t.Errorf("a row with %q", cells)
	}
	return o
}

// The page is read as it is written.
func TestARowIsReadAsWritten(t *testing.T) {
	for _, o := range []seen{
		{live: 200, ready: 503, leads: 502, read: 501, page: 500, write: 504, alerts: []string{"NoLeader", "NotReady"}, log: "a / b"},
		{live: 200, ready: 200, leads: 200, read: 200, page: 200, write: 201},
		{code: 6, alerts: []string{"NodeDown"}, log: "carillon: ended"},
	} {
		is := seenIn(t, cellsOf("| "+o.String()+" |"))
		if is.String() != o.String() || is.live != o.live || !slices.Equal(is.alerts, o.alerts) {
			t.Errorf("%+v is read as %+v", o, is)
		}
	}
}
