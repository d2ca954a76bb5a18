package raftstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// Identity is the key of a directory's node, and its list of members: raft's configuration, or before raft has
// started, the list in node.json. A program with other connections between its nodes, such as NATS servers, secures
// them with the same Identity, so that removing a node removes it from all at once.
type Identity struct {
	key *link.Key

	mu         sync.Mutex
	raft       *raft.Raft
	listed     []string             // the other members, while raft has no configuration
	last       []string             // the other members at the last look
	introduced map[string]time.Time // nodes that a member has introduced, and when
}

// introduction is how long a node counts as a member, at most, because a member introduced it.
const introduction = time.Minute

// keyFile holds the key of a directory's node. It is made once, and no other node ever gets it.
const keyFile = "node.key"

// Identify reads the key of a directory's node, or makes one in a directory that has no node yet.
func Identify(dir string) (*Identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the key of the node: %w", err)
	}
	path := filepath.Join(dir, keyFile)
	n, err := loadNode(dir)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && n == nil {
		return makeKey(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &disk.Damaged{Path: path, What: "it is missing"}
	}
	if err != nil {
		return nil, fmt.Errorf("open the key of the node: %w", err)
	}
	key, err := link.ParseKey(text)
	if err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	i := &Identity{key: key}
	if n != nil {
		if n.ID != key.Node() {
			return nil, &disk.Damaged{Path: path, What: fmt.Sprintf("it is the key of node %s, and this is the directory of node %s", key.Node(), n.ID)}
		}
		i.list(n.Others)
	}
	return i, nil
}

func makeKey(path string) (*Identity, error) {
	key, err := link.NewKey()
	if err != nil {
		return nil, fmt.Errorf("make the key of the node: %w", err)
	}
	text, err := key.PEM()
	if err == nil {
		err = writeWhole(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("make the key of the node: %w", err)
	}
	return &Identity{key: key}, nil
}

// Node is the ID of the node.
func (i *Identity) Node() string { return i.key.Node() }

// Routes is the configuration of TLS between programs of members, at both ends. Its VerifyConnection refuses a node
// that is not a member at that moment; open connections can be checked with it again.
func (i *Identity) Routes() *tls.Config { return i.key.TLS(link.ProtocolRoute, i.Member) }

// Member returns why a node is not a member of this one's cluster, as far as this one knows.
func (i *Identity) Member(node string) error {
	if node == i.Node() {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Contains(i.others(), node) {
		return nil
	}
	if at, is := i.introduced[node]; is && time.Since(at) < introduction {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "node %.60q is not a member of this cluster", node)
}

// others are the members without this node. A list that has changed is newer than any introduction. The lock is held.
func (i *Identity) others() []string {
	others := i.listed
	if i.raft != nil {
		// Otherwise it has no log yet.
		if servers := i.raft.GetConfiguration().Configuration().Servers; len(servers) > 0 {
			others = make([]string, 0, len(servers))
			for _, s := range servers {
				if string(s.ID) != i.Node() {
					others = append(others, string(s.ID))
				}
			}
			slices.Sort(others)
		}
	}
	if !slices.Equal(others, i.last) {
		i.last, i.introduced = others, nil
	}
	return others
}

// list sets the members that apply before raft knows them.
func (i *Identity) list(others []other) {
	var ids []string
	for _, o := range others {
		ids = append(ids, o.ID)
	}
	slices.Sort(ids)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listed = ids
}

// follow uses raft's list from now on.
func (i *Identity) follow(r *raft.Raft) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.raft = r
}

// introduce counts a node as a member because a member named it: one that joined while this node was down, and leads
// by now. It expires when this node's own list changes, or soon.
func (i *Identity) introduce(node string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Contains(i.others(), node) {
		return
	}
	if i.introduced == nil {
		i.introduced = map[string]time.Time{}
	}
	i.introduced[node] = time.Now()
}
