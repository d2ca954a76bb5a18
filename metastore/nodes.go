package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Invitations of nodes: a unique key with the digest of a secret. Once it is used it stores the node's id until it
// expires, so that the same node may repeat the request and no other can.

func (c *change) invitation(name string) *kernel.UniqueKey {
	return c.uniqueRow(kernel.InvitationName(name), name)
}

func (c *change) invite(k kernel.Invite) error {
	u := &kernel.UniqueKey{Tenant: c.env.Tenant, Name: kernel.InvitationName(k.Name), Digest: k.Secret, Until: k.Until}
	if row := c.invitation(k.Name); row != nil {
		if row.Digest != k.Secret {
			return kernel.Refuse(jobs.Conflict, "there is an invitation %s: choose another name", k.Name)
		}
		c.effect.Existing = true
		return nil
	}
	if !k.Until.After(c.at) || k.Until.Sub(c.at) > kernel.MaxInvitation {
		return kernel.Invalid("invitation until %s: it must expire after now, within %v", stamp(k.Until), kernel.MaxInvitation)
	}
	c.tx.Put(u)
	c.audit("invitation "+k.Name, nil, fields{"until": k.Until})
	return nil
}

func (c *change) join(k kernel.Join) error {
	row := c.invitation(k.Name)
	switch {
	case row == nil || row.Digest != k.Secret:
		return kernel.Refuse(jobs.Forbidden, "the invitation does not exist or has expired: create a new one")
	case row.ID == k.Node:
		c.effect.Existing = true
		return nil
	case !row.ID.IsZero():
		return kernel.Refuse(jobs.Forbidden, "another node has used the invitation: create a new one")
	}
	used := *row
	used.ID = k.Node
	c.tx.Put(&used)
	c.audit(nodeTarget(k.Called), nil, fields{"id": k.Node.String(), "address": k.Address, "invitation": k.Name})
	return nil
}

// keepMembers is how long a noted answer is not noted again: longer than clients repeat a request.
const keepMembers = 5 * time.Minute

func (c *change) members(k kernel.Members) error {
	name := kernel.MembersName(k.ID)
	if c.uniqueRow(name, k.Did) != nil {
		c.effect.Existing = true
		return nil
	}
	for _, secret := range k.Secrets {
		void := kernel.VoidSecretName(secret)
		switch {
		case k.Did == kernel.NodeRemoved:
			c.tx.Put(&kernel.UniqueKey{Tenant: c.env.Tenant, Name: void, ID: k.ID, Until: c.at.AddDate(100, 0, 0)})
		case k.Did == kernel.NodeJoined && c.uniqueRow(void, void) != nil:
			return kernel.Refuse(jobs.Forbidden, "the cluster secret is void since a node was removed, which may have kept it: "+
				"write a new one to the secret-file of all nodes and restart them, or invite the node (carillon cluster invite)")
		}
	}
	c.tx.Put(&kernel.UniqueKey{Tenant: c.env.Tenant, Name: name, ID: k.ID, Until: c.at.Add(keepMembers)})
	c.auditAs(k.Did, nodeTarget(k.Node), nil, nil)
	return nil
}

func nodeTarget(name string) string {
	if name == "" {
		return "any node"
	}
	return "node " + name
}

// Invited reports whether an invitation is valid for a node at a time. It is a check ahead of the command, which
// decides.
func Invited(tx Tx, k kernel.Join, tenant jobs.Tenant, at time.Time) bool {
	row, _ := tx.Get(kernel.UniqueRef(tenant, kernel.InvitationName(k.Name))).(*kernel.UniqueKey)
	return row != nil && row.Digest == k.Secret && row.Until.After(at) && (row.ID.IsZero() || row.ID == k.Node)
}

// SecretVoid reports whether a cluster secret is void for joins since a node was removed.
func SecretVoid(tx Tx, tenant jobs.Tenant, digest jobs.ID) bool {
	return tx.Get(kernel.UniqueRef(tenant, kernel.VoidSecretName(digest))) != nil
}
