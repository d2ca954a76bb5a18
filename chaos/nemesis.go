//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// nemesis injects faults and records them. One goroutine strikes control planes, of which only a minority is down at a
// time (except by the fault for that), another strikes workers.
type nemesis struct {
	*system
	may []string // requested kinds; empty = all

	mu      sync.Mutex
	done    map[string]int // how often, by name
	control *rand.Rand
	work    *rand.Rand
}

// leaseOver is longer than the lease of an attempt, and than the term of a leader.
const leaseOver = 18 * time.Second

// fault is a thing to do. It returns when it is undone.
type fault struct {
	name   string
	kind   string // as -faults names it
	weight int
	store  string // only with this one; "sql" = with either database; "" = with all
	do     func(*nemesis, context.Context) error
}

// strikes are the faults of control planes, databases and buses.
var strikes = []fault{
	{"leader killed", "kill", 6, "", func(z *nemesis, ctx context.Context) error { return z.killNode(ctx, true) }},
	{"follower killed", "kill", 3, "", func(z *nemesis, ctx context.Context) error { return z.killNode(ctx, false) }},
	{"all nodes killed", "kill", 1, "", (*nemesis).killAll},
	{"leader frozen", "stop", 3, "", (*nemesis).freezeLeader},
	{"leader cut off", "cut", 3, "", func(z *nemesis, ctx context.Context) error { return z.cutNode(ctx, true, cut, "") }},
	{"follower cut off", "cut", 2, "", func(z *nemesis, ctx context.Context) error { return z.cutNode(ctx, false, cut, "") }},
	{"leader cannot send", "cut", 2, "", func(z *nemesis, ctx context.Context) error { return z.cutNode(ctx, true, wire{there: true}, "") }},
	{"leader cannot receive", "cut", 2, "", func(z *nemesis, ctx context.Context) error { return z.cutNode(ctx, true, wire{back: true}, "") }},
	{"leader cut off from the database", "cut", 2, "sql", func(z *nemesis, ctx context.Context) error { return z.cutWires(ctx, true) }},
	{"leader cut off from the bus", "cut", 2, "sql", func(z *nemesis, ctx context.Context) error { return z.cutWires(ctx, false) }},
	{"leader slow", "slow", 2, "", func(z *nemesis, ctx context.Context) error {
		return z.cutNode(ctx, true, wire{delay: time.Duration(20+z.control.IntN(200)) * time.Millisecond}, "slow")
	}},
	{"connections of all nodes reset", "slow", 2, "", (*nemesis).resetNodes},
	{"NATS server killed", "kill", 3, "sql", (*nemesis).killBus},
	{"database killed", "kill", 2, "sql", (*nemesis).killRows},
	{"leader's clock set", "clock", 3, "", (*nemesis).setClock},
	{"a follower's disk full", "disk", 1, raft, func(z *nemesis, ctx context.Context) error { return z.fillDisk(ctx, false) }},
	{"leader's disk full", "disk", 2, raft, func(z *nemesis, ctx context.Context) error { return z.fillDisk(ctx, true) }},
	{"all nodes restarted in turn", "roll", 2, "", (*nemesis).roll},
	{"leader stopped", "roll", 3, "", (*nemesis).handOver},
}

// pinpricks are the faults of workers.
var pinpricks = []fault{
	{"worker killed", "kill", 5, "", (*nemesis).killWorker},
	{"worker frozen", "stop", 3, "", (*nemesis).freezeWorker},
	{"worker cut off", "cut", 3, "", func(z *nemesis, ctx context.Context) error { return z.cutWorker(ctx, cut) }},
	{"worker cannot send", "cut", 2, "", func(z *nemesis, ctx context.Context) error { return z.cutWorker(ctx, wire{there: true}) }},
	{"worker cannot receive", "cut", 2, "", func(z *nemesis, ctx context.Context) error { return z.cutWorker(ctx, wire{back: true}) }},
	{"worker slow", "slow", 2, "", func(z *nemesis, ctx context.Context) error {
		return z.cutWorker(ctx, wire{delay: time.Duration(50+z.work.IntN(400)) * time.Millisecond})
	}},
	{"worker stopped", "roll", 2, "", (*nemesis).rollWorker},
}

func newNemesis(s *system, seed uint64, may []string) *nemesis {
	return &nemesis{system: s, may: may, done: map[string]int{}, control: rand.New(rand.NewPCG(seed, 1)), work: rand.New(rand.NewPCG(seed, 2))}
}

