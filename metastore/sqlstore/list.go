package sqlstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Lists of runs: live ones, newest first, then settled ones, last settled first. A page is a walk down the index that
// fits the query best. It filters by the other conditions on the way, and a walk over too many rows stops early and
// reports how far it came.

// mostRows is how many rows one query may read.
const mostRows = 20_000

// Runs lists runs.
func (s *Store) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	at, err := parseCursor(q.Cursor)
	if err != nil {
		return metastore.Page{}, err
	}
	size := q.Size()
	var page metastore.Page
	if at.live {
		page, err = s.walk(ctx, &q, at, size)
		if err != nil || page.Next != "" {
			return page, err
		}
		at = cursor{}
	}
	if kernel.ValidState(q.State) && !q.State.Final() {
		return page, nil
	}
	live := page.Runs
	rest, err := s.walk(ctx, &q, at, max(1, size-len(live)))
	if err != nil {
		return page, err
	}
	if len(live) >= size { // only whether there is any
		if len(rest.Runs) > 0 || rest.Next != "" {
			page.Next = cursor{}.String()
		}
		return page, nil
	}
	page.Runs, page.Next, page.Searched = append(live, rest.Runs...), rest.Next, rest.Searched
	return page, nil
}

// walk reads one page of one of the two parts.
func (s *Store) walk(ctx context.Context, q *metastore.RunQuery, at cursor, size int) (metastore.Page, error) {
	order, member := "settled", "settled IS NOT NULL"
	if at.live {
		order, member = s.dialect.liveSequence, s.dialect.live
	}
	where, args := []string{"tenant = ?", member}, []any{string(q.Tenant)}
	if at.number > 0 {
		where, args = append(where, order+" < ?"), append(args, at.number)
	}
	if at.live && !q.From.IsZero() { // in the order of creation
		where, args = append(where, "created >= ?"), append(args, nanos(q.From))
	}
	// The best index: of those that the query names, the one with the fewest rows.
	switch {
	case !q.Parent.IsZero():
		where, args = append(where, "parent = ?"), append(args, bytesOf(q.Parent))
	case q.Worker != "":
		where, args = append(where, "worker = ?"), append(args, q.Worker)
	case kernel.ValidState(q.State) && (at.live || q.State != jobs.Succeeded):
		where, args = append(where, "state = ?"), append(args, int64(q.State))
		if !at.live {
			where = append(where, "state <> 4")
		}
	case q.Job != "":
		where, args = append(where, "job = ?"), append(args, string(q.Job))
	}
	if q.Worker != "" {
		where = append(where, "worker <> ''")
	}
	inner := "SELECT " + order + " AS number, body FROM carillon_runs WHERE " + strings.Join(where, " AND ") + " ORDER BY " + order + " DESC LIMIT ?"
	var page metastore.Page
	looked := 0
	var last int64
	var lastRun *kernel.Run
	err := s.query(ctx, "list runs", func(scan func(...any) error) error {
		var number int64
		var body []byte
		if err := scan(&number, &body); err != nil {
			return err
		}
		run, err := decode[*kernel.Run](body)
		if err != nil {
			return err
		}
		looked++
		if !at.live && q.Past(run) {
			return errEnough
		}
		if !q.Matches(run) {
			last, lastRun = number, run
			return nil
		}
		if len(page.Runs) == size {
			page.Next = cursor{live: at.live, number: last}.String()
			return errEnough
		}
		page.Runs = append(page.Runs, run)
		last, lastRun = number, run
		return nil
	}, inner, append(args, mostRows)...)
	if err != nil {
		return page, err
	}
	if looked == mostRows && page.Next == "" {
		page.Next, page.Searched = cursor{live: at.live, number: last}.String(), lastRun.Created
		if !at.live {
			page.Searched = lastRun.Ended
		}
	}
	return page, nil
}

// cursor is where a page ended. Its zero value is the beginning of the settled runs.
type cursor struct {
	live   bool
	number int64 // of the last run of the page; 0 = the beginning
}

func (c cursor) String() string {
	text := strconv.FormatInt(c.number, 36)
	if c.live {
		return "l" + text
	}
	return "a" + text
}

func parseCursor(text string) (cursor, error) {
	if text == "" {
		return cursor{live: true}, nil
	}
	n, err := strconv.ParseInt(text[1:], 36, 64)
	if err != nil || n < 0 || text[0] != 'l' && text[0] != 'a' {
		return cursor{}, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous page", text)
	}
	return cursor{live: text[0] == 'l', number: n}, nil
}
