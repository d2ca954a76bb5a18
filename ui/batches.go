package ui

import (
	"net/http"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// batchesPage lists batches of runs.
type batchesPage struct {
	visitor
	List []batchRow
	More bool // there may be older ones
}

type batchRow struct{ *kernel.Batch }

// Runs is the batch as programs have it.
func (b batchRow) Runs() jobs.BatchSummary { return b.View() }

// Final is how many of its runs are final.
func (b batchRow) Final() int { return int(b.Total - b.Live()) }

// State is how far the batch is, with the tone of its tag.
func (b batchRow) State() (words [2]string) {
	switch {
	case !b.Ended.IsZero() && b.Succeeded < b.Total:
		return [2]string{"ended", "warn"}
	case !b.Ended.IsZero():
		return [2]string{"ended", "good"}
	case b.Late:
		return [2]string{"abandoned", "warn"}
	case !b.Closed.IsZero():
		return [2]string{"closed", ""}
	}
	return [2]string{"open", ""}
}

func (u *UI) batches(r *http.Request, v visitor) (answer, error) {
	list, err := u.ops.Batches(r.Context(), v.Who, metastore.MaxPage)
	p := batchesPage{visitor: v, More: len(list) == metastore.MaxPage}
	for _, b := range list {
		p.List = append(p.List, batchRow{b})
	}
	return answer{page: "batches", title: "Batches", data: p}, err
}

func (u *UI) closeBatch(r *http.Request, v visitor) (answer, error) {
	id, err := jobs.ParseID(r.PathValue("id"))
	if err == nil {
		_, err = u.ops.CloseBatch(r.Context(), v.Who, id)
	}
	return answer{next: "/batches"}, err
}