// rage injects faults until ctx ends, and returns when all of them are undone.
func (z *nemesis) rage(ctx context.Context, gap time.Duration) {
	var both sync.WaitGroup
	both.Go(func() { z.inject(ctx, z.control, strikes, gap) })
	both.Go(func() { z.inject(ctx, z.work, pinpricks, gap) })
	both.Wait()
}

// inject picks faults by their weights: first each once, in some order, so that a short campaign has all kinds.
func (z *nemesis) inject(ctx context.Context, random *rand.Rand, all []fault, gap time.Duration) {
	var mine []fault
	var urn []int
	for _, f := range all {
		if z.fits(f) {
			urn = append(urn, slices.Repeat([]int{len(mine)}, f.weight)...)
			mine = append(mine, f)
		}
	}
	if len(mine) == 0 {
		return
	}
	first := random.Perm(len(mine))
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap/2 + time.Duration(random.Int64N(int64(gap)))):
		}
		f := mine[urn[random.IntN(len(urn))]]
		if n < len(first) {
			f = mine[first[n]]
		}
		began := time.Now()
		// What is done is undone, even when it is time to stop.
		err := f.do(z, context.WithoutCancel(ctx))
		z.mu.Lock()
		z.done[f.name]++
		z.mu.Unlock()
		if err != nil {
			logf("%s: %v", f.name, err)
			continue
		}
		logf("%s, for %v", f.name, time.Since(began).Round(100*time.Millisecond))
	}
}

func (z *nemesis) fits(f fault) bool {
	switch {
	case len(z.may) > 0 && !slices.Contains(z.may, f.kind) && !slices.Contains(z.may, f.name):
		return false
	case f.store == "sql":
		return z.store != raft
	case f.kind == "disk" && (len(z.nodes) == 0 || z.nodes[0].disk == ""):
		return false
	}
	return f.store == "" || f.store == z.store
}

// counts returns the number of faults, and their names.
func (z *nemesis) counts() (n int, which string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var list []string
	for name, k := range z.done {
		n += k
		list = append(list, fmt.Sprintf("%s %d", name, k))
	}
	slices.Sort(list)
	return n, strings.Join(list, ", ")
}

// write records a fault that ends now.
func (z *nemesis) write(f judge.Fault) {
	f.End = judge.Now()
	if err := z.faults.Write(f); err != nil {
		logf("a fault was not recorded: %v", err)
	}
}

func fell(kind string, m *member, note string) judge.Fault {
	return judge.Fault{Kind: kind, Role: m.kind, Target: m.name, PID: m.pid(), Note: note, Begin: judge.Now()}
}

// victim is the node that leads, or one of the others.
func (z *nemesis) victim(ctx context.Context, leads bool) (*node, string, error) {
	l, err := z.leader(ctx)
	if err != nil {
		return nil, "", err
	}
	if leads {
		return l, "leader", nil
	}
	n := l
	for n == l {
		n = z.nodes[z.control.IntN(len(z.nodes))]
	}
	return n, "follower", nil
}

func (z *nemesis) between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// asleep returns how long a process is silent: half of the times longer than a lease.
func (z *nemesis) asleep(random *rand.Rand) time.Duration {
	if random.IntN(2) == 0 {
		return z.between(random, leaseOver, leaseOver+8*time.Second)
	}
	return z.between(random, 2*time.Second, leaseOver)
}

func (z *nemesis) killNode(ctx context.Context, leads bool) error {
	n, note, err := z.victim(ctx, leads)
	if err != nil {
		return err
	}
	return z.killAnd(ctx, n, note, z.between(z.control, 0, 4*time.Second))
}

// killAnd kills a node, starts it again after a while, and waits until a node may fail again.
func (z *nemesis) killAnd(ctx context.Context, n *node, note string, away time.Duration) error {
	n.down()
	f := fell(judge.Kill, n.member, note)
	n.kill()
	time.Sleep(away)
	err := n.up()
	z.write(f)
	if err != nil {
		return err
	}
	return z.whole(ctx)
}

func (z *nemesis) killAll(ctx context.Context) error {
	var fs []judge.Fault
	for _, n := range z.nodes {
		n.down()
		fs = append(fs, fell(judge.Kill, n.member, "all"))
		n.kill()
	}
	time.Sleep(z.between(z.control, 0, 3*time.Second))
	for i, n := range z.nodes {
		if err := n.up(); err != nil {
			return err
		}
		z.write(fs[i])
	}
	return z.whole(ctx)
}

