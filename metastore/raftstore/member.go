package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// Member is one node of the cluster, as the reporting node sees it.
type Member struct {
	ID      string
	Name    string // "" = unknown to this node
	Address string
	Self    bool
	Voter   bool // promoted after catching up: its copy counts
	Leader  bool
	// Reached reports that it answered just now; the following fields are only known then, except LastContact.
	Reached      bool
	LastContact  time.Time     // of this node's last contact with it; zero = never
	Applied      uint64        // the last commit in its rows
	Skew         time.Duration // about how much its clock is ahead of this node's
	LogBytes     int64
	ArchiveBytes int64
	Snapshot     time.Time // time of its last one; zero = none since its start
	ApplyVersion uint32    // the newest version of the rules that it knows
	Current      bool      // its rows have all recent commits
	whole        bool      // see Store.Whole
}

// mostBehind is how many log entries a current node may be behind: at full load a follower learns of commits some
// hundred entries later, and it applies this many within a second, about as long as an election takes.
const mostBehind = 1000

// markCurrent sets Current of members that answered. Until a restarted node has applied what the leader had, another
// failure would stop commits, whatever it votes.
func markCurrent(members []Member) {
	var newest uint64
	for _, m := range members {
		newest = max(newest, m.Applied) // 0 if it did not answer
	}
	for i := range members {
		m := &members[i]
		m.Current = m.Reached && (m.Leader || m.whole && m.Applied+mostBehind >= newest)
	}
}

// Tolerates returns how many more voters may fail at once, and a text for it. A voter that does not answer counts as
// failed, and so does one that is not current.
func Tolerates(members []Member) (n int, text string) {
	voters, reached, current := 0, 0, 0
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		if m.Reached {
			reached++
		}
		if m.Current {
			current++
		}
	}
	majority := voters/2 + 1
	n = max(0, current-majority)
	if voters == current {
		switch n {
		case 0:
			return 0, "no fault tolerance"
		case 1:
			return 1, "one node may fail"
		}
		return n, fmt.Sprintf("%d nodes may fail", n)
	}
	text = fmt.Sprintf("%d of %d nodes answer", reached, voters)
	if late := reached - current; late > 0 {
		text += fmt.Sprintf(", %d of them not up to date yet", late)
	}
	switch {
	case reached < majority:
		return 0, text + ": no leader until a majority answers"
	case n == 0:
		return 0, text + ": no other may fail"
	}
	return n, fmt.Sprintf("%s: %d more may fail", text, n)
}

// Removable returns why one of the members, by its id, cannot be removed: a majority of the remaining voters must
// answer, or none could lead.
func Removable(members []Member, id string) error {
	left, there, votes, silent := 0, 0, false, []string(nil)
	for _, m := range members {
		switch {
		case !m.Voter:
		case m.ID == id:
			votes = true
		case m.Reached:
			left, there = left+1, there+1
		default:
			left, silent = left+1, append(silent, cmp.Or(m.Name, m.ID))
		}
	}
	if !votes || there > left/2 {
		return nil
	}
	return kernel.Refuse(jobs.Conflict, "not done: of the %d remaining nodes only %d answer, too few for a leader: first remove those that do not answer (%s)",
		left, there, strings.Join(silent, ", "))
}

// mostSkew is how far the clock of a node that joins may be off.
const mostSkew = time.Minute

// statusTimeout is how long Members waits for a node.
const statusTimeout = time.Second

// ID is this node's id, chosen when its directory was made.
func (s *Store) ID() string { return s.node.ID }

// Cluster is the id of the cluster that this node belongs to.
func (s *Store) Cluster() string { return s.node.Cluster }

// Address is where other nodes reach this one, "" if they cannot.
func (s *Store) Address() string {
	if s.link == nil {
		return ""
	}
	return s.link.Address()
}

// Leader is the node that leads, as far as this one knows: only the fields that need no request to it. ok is false if
// there is none.
func (s *Store) Leader() (m Member, ok bool) {
	address, id := s.raft.LeaderWithID()
	if id == "" {
		return m, false
	}
	m = s.member(raft.Server{ID: id, Address: address, Suffrage: raft.Voter})
	m.Leader = true
	return m, true
}

func (s *Store) member(is raft.Server) Member {
	m := Member{ID: string(is.ID), Address: string(is.Address), Voter: is.Suffrage == raft.Voter, Self: string(is.ID) == s.node.ID}
	if m.Self {
		m.Name, m.Address = s.cfg.Node, cmp.Or(s.Address(), m.Address)
		return m
	}
	if peer, ok := s.peer(m.ID); ok {
		m.Name, m.LastContact = peer.Name, peer.LastReceived
	}
	s.nodeMu.Lock()
	defer s.nodeMu.Unlock()
	for _, o := range s.node.Others {
		if o.ID == m.ID {
			m.Name = cmp.Or(m.Name, o.Name)
		}
	}
	return m
}

