package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Membership is a list of members in memory: of several control planes in one process.
type Membership struct {
	mu      sync.Mutex
	members map[string]present
}

// present is a member with the end of its lease.
type present struct {
	metastore.Member
	until time.Time
}

var _ metastore.Membership = (*Membership)(nil)

// Stay renews a member's lease.
func (c *Membership) Stay(_ context.Context, m metastore.Member, lease time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	m.Since = now
	if was := c.members[m.Node]; was.Nonce == m.Nonce && was.until.After(now) {
		m.Since = was.Since
	}
	if c.members == nil {
		c.members = map[string]present{}
	}
	c.members[m.Node] = present{m, now.Add(lease)}
	return nil
}

// Leave removes a member.
func (c *Membership) Leave(_ context.Context, m metastore.Member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[m.Node].Nonce == m.Nonce {
		delete(c.members, m.Node)
	}
	return nil
}

// Members lists the members.
func (c *Membership) Members(context.Context) (list []metastore.Member, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, p := range c.members {
		if p.until.After(now) {
			list = append(list, p.Member)
		}
	}
	slices.SortFunc(list, func(a, b metastore.Member) int { return cmp.Compare(a.Node, b.Node) })
	return list, nil
}
