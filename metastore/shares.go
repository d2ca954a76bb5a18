package metastore

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Owner is whose history finished runs are: the app's that their job belongs to now.
type Owner struct {
	Tenant jobs.Tenant
	App    string // "" = a job that no row knows any more
}

// Excess returns by how many bytes owners exceed their shares of the most that all may take together: tenants share
// it, and the apps of a tenant what that gets. So no tenant's history is purged for another's, and no app's.
func Excess(sizes map[Owner]int64, most int64) map[Owner]int64 {
	tenants, apps := map[jobs.Tenant]int64{}, map[jobs.Tenant]map[Owner]int64{}
	for of, size := range sizes {
		if apps[of.Tenant] == nil {
			apps[of.Tenant] = map[Owner]int64{}
		}
		tenants[of.Tenant] += size
		apps[of.Tenant][of] = size
	}
	excess, each := map[Owner]int64{}, level(tenants, most)
	for tenant, size := range tenants {
		part := level(apps[tenant], min(size, each))
		for of, size := range apps[tenant] {
			if size > part {
				excess[of] = size - part
			}
		}
	}
	return excess
}

// level is the largest size that each may have at most so that all take no more than most: what the small ones leave,
// the large ones share (max-min fairness).
func level[K comparable](sizes map[K]int64, most int64) int64 {
	ascending := make([]int64, 0, len(sizes))
	for _, size := range sizes {
		ascending = append(ascending, size)
	}
	slices.SortFunc(ascending, cmp.Compare[int64])
	most = max(0, most)
	for i, size := range ascending {
		part := most / int64(len(ascending)-i)
		if size > part {
			return part
		}
		most -= size
	}
	return slices.Max(append(ascending, 0)) // all of them fit
}