// Members is all nodes of the cluster, by name. It asks each for its status, for a second at most.
func (s *Store) Members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	servers := s.servers()
	list := make([]Member, len(servers))
	_, leader := s.raft.LeaderWithID()
	var wg sync.WaitGroup
	for i, is := range servers {
		wg.Go(func() {
			m := s.member(is)
			m.Leader = is.ID == leader
			s.inquire(ctx, &m)
			list[i] = m
		})
	}
	wg.Wait()
	markCurrent(list)
	slices.SortFunc(list, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// inquire asks a node for its status.
func (s *Store) inquire(ctx context.Context, m *Member) (st status, ok bool) {
	if m.Self {
		st = s.status()
		m.LastContact = s.cfg.Now()
	} else {
		asked := s.cfg.Now()
		r, err := s.ask(ctx, m.Address, m.ID, call{Status: true})
		if err != nil || r.Status == nil {
			return st, false
		}
		st = *r.Status
		heard := s.cfg.Now()
		m.Skew = st.Now.Sub(asked.Add(heard.Sub(asked) / 2))
		if peer, ok := s.peer(m.ID); ok {
			m.Name, m.LastContact = peer.Name, peer.LastReceived
		}
	}
	m.Reached, m.Applied, m.LogBytes, m.ArchiveBytes, m.Snapshot, m.ApplyVersion, m.whole = true, st.Applied, st.LogBytes, st.ArchiveBytes, st.Snapshot, st.ApplyVersion, st.Whole
	return st, true
}

// find is the member of an id or a name.
func (s *Store) find(idOrName string) (m Member, err error) {
	for _, is := range s.servers() {
		if m = s.member(is); m.ID == idOrName || m.Name == idOrName {
			return m, nil
		}
	}
	return m, kernel.Refuse(jobs.NotFound, "there is no member %.80q", idOrName)
}

// leads refuses what only the leader can do.
func (s *Store) leads() error {
	if s.raft.State() == raft.Leader {
		return nil
	}
	if m, ok := s.Leader(); ok {
		return kernel.Refuse(jobs.Unavailable, "not done: node %s leads, at %s; send the request there", cmp.Or(m.Name, m.ID), m.Address)
	}
	return kernel.Refuse(jobs.Unavailable, "not done: there is no leader at the moment; try again")
}

// changed returns the outcome of a change of members.
func changed(what string, f raft.Future) error {
	if err := f.Error(); err != nil {
		return fmt.Errorf("%s: %w", what, outcome(err))
	}
	return nil
}

// within is how much of ctx is left for raft, which knows no contexts.
func within(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return max(time.Millisecond, min(enqueueTimeout, time.Until(at)))
	}
	return enqueueTimeout
}

// Remove removes a node from the cluster, by its id or its name, unless the others could not continue. Only the
// leader can, and not itself.
func (s *Store) Remove(ctx context.Context, by By, idOrName string) error {
	m, err := s.find(idOrName)
	if err != nil {
		return err
	}
	if err := s.leads(); err != nil {
		return err
	}
	if m.Self {
		return kernel.Refuse(jobs.Conflict, "this node leads: have another one lead before it is removed")
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	members, err := s.Members(ctx)
	if err == nil {
		err = Removable(members, m.ID)
	}
	if err != nil {
		return err
	}
	if err := s.note(ctx, by, kernel.Members{ID: jobs.NewID(s.cfg.Now()), Did: kernel.NodeRemoved, Node: cmp.Or(m.Name, m.ID), Secrets: digestsOf(s.secrets)}); err != nil {
		return err // no change without its audit
	}
	if err := changed("remove "+m.ID, s.raft.RemoveServer(raft.ServerID(m.ID), 0, within(ctx))); err != nil {
		return err
	}
	s.cfg.Logger.Info("node removed", "node", m.ID, "name", m.Name, "address", m.Address)
	return nil
}

// Transfer has another node lead: one by its id or name, or the most current if that is "". The error states why none
// can.
func (s *Store) Transfer(ctx context.Context, by By, idOrName string) error {
	if idOrName == "" {
		if err := s.leads(); err != nil {
			return err
		}
		if err := s.note(ctx, by, kernel.Members{ID: jobs.NewID(s.cfg.Now()), Did: kernel.NodeTransferred}); err != nil {
			return err
		}
		return s.Yield()
	}
	m, err := s.find(idOrName)
	if err != nil {
		return err
	}
	if err := s.leads(); err != nil {
		return err
	}
	switch {
	case m.Self:
		return nil
	case !m.Voter:
		return kernel.Refuse(jobs.Conflict, "node %s has not caught up yet and cannot lead", m.ID)
	}
	if err := s.note(ctx, by, kernel.Members{ID: jobs.NewID(s.cfg.Now()), Did: kernel.NodeTransferred, Node: cmp.Or(m.Name, m.ID)}); err != nil {
		return err
	}
	if err := s.raft.LeadershipTransferToServer(raft.ServerID(m.ID), raft.ServerAddress(m.Address)).Error(); err != nil {
		return fmt.Errorf("have node %s lead: %w", m.ID, err)
	}
	return nil
}

// moved notes at which address a member is now.
func (s *Store) moved(from *link.Hello) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	for _, is := range s.servers() {
		switch {
		case string(is.ID) != from.Node:
		case string(is.Address) == from.Address:
			return nil
		case is.Suffrage == raft.Voter:
			return changed("note an address", s.raft.AddVoter(is.ID, raft.ServerAddress(from.Address), 0, enqueueTimeout))
		default:
			return changed("note an address", s.raft.AddNonvoter(is.ID, raft.ServerAddress(from.Address), 0, enqueueTimeout))
		}
	}
	// A deposed leader that does not know it yet lacks the members that came since.
	ctx, cancel := context.WithTimeout(s.ctx, rpcTimeout)
	defer cancel()
	if err := s.Linearizable(ctx); err != nil {
		return err
	}
	return kernel.Refuse(jobs.NotFound, "node %s was removed from the cluster; it can join again with a token, as a new node", from.Node)
}