func (z *nemesis) freezeLeader(ctx context.Context) error {
	n, note, err := z.victim(ctx, true)
	if err != nil {
		return err
	}
	f := fell(judge.Freeze, n.member, note)
	if err := n.freeze(); err != nil {
		return err
	}
	time.Sleep(z.asleep(z.control))
	n.thaw()
	z.write(f)
	return z.whole(ctx)
}

// cutNode changes all wires of a node: those that it dials, and, with directions swapped, those that others dial.
func (z *nemesis) cutNode(ctx context.Context, leads bool, w wire, kind string) error {
	n, note, err := z.victim(ctx, leads)
	if err != nil {
		return err
	}
	if kind == "" {
		kind = judge.Cut
	}
	f := fell(kind, n.member, note)
	back := wire{there: w.back, back: w.there, delay: w.delay}
	workersToo := z.store == raft && z.control.IntN(2) == 0
	set := func(out, in wire) {
		for _, e := range n.wires {
			e.set(e.from, out)
		}
		for _, p := range n.inward {
			for _, other := range z.nodes {
				if other != n {
					p.set(other.name, in)
				}
			}
		}
		if workersToo {
			i := slices.Index(z.nodes, n)
			for _, m := range slices.Concat(z.workers, z.clients) {
				m.wires[i].set(m.wires[i].from, in)
			}
		}
	}
	set(w, back)
	time.Sleep(z.between(z.control, 2*time.Second, leaseOver))
	set(wire{}, wire{})
	z.write(f)
	return z.whole(ctx)
}

// cutWires cuts the wires of the node that leads to the database, or all but those.
func (z *nemesis) cutWires(ctx context.Context, toRows bool) error {
	n, note, err := z.victim(ctx, true)
	if err != nil {
		return err
	}
	f := fell(judge.Cut, n.member, note)
	for _, heal := range []bool{false, true} {
		for _, e := range n.wires {
			switch {
			case e.rows != toRows:
			case heal:
				e.set(e.from, wire{})
			default:
				e.set(e.from, cut)
			}
		}
		if !heal {
			time.Sleep(z.asleep(z.control))
		}
	}
	z.write(f)
	return z.whole(ctx)
}

func (z *nemesis) resetNodes(ctx context.Context) error {
	f := judge.Fault{Kind: "reset", Role: judge.Control, Target: "all", Begin: judge.Now()}
	for range 1 + z.control.IntN(5) {
		for _, n := range z.nodes {
			for _, e := range n.wires {
				e.reset(e.from)
			}
		}
		time.Sleep(z.between(z.control, 50*time.Millisecond, 800*time.Millisecond))
	}
	z.write(f)
	return z.whole(ctx)
}

// killBus kills the NATS server.
func (z *nemesis) killBus(ctx context.Context) error {
	z.bus.down()
	f := fell(judge.Kill, z.bus, "")
	z.bus.kill()
	time.Sleep(z.between(z.control, 0, 6*time.Second))
	err := z.bus.up()
	z.write(f)
	if err != nil {
		return err
	}
	return z.whole(ctx)
}

func (z *nemesis) killRows(ctx context.Context) error {
	f := judge.Fault{Kind: judge.Kill, Role: judge.Rows, Target: z.store, PID: z.database.PID(), Begin: judge.Now()}
	z.database.Kill()
	time.Sleep(z.between(z.control, 0, 5*time.Second))
	err := z.database.Again()
	z.write(f)
	if err != nil {
		return err
	}
	return z.whole(ctx)
}

// steps by which clocks are set.
var steps = []time.Duration{time.Second, -time.Second, 5 * time.Minute, -5 * time.Minute, time.Hour, -time.Hour, 365 * 24 * time.Hour}

// setClock sets the leader's wall clock, for less time than processes need to follow it (metastore.Clock), even if this
// machine stalls for some seconds. If they followed it, the judge could not check the due times of then.
func (z *nemesis) setClock(ctx context.Context) error {
	n, note, err := z.victim(ctx, true)
	if err != nil {
		return err
	}
	f := fell(judge.Clock, n.member, note)
	f.Step = steps[z.control.IntN(len(steps))]
	if err := os.WriteFile(n.clock, fmt.Appendf(nil, "%d\n", f.Step), 0o600); err != nil {
		return err
	}
	time.Sleep(z.between(z.control, 2*time.Second, 5*time.Second))
	err = os.WriteFile(n.clock, []byte("0\n"), 0o600)
	z.write(f)
	if err != nil {
		return err
	}
	return z.whole(ctx)
}

