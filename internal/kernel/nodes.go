package kernel

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Commands about the nodes of a cluster. The members are in the store's own log, and in no row; but an invitation is a
// row, so that every leader knows it, and changes of members are in the audit.

// Invite lets one new node join with a secret, until a time. A digest of the secret is stored. Refused as Conflict if
// there is an invitation of that name with another secret.
type Invite struct {
	Name   string
	Secret jobs.ID // SecretID of it
	Until  time.Time
}

// Join uses an invitation, for one node. Refused as Forbidden if there is none of that name and secret, if it has
// expired, or if another node has used it. The same node may repeat it.
type Join struct {
	Name    string
	Secret  jobs.ID
	Node    jobs.ID
	Called  string // the node's name
	Address string // its address
}

// Members records a change of a node in the audit. Repeating it, under the same ID, changes nothing.
type Members struct {
	ID   jobs.ID // chosen by the sender
	Did  string  // one of MembersDid()
	Node string  // its name, or its id if the name is not known; "" = any
	// Secrets are digests (ClusterSecretID) of cluster secrets. Those that the members had when a node was removed are
	// void for joins from then on: the node may have kept them. A join by a void one is refused as Forbidden.
	Secrets []jobs.ID
}

// The changes of a node in the audit.
const (
	NodeRemoved     = "remove node"
	NodeTransferred = "transfer"
	NodeRecovered   = "recover"
	NodeJoined      = "join" // without an invitation
)

// MembersDid returns the changes of nodes.
func MembersDid() []string { return []string{NodeRemoved, NodeTransferred, NodeRecovered, NodeJoined} }

// MaxInvitation is the longest validity of an invitation.
const MaxInvitation = 24 * time.Hour

// SecretID returns the digest of an invitation's secret.
func SecretID(secret string) jobs.ID { return DerivedID("invitation", secret) }

// ClusterSecretID returns the digest of a secret that nodes have in common.
func ClusterSecretID(secret string) jobs.ID { return DerivedID("cluster secret", secret) }

// VoidSecretName returns the unique key of a cluster secret that is void.
func VoidSecretName(digest jobs.ID) string { return "void/" + digest.String() }

// maxSecrets is the most cluster secrets that are named at once.
const maxSecrets = 100

// InvitationName returns the unique key of an invitation; it expires with the invitation.
func InvitationName(name string) string { return "invitation/" + name }

// MembersName returns the unique key of a recorded change.
func MembersName(id jobs.ID) string { return "members/" + id.String() }

// Verb returns the verb of each command.
func (Invite) Verb() Verb  { return VerbInvite }
func (Join) Verb() Verb    { return VerbJoin }
func (Members) Verb() Verb { return VerbMembers }

// Check validates the invitation.
func (c Invite) Check() error {
	if c.Until.IsZero() {
		return Invalid("an invitation needs an end")
	}
	if err := checkTime("end of the invitation", c.Until); err != nil {
		return err
	}
	return checkInvitation(c.Name, c.Secret)
}

// Check validates the node.
func (c Join) Check() error {
	if c.Node.IsZero() {
		return Invalid("a joining node needs an id")
	}
	if err := checkWords("name of a node", c.Called, 1); err != nil {
		return err
	}
	if err := checkWords("address of a node", c.Address, 1); err != nil {
		return err
	}
	return checkInvitation(c.Name, c.Secret)
}

// Check validates the change.
func (c Members) Check() error {
	if c.ID.IsZero() {
		return Invalid("the record of a node's change needs an id")
	}
	if !slices.Contains(MembersDid(), c.Did) {
		return Invalid("invalid change %.40q of a node: want one of %s", c.Did, strings.Join(MembersDid(), ", "))
	}
	if len(c.Secrets) > maxSecrets {
		return Invalid("too many cluster secrets: %d, at most %d are allowed", len(c.Secrets), maxSecrets)
	}
	return checkWords("name of a node", c.Node, 0)
}

func checkInvitation(name string, secret jobs.ID) error {
	if secret.IsZero() {
		return Invalid("an invitation needs a secret")
	}
	if len(name) < 8 || len(name) > 40 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
		return Invalid("invalid invitation name %.50q: want 8 to 40 characters of A-Z 0-9", name)
	}
	return nil
}

func checkWords(what, s string, least int) error {
	if len(s) < least || len(s) > 300 || strings.ContainsFunc(s, unicode.IsControl) {
		return Invalid("invalid %s %.120q: want %d to 300 bytes without control characters", what, s, least)
	}
	return nil
}

func wireInvite(c *coder, k *Invite) {
	text(c, &k.Name)
	c.id(&k.Secret)
	c.time(&k.Until)
}

func wireJoin(c *coder, k *Join) {
	text(c, &k.Name)
	c.id(&k.Secret)
	c.id(&k.Node)
	text(c, &k.Called)
	text(c, &k.Address)
}

func wireMembers(c *coder, k *Members) {
	c.id(&k.ID)
	text(c, &k.Did)
	text(c, &k.Node)
	list(c, &k.Secrets, 16, (*coder).id)
}
