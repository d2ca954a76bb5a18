package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// Several nodes. Each has a copy of the rows and, unless NATS is external, a NATS server. Both have a port for the
// other nodes and prove there that they have a member's key. A file in the data directory has the routes of the other
// NATS servers; a new node gets it with its invitation.

// checkCluster checks the settings about other nodes.
func (c *config) checkCluster() {
	if c.Cluster.Addr == "" {
		for _, key := range []string{"cluster.nats-addr", "cluster.advertise", "cluster.join-file", "cluster.peers", "cluster.secret-file"} {
			if c.values[key].text != "" {
				c.wrong("%s (from %s) needs cluster.addr: set it to where other nodes reach this one", key, c.values[key].origin)
			}
		}
		return
	}
	switch {
	case c.Memory:
		c.wrong("cluster.addr (from %s) and memory are both set: nodes store their data on disk; remove one", c.values["cluster.addr"].origin)
	case c.Store != "":
		c.wrong("cluster.addr (from %s) and store.url are both set: nodes with one database need no cluster.addr, only the same nats.url", c.values["cluster.addr"].origin)
	case c.Cluster.NATS != "" && c.URL != "":
		c.wrong("cluster.nats-addr is for the built-in NATS server, but nats.url names an external one: remove one")
	}
	if _, err := c.routeAddr(); err != nil {
		c.wrong("%v", err)
		return
	}
	c.checkPeers()
	if host, _, _ := net.SplitHostPort(c.Cluster.Addr); c.Cluster.Advertise == "" && (host == "" || net.ParseIP(host).IsUnspecified()) {
		c.wrong("cluster.addr %s means every address of this machine: set cluster.advertise to the one that other nodes use", c.Cluster.Addr)
	}
}

