package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// node is what a node knows about itself and its cluster, in a file beside its data: it survives damage to the data,
// and defines what the data must be.
type node struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Epoch   uint64 `json:"epoch"` // one more for each Force
	ID      string `json:"id"`
	// Founder began the cluster, and so may begin a log; others only take theirs from it.
	Founder bool `json:"founder,omitempty"`
	// Began means that there is a log: an empty one is a lost one.
	Began bool `json:"began,omitempty"`
	// Reached is an entry that was applied here: a log that ends before it has lost its end, which otherwise looks
	// like a last write that a crash has torn.
	Reached uint64 `json:"reached,omitempty"`
	// Rejoin means that the data was moved aside: the node must not vote before the others know that it is gone.
	Rejoin bool `json:"rejoin,omitempty"`
	// Moving is the folder that the data is being moved to, "" when no move is under way.
	Moving string `json:"moving,omitempty"`
	// Others are the last known members, for the time before raft has started.
	Others []other `json:"others,omitempty"`
	// Forced is who made this node the only one, until that is in the audits.
	Forced *By `json:"forced,omitempty"`
}

// other is another member.
type other struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address"`
}

const nodeFile = "node.json"

// loadNode reads a directory's node, or nil if there is none yet.
func loadNode(dir string) (*node, error) {
	path := filepath.Join(dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	n := new(node)
	if err := json.Unmarshal(b, n); err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	switch {
	case n.Version > 1:
		return nil, fmt.Errorf("read %s: it was written by a newer version of this program", path)
	case n.Cluster == "" || n.ID == "":
		return nil, &disk.Damaged{Path: path, What: "no cluster or no node in it"}
	}
	return n, nil
}

// save writes the file, whole or not at all.
func (n *node) save(dir string) error {
	n.Version = 1
	b, err := json.MarshalIndent(n, "", "\t")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, nodeFile)
	if err := writeWhole(path, b); err != nil {
		return fmt.Errorf("write node: %w", err)
	}
	return nil
}

func writeWhole(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return disk.SyncFolder(filepath.Dir(path))
}

var (
	keyIdentity = []byte("carillon/server")
	keyCluster  = []byte("carillon/cluster")
)

// settle finds out which node this is: its file and its log must agree. there means that the log has begun.
func (s *Store) settle(there bool) (err error) {
	path := filepath.Join(s.cfg.Dir, nodeFile)
	if s.identity == nil {
		if s.identity, err = Identify(s.cfg.Dir); err != nil {
			return err
		}
	}
	id, err := s.log.word(keyIdentity)
	if err != nil {
		return err
	}
	cluster, err := s.log.word(keyCluster)
	if err != nil {
		return err
	}
	n := s.node
	switch {
	case n == nil && cluster != "":
		return &disk.Damaged{Path: path, What: fmt.Sprintf("it is missing, and the log belongs to cluster %s", cluster)}
	case n == nil:
		n = &node{Cluster: jobs.NewID(time.Now()).String(), ID: s.identity.Node(), Founder: true}
	case cluster != "" && cluster != n.Cluster:
		return fmt.Errorf("the log in %s belongs to cluster %s, but this node to %s", s.log.path, cluster, n.Cluster)
	case id != "" && id != n.ID:
		return fmt.Errorf("the log in %s is of node %s, and this is node %s", s.log.path, id, n.ID)
	case n.Began && !there && !n.Rejoin:
		return &disk.Damaged{Path: s.log.path, What: "it is missing or empty; if there are other nodes, open this one with repair to take everything from them"}
	}
	s.node = n
	n.Began = n.Began || there
	if err := n.save(s.cfg.Dir); err != nil {
		return err
	}
	if cluster == "" {
		if err := s.log.Set(keyCluster, []byte(n.Cluster)); err != nil {
			return err
		}
	}
	if id == "" {
		return s.log.Set(keyIdentity, []byte(n.ID))
	}
	return nil
}

// word is a text that is stored beside the log, or "".
func (l *raftLog) word(key []byte) (string, error) {
	b, err := l.Get(key)
	if err != nil && err.Error() != "not found" { // the text that raft checks for, too
		return "", fmt.Errorf("read log %s: %w", l.path, err)
	}
	return string(b), nil
}

