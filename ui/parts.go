package ui

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// mostParts is how many runs of a broadcast a line of a list expands to. For larger ones it shows their number.
const mostParts = 100

// whole reports whether a filter selects runs, and not single parts of broadcasts.
func (f runFilter) whole() bool {
	return f.State == "" && f.Worker == "" && f.Parent == "" && f.Code == ""
}

// fold merges the parts of a broadcast into one line, at the first of them.
func (u *UI) fold(ctx context.Context, who ops.Who, rows []runRow) ([]runRow, error) {
	of := map[jobs.ID][]*kernel.Run{}
	for _, r := range rows {
		if group := groupOf(r.Run); !group.IsZero() {
			of[group] = append(of[group], r.Run)
		}
	}
	if len(of) == 0 {
		return rows, nil
	}
	var folded []runRow
	seen := map[jobs.ID]bool{}
	for _, r := range rows {
		group := groupOf(r.Run)
		if group.IsZero() {
			folded = append(folded, r)
			continue
		}
		if seen[group] {
			continue
		}
		seen[group] = true
		list, total := of[group], int(r.Place.Total)
		if len(list) < total && total <= mostParts { // the others are on other pages
			page, err := u.ops.Runs(ctx, who, metastore.RunQuery{Parent: group, Limit: mostParts})
			if err != nil {
				return nil, err
			}
			for _, run := range page.Runs {
				if groupOf(run) == group && !slices.ContainsFunc(list, func(o *kernel.Run) bool { return o.ID == run.ID }) {
					list = append(list, run)
				}
			}
			head, err := u.ops.Run(ctx, who, group)
			if err != nil && jobs.CodeOf(err) != jobs.NotFound {
				return nil, err
			}
			if err == nil && !slices.ContainsFunc(list, func(o *kernel.Run) bool { return o.ID == group }) {
				list = append(list, head)
			}
		}
		r.Group, r.Of = group, total
		if total <= mostParts {
			slices.SortFunc(list, func(a, b *kernel.Run) int { return int(a.Place.Index) - int(b.Place.Index) })
			r.Parts = list
			for _, run := range list {
				if run.State == jobs.Succeeded {
					r.Done++
				}
			}
		}
		folded = append(folded, r)
	}
	return folded, nil
}

// groupOf returns the broadcast of a run, or zero.
func groupOf(run *kernel.Run) jobs.ID {
	if run.Place == nil || run.Place.Total < 2 {
		return jobs.ID{}
	}
	return run.Place.Group
}