// peers lists the addresses of cluster.peers.
func (c *clusterConfig) peers() []string {
	return strings.FieldsFunc(c.Peers, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkPeers checks the settings of nodes that find each other.
func (c *config) checkPeers() {
	peers, secret := c.Cluster.peers(), c.Cluster.SecretFile
	if len(peers) == 0 && secret == "" {
		return
	}
	switch {
	case c.Cluster.JoinFile != "":
		c.wrong("cluster.join-file (from %s) and cluster.peers are both set: a node joins by an invitation or by a secret; remove one", c.values["cluster.join-file"].origin)
	case len(peers) == 0:
		c.wrong("cluster.secret-file (from %s) needs cluster.peers: list the addresses of all nodes there", c.values["cluster.secret-file"].origin)
	case secret == "":
		c.wrong("cluster.peers (from %s) needs cluster.secret-file: a file with a secret that all nodes have", c.values["cluster.peers"].origin)
	default:
		if err := raftstore.CheckPeers(peers, c.advertised(c.Cluster.Addr)); err != nil {
			c.wrong("cluster.peers (from %s): %v", c.values["cluster.peers"].origin, err)
			return
		}
		c.checkPeerRoutes()
	}
}

// checkPeerRoutes refuses peers whose NATS servers would have one address: no node would find another's.
func (c *config) checkPeerRoutes() {
	routes, err := c.peerRoutes()
	if err != nil {
		return // CheckPeers and routeAddr have refused the address
	}
	of := map[string]string{}
	for i, peer := range c.Cluster.peers() {
		if other, is := of[routes[i]]; is {
			c.wrong("cluster.nats-addr (from %s) sets one port for the NATS servers of all peers, but %s and %s are on the same machine: "+
				"remove it, so that each uses the port after its own", c.values["cluster.nats-addr"].origin, other, peer)
			return
		}
		of[routes[i]] = peer
	}
}

// clusterSecret reads the secret that peers have in common, "" if there is none.
func (c *config) clusterSecret() (string, error) {
	if c.Cluster.SecretFile == "" {
		return "", nil
	}
	text, err := secretIn(c.Cluster.SecretFile)
	if err == nil {
		err = raftstore.CheckSecret(text)
	}
	if err != nil {
		return "", usage("cluster.secret-file: %s: %w", c.Cluster.SecretFile, err)
	}
	return text, nil
}

// peerRoutes returns the addresses of the peers' NATS servers: the port after each peer's, or that of
// cluster.nats-addr.
func (c *config) peerRoutes() (all []string, err error) {
	if c.URL != "" {
		return nil, nil
	}
	for _, peer := range c.Cluster.peers() {
		of := *c
		of.Cluster.Addr = peer
		route, err := of.routeAddr()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(peer)
		_, port, _ := net.SplitHostPort(route)
		all = append(all, net.JoinHostPort(host, port))
	}
	return all, nil
}

// routeAddr returns the route address of the NATS server in this process, "" if there is none.
func (c *config) routeAddr() (string, error) {
	host, port, err := net.SplitHostPort(c.Cluster.Addr)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 1 || n > 65534 {
		return "", fmt.Errorf("invalid cluster.addr %s: want host:port, such as 10.0.0.1:7946", c.Cluster.Addr)
	}
	if c.URL != "" {
		return "", nil
	}
	if c.Cluster.NATS == "" {
		return net.JoinHostPort(host, strconv.Itoa(n+1)), nil
	}
	if _, port, err = net.SplitHostPort(c.Cluster.NATS); err != nil || port == "" || port == "0" {
		return "", fmt.Errorf("invalid cluster.nats-addr %s: want host:port, such as 10.0.0.1:7947", c.Cluster.NATS)
	}
	return c.Cluster.NATS, nil
}

// advertised returns an address as other nodes use it.
func (c *config) advertised(addr string) string {
	if c.Cluster.Advertise == "" || addr == "" {
		return addr
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(c.Cluster.Advertise, port)
}

// natsCluster is how the NATS servers of a cluster find each other.
type natsCluster struct {
	Routes []string `json:"routes"` // of all nodes ever known
}

const (
	natsClusterFile = "cluster.json"
	invitationTitle = "carillon-node-1."
)

// invitation is what a node needs to join.
type invitation struct {
	Store       string      `json:"store"` // for the store
	NATSCluster natsCluster `json:"bond"`  // empty if the NATS servers are elsewhere
}

func (i invitation) String() string {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err) // strings can always be written
	}
	return invitationTitle + base64.RawURLEncoding.EncodeToString(b)
}

func readInvitation(path string) (i invitation, err error) {
	text, err := secretIn(path)
	if err != nil {
		return i, err
	}
	text, ours := strings.CutPrefix(text, invitationTitle)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if ours && err == nil {
		err = json.Unmarshal(b, &i)
	}
	if !ours || err != nil || i.Store == "" {
		return i, usage("%s has no invitation: want the line that carillon cluster invite prints, which begins with %s", path, invitationTitle)
	}
	return i, nil
}

// joins reads what this node needs in a cluster: its key, its NATS cluster, and an invitation if the config names one.
func (p *process) joins() (err error) {
	if p.cfg.Cluster.Addr == "" {
		return nil
	}
	if p.cfg.Cluster.JoinFile != "" {
		if p.invited, err = readInvitation(p.cfg.Cluster.JoinFile); err != nil {
			if _, there := os.Stat(p.dir(natsClusterFile)); there != nil || !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			err = nil // it has joined, and the file was deleted
		}
	}
	raw, err := os.ReadFile(p.dir(natsClusterFile))
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &p.natsCluster); err != nil {
			return fmt.Errorf("read %s: %w", p.dir(natsClusterFile), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		p.natsCluster = p.invited.NATSCluster
	}
	if p.secret, err = p.cfg.clusterSecret(); err != nil {
		return err
	}
	rows, err := raftstore.RowsIn(p.cfg.Data)
	if err != nil {
		return err
	}
	if p.identity, err = raftstore.Identify(rows); err != nil {
		return err
	}
	route, err := p.cfg.routeAddr()
	if err != nil {
		return err
	}
	p.route = p.cfg.advertised(route)
	peers, err := p.cfg.peerRoutes()
	if err != nil {
		return err
	}
	return p.bind(append(peers, p.route)...)
}

// bind stores the NATS cluster with these routes.
func (p *process) bind(routes ...string) error {
	all := slices.Clone(p.natsCluster.Routes)
	for _, r := range routes {
		if r != "" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	if _, err := os.Stat(p.dir(natsClusterFile)); err == nil && slices.Equal(all, p.natsCluster.Routes) {
		return nil
	}
	p.natsCluster.Routes = all
	raw, err := json.Marshal(p.natsCluster)
	if err == nil {
		err = os.MkdirAll(p.cfg.Data, 0o700)
	}
	if err == nil {
		err = os.WriteFile(p.dir(natsClusterFile)+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(p.dir(natsClusterFile)+".new", p.dir(natsClusterFile))
	}
	if err != nil {
		return fmt.Errorf("store the other nodes' routes: %w", err)
	}
	return nil
}

// servers returns how the NATS server in this process finds the others.
func (p *process) servers() (embedded.Cluster, error) {
	if p.cfg.Cluster.Addr == "" {
		return embedded.Cluster{}, nil
	}
	addr, err := p.cfg.routeAddr()
	return embedded.Cluster{Addr: addr, Routes: p.natsCluster.Routes, TLS: p.identity.Routes()}, err
}

// cluster returns the cluster configuration, nil on a single node.
func (p *process) cluster() *embed.Cluster {
	if p.cfg.Cluster.Addr == "" {
		return nil
	}
	c := &embed.Cluster{Addr: p.cfg.Cluster.Addr, Advertise: p.cfg.advertised(p.cfg.Cluster.Addr), Token: p.invited.Store, Route: p.route, Identity: p.identity,
		Peers: p.cfg.Cluster.peers(), Secret: p.secret}
	if fileExists(filepath.Join(p.dir(raftstore.RowsFolder), "node.json")) {
		c.Token = "" // it has joined
	}
	c.Invite = func(token string) (string, error) {
		i := invitation{Store: token}
		if p.route != "" {
			i.NATSCluster = natsCluster{Routes: p.routes()}
		}
		return i.String(), nil
	}
	return c
}

// routes returns the known routes of all nodes.
func (p *process) routes() []string {
	all := []string{p.route}
	if s := p.scheduler.Load(); s != nil {
		o := s.Ops()
		for _, n := range o.Live().Nodes() {
			if n.Route != "" && !slices.Contains(all, n.Route) {
				all = append(all, n.Route)
			}
		}
	}
	return all
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lookEvery is how often new nodes are looked for.
const lookEvery = 2 * time.Second

// rememberNodes stores the routes of the other nodes, so that this node finds them after a restart.
func (p *process) rememberNodes(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	episodes := episode.New(p.log)
	defer episodes.Reset()
	for p.route != "" {
		if err := p.bind(p.routes()...); err != nil {
			episodes.Failed(slog.LevelWarn, "", "the other nodes' routes were not stored", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	<-ctx.Done()
	return nil
}