// damagedFolder is where Repair moves what it replaces.
const damagedFolder = "damaged-"

// moveAside moves the data into a folder, so that it can be inspected later, or continues an interrupted move. The
// node keeps its identity and the log lines of runs, which every node has of its own.
func (n *node) moveAside(dir string) (to string, err error) {
	if n.Moving == "" {
		n.Rejoin, n.Reached, n.Moving = true, 0, damagedFolder+time.Now().UTC().Format("20060102T150405.000000")
		if err := n.save(dir); err != nil {
			return "", err
		}
	}
	to = filepath.Join(dir, n.Moving)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", fmt.Errorf("move damaged data aside: %w", err)
	}
	for _, name := range append([]string{snapshotsFolder, archiveFolder}, logFiles...) {
		if _, err := os.Lstat(filepath.Join(to, name)); err == nil {
			continue // it was moved before; a present one is newer
		}
		err := os.Rename(filepath.Join(dir, name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("move damaged data aside: %w", err)
		}
	}
	if err := errors.Join(disk.SyncFolder(to), disk.SyncFolder(dir)); err != nil {
		return "", fmt.Errorf("move damaged data aside: %w", err)
	}
	n.Moving = ""
	return to, n.save(dir)
}

// remember stores the list of the other members, for a loss of the data.
func (s *Store) remember() error {
	var others []other
	for _, m := range s.servers() {
		if string(m.ID) == s.node.ID {
			continue
		}
		is := s.member(m)
		others = append(others, other{is.ID, is.Name, is.Address})
	}
	s.nodeMu.Lock()
	defer s.nodeMu.Unlock()
	begun := s.node.Began || s.raft.LastIndex() > 0
	unknown := len(s.servers()) == 0 // raft has no list yet
	if begun == s.node.Began && (unknown || slices.Equal(others, s.node.Others)) {
		return nil
	}
	if s.node.Began = begun; !unknown {
		s.node.Others = others
	}
	return s.node.save(s.cfg.Dir)
}

// hasBegun notes that there is a log.
func (s *Store) hasBegun() error {
	s.nodeMu.Lock()
	defer s.nodeMu.Unlock()
	s.node.Began = true
	return s.node.save(s.cfg.Dir)
}

// reachEvery is how often a node notes how far it is. The next start does not detect that entries of that time before
// a kill were cut off its log; after an orderly stop it detects all.
const reachEvery = 5 * time.Second

// noteReach notes how far this node is, now and then, until ctx ends.
func (s *Store) noteReach(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-time.After(reachEvery):
		}
		if err := s.reach(); err != nil {
			s.fail(err)
			return
		}
	}
}

// reach notes how far this node is.
func (s *Store) reach() error {
	applied := s.raft.AppliedIndex() // so it is committed, on this disk, and final
	s.nodeMu.Lock()
	defer s.nodeMu.Unlock()
	if applied <= s.node.Reached {
		return nil
	}
	s.node.Reached = applied
	return s.node.save(s.cfg.Dir)
}

// reaches refuses a log that ends before what was applied here. index is the newest snapshot's.
func (s *Store) reaches(index uint64) error {
	last, err := s.log.LastIndex()
	if err != nil {
		return fmt.Errorf("read log %s: %w", s.log.path, err)
	}
	if last = max(last, index); last < s.node.Reached {
		return &disk.Damaged{Path: s.log.path, What: fmt.Sprintf("it ends with entry %d, and entry %d was applied here", last, s.node.Reached)}
	}
	return nil
}

// known are the other members, by raft's list or the stored one.
func (s *Store) known() []other {
	s.nodeMu.Lock()
	then := append([]other(nil), s.node.Others...)
	s.nodeMu.Unlock()
	for _, m := range s.servers() {
		at := -1
		for i := range then {
			if then[i].ID == string(m.ID) {
				at = i
			}
		}
		switch {
		case string(m.ID) == s.node.ID:
		case at < 0:
			then = append(then, other{ID: string(m.ID), Address: string(m.Address)})
		default:
			then[at].Address = string(m.Address)
		}
	}
	return then
}

// servers are the members as raft has them, none before it has begun.
func (s *Store) servers() []raft.Server {
	if r := s.raftNow(); r != nil {
		return r.GetConfiguration().Configuration().Servers
	}
	return nil
}