func (z *nemesis) fillDisk(ctx context.Context, leads bool) error {
	n, note, err := z.victim(ctx, leads)
	if err != nil {
		return err
	}
	f := fell(judge.Full, n.member, note)
	n.mu.Lock()
	n.full = true
	n.mu.Unlock()
	err = n.fill()
	time.Sleep(z.between(z.control, 3*time.Second, 15*time.Second))
	n.clear()
	z.write(f)
	if err != nil {
		return err
	}
	err = z.whole(ctx)
	n.mu.Lock()
	n.full = false
	n.mu.Unlock()
	return err
}

// stopAnd stops a node with a signal, and starts it again.
func (z *nemesis) stopAnd(ctx context.Context, n *node, note string) error {
	n.down()
	f := fell(judge.Term, n.member, note)
	took, well := n.stop(40 * time.Second)
	err := n.up()
	z.write(f)
	if !well {
		logf("%s did not stop in %v and was killed", n.name, took.Round(time.Second))
	}
	if err != nil {
		return err
	}
	return z.whole(ctx)
}

func (z *nemesis) roll(ctx context.Context) error {
	for _, n := range z.nodes {
		note := "follower"
		switch l, err := z.leader(ctx); {
		case err != nil:
			return err
		case l == n:
			note = "leader"
		}
		if err := z.stopAnd(ctx, n, note); err != nil {
			return err
		}
	}
	return nil
}

func (z *nemesis) handOver(ctx context.Context) error {
	n, note, err := z.victim(ctx, true)
	if err != nil {
		return err
	}
	return z.stopAnd(ctx, n, note)
}

func (z *nemesis) anyWorker() *member { return z.workers[z.work.IntN(len(z.workers))] }

func (z *nemesis) killWorker(context.Context) error {
	m := z.anyWorker()
	m.down()
	f := fell(judge.Kill, m, "")
	m.kill()
	time.Sleep(z.between(z.work, 0, 5*time.Second))
	err := m.up()
	z.write(f)
	return err
}

func (z *nemesis) freezeWorker(context.Context) error {
	m := z.anyWorker()
	f := fell(judge.Freeze, m, "")
	if err := m.freeze(); err != nil {
		return err
	}
	time.Sleep(z.asleep(z.work))
	m.thaw()
	z.write(f)
	return nil
}

func (z *nemesis) cutWorker(_ context.Context, w wire) error {
	m := z.anyWorker()
	kind := judge.Cut
	if w.delay > 0 {
		kind = "slow"
	}
	f := fell(kind, m, "")
	for _, e := range m.wires {
		e.set(e.from, w)
	}
	time.Sleep(z.asleep(z.work))
	for _, e := range m.wires {
		e.set(e.from, wire{})
	}
	z.write(f)
	return nil
}

func (z *nemesis) rollWorker(context.Context) error {
	m := z.anyWorker()
	m.down()
	f := fell(judge.Term, m, "")
	m.stop(30 * time.Second)
	err := m.up()
	z.write(f)
	return err
}

// aroundDue kills the leader within a second around a due time, so many times over. Half of the times it is within
// a twentieth of one.
func (z *nemesis) aroundDue(ctx context.Context, times int) error {
	for i := range times {
		if ctx.Err() != nil {
			return nil
		}
		n, note, err := z.victim(ctx, true)
		if err != nil {
			return err
		}
		off := time.Second
		if i%2 == 0 {
			off /= 20
		}
		due := time.Now().Truncate(time.Second).Add(3 * time.Second)
		moment := due.Add(time.Duration(z.control.Int64N(int64(2*off))) - off)
		time.Sleep(time.Until(moment))
		if err := z.killAnd(ctx, n, note, 0); err != nil {
			return err
		}
		z.mu.Lock()
		z.done["leader killed around a due time"]++
		z.mu.Unlock()
		logf("leader %s killed %+dms from a due time, whole again after %v", n.name, moment.Sub(due).Milliseconds(), time.Since(moment).Round(10*time.Millisecond))
	}
	return nil
}

// heal makes everything as it should be.
func (z *nemesis) heal(ctx context.Context) error {
	for _, n := range z.nodes {
		n.thaw()
		if err := os.WriteFile(n.clock, []byte("0\n"), 0o600); err != nil {
			return err
		}
		if n.disk != "" {
			n.clear()
		}
		for _, e := range n.wires {
			e.set(e.from, wire{})
		}
		if err := n.up(); err != nil {
			return err
		}
	}
	for _, m := range z.workers {
		m.thaw()
		for _, e := range m.wires {
			e.set(e.from, wire{})
		}
		if err := m.up(); err != nil {
			return err
		}
	}
	return z.whole(ctx)
}
