package controlplane

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Where several processes have the same rows, each may fire a share of the jobs (Config.Membership), whether it leads
// or not. A job is fired by the member with the highest hash of its name and the job's; each computes that itself, from
// the list of members. For a moment two may claim a job, or none, which does no harm: a fire names what it was decided
// by, and the second one is refused because the cursor has moved. Members send what they fire to the leader, which fires
// overdue jobs of any of them.

const (
	memberLease  = 4 * time.Second        // how long a silent member counts, as for a leader
	memberRenew  = time.Second            // how often a member renews its lease
	memberLook   = 100 * time.Millisecond // how often it reads the members, and the changes
	memberMargin = 500 * time.Millisecond // that it gives up before its lease expires
	rescueAfter  = time.Second            // how late the leader fires another member's jobs
)

// standing is what this process knows of the members, itself among them.
type standing struct {
	mu      sync.Mutex
	until   time.Time // when its membership expires, in steady time
	members []metastore.Member
	term    uint64 // of the store, for its fires
	twin    bool   // it was logged that there is another one of this name

	fired, rescued atomic.Uint64 // due times that became runs here, and those of them that were another member's
}

// owner returns the member that fires a job: when one comes or goes, only what is its own moves. "" without members.
func owner(members []string, job jobs.ID) (name string) {
	var best uint64
	text := string(job[:])
	for _, m := range members {
		if w := assign.Weight(m, text); name == "" || cmp.Or(cmp.Compare(w, best), cmp.Compare(m, name)) > 0 {
			name, best = m, w
		}
	}
	return name
}