// rejoined takes the vote from a member whose data is gone, because it no longer knows its promises. It gets it back
// when it has caught up.
func (s *Store) rejoined(from *link.Hello) error {
	if err := s.moved(from); err != nil {
		return err
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	if err := changed("take back a vote", s.raft.DemoteVoter(raft.ServerID(from.Node), 0, enqueueTimeout)); err != nil {
		return err
	}
	s.nudge()
	s.cfg.Logger.Warn("a node has lost its data and fetches it again", "node", from.Node, "name", from.Name)
	return nil
}

// attend announces this node at its address, stores the list of members, and as leader makes voters of nodes that
// have caught up.
func (s *Store) attend(ctx context.Context) {
	behind := make(map[string]status) // this node's status when it last asked the non-voters
	for {
		pause := s.cfg.Heartbeat
		if len(behind) > 0 || s.raft.LastIndex() == 0 { // a node waits to be a voter
			pause = s.cfg.Heartbeat / 10
		}
		select {
		case <-ctx.Done():
			return
		case <-s.nudged:
		case <-time.After(pause):
		}
		if err := s.remember(); err != nil {
			s.fail(err)
			return
		}
		var err error
		if s.raft.State() == raft.Leader {
			hello := s.hello()
			hello.Address = s.link.Address()
			if err = s.moved(&hello); err == nil {
				s.promote(ctx, behind)
			}
		} else {
			clear(behind)
			err = s.announce(ctx)
		}
		if jobs.CodeOf(err) == jobs.NotFound {
			s.fail(fmt.Errorf("%w: %w", ErrRemoved, err))
			return
		}
	}
}

// nudge has attend look at once: a node waits for it.
func (s *Store) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// ErrRemoved is the error of a store whose node is no longer a member.
var ErrRemoved = errors.New("this node is no longer in the cluster")

// announce sends the leader this node's address, if the members do not know it or there is no contact to a leader.
func (s *Store) announce(ctx context.Context) error {
	for _, is := range s.servers() {
		if string(is.ID) == s.node.ID && string(is.Address) == s.link.Address() && time.Since(s.raft.LastContact()) < 10*s.cfg.Heartbeat {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	_, err := s.askLeader(ctx, call{Announce: true})
	return err
}

// promote makes voters of the nodes that have all that this one had when it last asked.
func (s *Store) promote(ctx context.Context, behind map[string]status) {
	servers := s.servers()
	maps.DeleteFunc(behind, func(id string, _ status) bool {
		return !slices.ContainsFunc(servers, func(is raft.Server) bool { return string(is.ID) == id && is.Suffrage != raft.Voter })
	})
	for _, is := range servers {
		id := string(is.ID)
		if is.Suffrage == raft.Voter {
			continue
		}
		then, asked := behind[id]
		behind[id] = s.status()
		m := s.member(is)
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		st, ok := s.inquire(ctx, &m)
		cancel()
		if !ok || !asked || st.Last < then.Last || st.Applied < then.Applied || st.Last == 0 {
			continue
		}
		s.changes.Lock()
		err := changed("make a voter of node "+id, s.raft.AddVoter(is.ID, is.Address, 0, enqueueTimeout))
		s.changes.Unlock()
		if err != nil {
			s.episodes.Failed(slog.LevelWarn, id, "a node could not be made a voter", "node", id, "err", err)
			continue
		}
		s.cfg.Logger.Info("node has caught up and votes", "node", id, "name", m.Name, "address", m.Address)
	}
}
