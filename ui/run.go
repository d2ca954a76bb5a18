package ui

import (
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// runPage is all about one run.
type runPage struct {
	runRow
	Most    int // attempts it may need
	Moves   []moveRow
	Lines   []metastore.LogLine
	Cut     bool // there are lines before those
	Args    string
	Result  string
	CanStop bool
	CanRun  bool
}

func (p runPage) title() string { return string(p.Key) }

// moveRow is one line of the history, with how long the run stayed there.
type moveRow struct {
	jobs.Move
	Mark string
	Why  string
	Held time.Duration // until the next move; negative = it is still there
}

// pageLines is how many lines of a log a page shows.
const pageLines = 200

func (u *UI) run(r *http.Request) (string, any, error) {
	ctx, who := r.Context(), u.who(r)
	id, err := jobs.ParseID(r.PathValue("id"))
	if err != nil {
		return "", nil, jobs.Refuse(jobs.NotFound, "there is no such run")
	}
	in, err := u.ops.Instance(ctx, who, id)
	if err != nil {
		return "", nil, err
	}
	p := runPage{runRow: u.runRow(in), Args: pretty(in.Args), Result: pretty(in.Result), Most: in.Terms.Retries + 1,
		CanStop: in.State.May(jobs.Cancelled), CanRun: in.State.Final()}
	for i, m := range in.Moves {
		row := moveRow{Move: m, Mark: marks[m.State], Why: causes[m.Cause], Held: -1}
		if i+1 < len(in.Moves) {
			row.Held = in.Moves[i+1].At.Sub(m.At)
		}
		p.Moves = append(p.Moves, row)
	}
	if p.Lines, p.Cut, err = u.ops.Tail(ctx, who, id, pageLines); err != nil {
		return "", nil, err
	}
	return "run", p, nil
}

func (u *UI) cancel(r *http.Request) (string, error) {
	id, err := jobs.ParseID(r.PathValue("id"))
	if err != nil {
		return "", err
	}
	who := u.who(r)
	who.Reason = r.PostFormValue("reason")
	_, err = u.ops.Cancel(r.Context(), who, id)
	return "/runs/" + id.String(), err
}

func (u *UI) again(r *http.Request) (string, error) {
	id, err := jobs.ParseID(r.PathValue("id"))
	if err != nil {
		return "", err
	}
	made, err := u.ops.Again(r.Context(), u.who(r), id, argsOf(r), "")
	if err != nil {
		return "", err
	}
	return "/runs/" + made.ID.String(), nil
}
