package ui

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// mostShards is how many shards of a broadcast a line of a list opens to. Of larger ones it tells how many there are.
const mostShards = 100

// whole says that a filter asks for runs, and not for single shards of broadcasts.
func (f runFilter) whole() bool {
	return f.State == "" && f.Worker == "" && f.Parent == "" && f.Code == ""
}

// fold makes one line of all shards of a broadcast, in the place of the first of them.
func (u *UI) fold(ctx context.Context, who ops.Who, rows []runRow) ([]runRow, error) {
	of := map[jobs.ID][]*jobs.Instance{}
	for _, r := range rows {
		if group := groupOf(r.Instance); !group.IsZero() {
			of[group] = append(of[group], r.Instance)
		}
	}
	if len(of) == 0 {
		return rows, nil
	}
	var folded []runRow
	seen := map[jobs.ID]bool{}
	for _, r := range rows {
		group := groupOf(r.Instance)
		if group.IsZero() {
			folded = append(folded, r)
			continue
		}
		if seen[group] {
			continue
		}
		seen[group] = true
		list, total := of[group], int(r.Place.Shards)
		if len(list) < total && total <= mostShards { // the others are on other pages
			page, err := u.ops.Instances(ctx, who, metastore.InstanceQuery{Parent: group, Limit: mostShards})
			if err != nil {
				return nil, err
			}
			for _, in := range page.Instances {
				if groupOf(in) == group && !slices.ContainsFunc(list, func(o *jobs.Instance) bool { return o.ID == in.ID }) {
					list = append(list, in)
				}
			}
			head, err := u.ops.Instance(ctx, who, group)
			if err != nil && jobs.CodeOf(err) != jobs.NotFound {
				return nil, err
			}
			if err == nil && !slices.ContainsFunc(list, func(o *jobs.Instance) bool { return o.ID == group }) {
				list = append(list, head)
			}
		}
		r.Group, r.Of = group, total
		if total <= mostShards {
			slices.SortFunc(list, func(a, b *jobs.Instance) int { return int(a.Place.Shard) - int(b.Place.Shard) })
			r.Shards = list
			for _, in := range list {
				if in.State == jobs.Succeeded {
					r.Done++
				}
			}
		}
		folded = append(folded, r)
	}
	return folded, nil
}

// groupOf is the broadcast that a run is a shard of, or zero.
func groupOf(in *jobs.Instance) jobs.ID {
	if in.Place == nil || in.Place.Shards < 2 {
		return jobs.ID{}
	}
	return in.Place.Group
}