// fireShare fires this process's share of the jobs until ctx ends, and then leaves: when it does nothing more, others
// may.
func (cp *ControlPlane) fireShare(ctx context.Context) error {
	for {
		err := cp.catalog.load(ctx, cp.cfg.Store)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			cp.episodes.Failed(episode.Level(err), "", "definitions cannot be read", "err", err)
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var attending sync.WaitGroup
	attending.Go(func() { cp.attend(ctx) })
	var err error
	for {
		// Non-leaders hold no term, so an error that would end one ends nothing here; the leader fires overdue jobs.
		if err = cp.fire(ctx, 0); ctx.Err() != nil {
			break
		}
		cp.episodes.Failed(episode.Level(err), "", "due times could not be fired, beginning again", "err", err)
		if err = wait(ctx, time.Second); err != nil {
			break
		}
	}
	cancel()
	attending.Wait()
	cp.leaveMembership(ctx)
	return err
}

// attend stays a member until ctx ends, and follows who the others are.
func (cp *ControlPlane) attend(ctx context.Context) {
	tick := time.NewTicker(memberLook)
	defer tick.Stop()
	var stayed time.Time
	for {
		at, err := cp.attendOnce(ctx, stayed)
		stayed = at
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			cp.episodes.Failed(slog.LevelWarn, "", "the members that fire jobs cannot be read", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// attendOnce reads the members, and renews its own lease if that was a while ago: without a read there is no renewal.
// It returns when it renewed last.
func (cp *ControlPlane) attendOnce(ctx context.Context, stayed time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, memberLease-memberMargin)
	defer cancel()
	s := &cp.share
	members, err := cp.cfg.Membership.Members(ctx)
	if err != nil {
		return stayed, err
	}
	state, err := cp.cfg.Store.State(ctx)
	if err != nil {
		return stayed, err
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.Node
	}
	s.mu.Lock()
	before := s.members
	s.members, s.term = members, state.Term
	s.mu.Unlock()
	if !stayed.IsZero() && slices.ContainsFunc(members, func(m metastore.Member) bool { return m.Node == cp.cfg.Node && m.Nonce != cp.nodes.nonce }) {
		s.mu.Lock()
		logged := s.twin
		s.twin = true
		s.mu.Unlock()
		if !logged {
			cp.log.Error("another process fires under this name, and both the same jobs: give each node a name of its own", "node", cp.cfg.Node)
		}
	}
	if !slices.EqualFunc(before, members, func(a, b metastore.Member) bool { return a.Node == b.Node }) {
		cp.log.Info("the jobs are fired by", "members", names)
	}
	term, _ := cp.Leading()
	cp.catalog.assign(names, cp.cfg.Node, term > 0)
	if err := cp.catalog.lookSince(ctx, cp.cfg.Store, state); err != nil {
		return stayed, err
	}
	switch now := time.Now(); {
	case now.Sub(stayed) < memberRenew:
	case cp.mistimed() && cp.othersFire():
		// By its clock it would fire too early, or too late. Others have better ones.
		cp.leaveMembership(ctx)
		stayed = now
	default:
		if err := cp.cfg.Membership.Stay(ctx, cp.member(), memberLease); err != nil {
			return stayed, err
		}
		stayed = now
		s.mu.Lock()
		s.until = now.Add(memberLease - memberMargin)
		s.mu.Unlock()
	}
	return stayed, nil
}

// mistimed reports whether nothing should be fired by the clock of this process, if another can.
func (cp *ControlPlane) mistimed() bool {
	return cp.clockIsWrong() || cp.cfg.Clock.Step().Abs() > metastore.ClockSlack
}

// othersFire reports whether there are other members.
func (cp *ControlPlane) othersFire() bool {
	cp.share.mu.Lock()
	defer cp.share.mu.Unlock()
	return slices.ContainsFunc(cp.share.members, func(m metastore.Member) bool { return m.Node != cp.cfg.Node })
}

func (cp *ControlPlane) member() metastore.Member {
	return metastore.Member{Node: cp.cfg.Node, Nonce: cp.nodes.nonce, Fired: cp.share.fired.Load()}
}

// leaveMembership announces to the others that this process fires nothing more.
func (cp *ControlPlane) leaveMembership(ctx context.Context) {
	cp.share.mu.Lock()
	cp.share.until = time.Time{}
	cp.share.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := cp.cfg.Membership.Leave(ctx, cp.member()); err != nil {
		cp.log.Debug("the leave of this member was not announced", "err", err)
	}
}

// mayFire reports whether this process may fire its share now, and under which term. One that was frozen finds its
// lease expired, and renews it first.
func (s *standing) mayFire() (term uint64, may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term, time.Now().Before(s.until)
}

// under records a newer term.
func (s *standing) under(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term = max(s.term, term)
}

// ours returns those of the due entries that this process is to fire. Another member's it reads again first, since that
// one has moved its cursor normally.
func (cp *ControlPlane) ours(ctx context.Context, due []*entry, now time.Time) ([]*entry, error) {
	var late []jobName
	due = slices.DeleteFunc(due, func(e *entry) bool {
		if e.foreign {
			late = append(late, nameOf(e.def))
		}
		return e.foreign
	})
	if len(late) == 0 {
		return due, nil
	}
	still, err := cp.catalog.overdue(ctx, cp.cfg.Store, late, now)
	if err != nil {
		for _, e := range due {
			cp.catalog.back(e, nil)
		}
		return nil, err
	}
	if len(still) > 0 {
		cp.log.Info("the leader fires overdue jobs of another member", "jobs", len(still))
	}
	return append(due, still...), nil
}

// Share is a process that fires a share of the jobs.
type Share struct {
	Node  string
	Here  bool      // it is this one
	Jobs  int       // recurring jobs that are its share, of all tenants
	Fired uint64    // due times that became runs by it since it joined; a second old
	Since time.Time // when it joined
}

// Shares lists the processes that fire a share of the jobs each; nil if the leader fires all.
func (cp *ControlPlane) Shares() []Share {
	if cp.cfg.Membership == nil {
		return nil
	}
	cp.share.mu.Lock()
	members := cp.share.members
	cp.share.mu.Unlock()
	shares := cp.catalog.shares()
	list := make([]Share, len(members))
	for i, m := range members {
		list[i] = Share{Node: m.Node, Here: m.Nonce == cp.nodes.nonce, Jobs: shares[m.Node], Fired: m.Fired, Since: m.Since}
	}
	return list
}

// Rescued returns how many late due times of other members this process has fired.
func (cp *ControlPlane) Rescued() uint64 { return cp.share.rescued.Load() }
