package kernel

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What is done to the nodes of a cluster. Who they are is known to the store's own log, and in no row; but whom somebody
// invited is one, so that whoever leads knows it, and what a person did to them stands in the record.

// Invite lets one new node join, until a time. Who shows the secret may; what is kept is a digest of it. Refused as
// Conflict if there is an invitation of that name with another secret.
type Invite struct {
	Name   string
	Secret jobs.ID // SecretID of it
	Until  time.Time
}

// Join uses an invitation up, for one node. Refused as Forbidden if there is none of that name and secret, if its time is
// over, or if another node has used it. The same node may ask again.
type Join struct {
	Name    string
	Secret  jobs.ID
	Node    jobs.ID
	Called  string // the node's name
	Address string // where it is
}

// Members notes in the record what was done to a node. To note it again, under the same ID, changes nothing.
type Members struct {
	ID   jobs.ID // chosen by the sender
	Did  string  // one of MembersDid()
	Node string  // its name, or its id if that is not known; "" = any
}

// What can be done to a node, as the record has it.
const (
	NodeRemoved     = "remove node"
	NodeTransferred = "transfer"
	NodeRecovered   = "recover"
)

// MembersDid are the things that can be done to nodes.
func MembersDid() []string { return []string{NodeRemoved, NodeTransferred, NodeRecovered} }

// MaxInvitation is how long an invitation may be good for.
const MaxInvitation = 24 * time.Hour

// SecretID stands for the secret of an invitation.
func SecretID(secret string) jobs.ID { return DerivedID("invitation", secret) }

// InvitationName is the name under which an invitation is kept: a unique key that lapses with it.
func InvitationName(name string) string { return "invitation/" + name }

// MembersName is the name under which is remembered that something was noted.
func MembersName(id jobs.ID) string { return "members/" + id.String() }

// Verb of each command.
func (Invite) Verb() Verb  { return VerbInvite }
func (Join) Verb() Verb    { return VerbJoin }
func (Members) Verb() Verb { return VerbMembers }

// Check says what is wrong with the invitation.
func (c Invite) Check() error {
	if c.Until.IsZero() {
		return Invalid("an invitation has an end")
	}
	if err := checkTime("end of the invitation", c.Until); err != nil {
		return err
	}
	return checkInvitation(c.Name, c.Secret)
}

// Check says what is wrong with the node.
func (c Join) Check() error {
	if c.Node.IsZero() {
		return Invalid("a node that joins has an id")
	}
	if err := checkWords("name of a node", c.Called, 1); err != nil {
		return err
	}
	if err := checkWords("address of a node", c.Address, 1); err != nil {
		return err
	}
	return checkInvitation(c.Name, c.Secret)
}

// Check says what is wrong with what was done.
func (c Members) Check() error {
	if c.ID.IsZero() {
		return Invalid("what was done to a node has an id")
	}
	if !slices.Contains(MembersDid(), c.Did) {
		return Invalid("%.40q is none of %s", c.Did, strings.Join(MembersDid(), ", "))
	}
	return checkWords("name of a node", c.Node, 0)
}

func checkInvitation(name string, secret jobs.ID) error {
	if secret.IsZero() {
		return Invalid("an invitation has a secret")
	}
	if len(name) < 8 || len(name) > 40 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
		return Invalid("invitation %.50q: its name has 8 to 40 characters of A-Z 0-9", name)
	}
	return nil
}

func checkWords(what, s string, least int) error {
	if len(s) < least || len(s) > 300 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return Invalid("%s %.120q: it has %d to 300 bytes and no control characters", what, s, least)
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
}
