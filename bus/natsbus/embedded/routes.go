package embedded

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Cluster is how servers find each other. Without Routes and Addr there is none. A queue of offers can be made by the
// first server at once, by others once two of them have met, and while a majority is there.
type Cluster struct {
	Name   string   // the same at all of them. Default: carillon
	Addr   string   // host:port where the others connect
	Routes []string // host:port of the others, as far as they are known; its own is ignored
	// First means that there are no others yet: the server does not wait for them. It is ignored where the server has
	// been one of several before. Only one may begin so.
	First bool
	// TLS secures the connections between them, at both ends, and its VerifyConnection refuses those that are none of
	// them. An open connection is verified again every second, and closed when it is refused. Default: no TLS and no
	// authentication, which is for tests.
	TLS *tls.Config
}

func (c Cluster) alone() bool { return c.Addr == "" && len(c.Routes) == 0 }

// into makes a server a member of a cluster.
func (c Cluster) into(o *server.Options) error {
	host, port, err := net.SplitHostPort(cmp.Or(c.Addr, "127.0.0.1:0"))
	if err != nil {
		return kernel.Invalid("the cluster's address %q is not like host:port", c.Addr)
	}
	o.Cluster = server.ClusterOpts{Name: cmp.Or(c.Name, "carillon"), Host: host, NoAdvertise: true, ConnectRetries: -1}
	if o.Cluster.Port, err = strconv.Atoi(port); err != nil {
		return kernel.Invalid("the cluster's address %q has no number for a port", c.Addr)
	}
	o.Cluster.Port = cmp.Or(o.Cluster.Port, server.RANDOM_PORT)
	if c.TLS != nil {
		if c.TLS.VerifyConnection == nil || c.TLS.ClientAuth < tls.RequireAnyClientCert {
			return kernel.Invalid("the TLS configuration between NATS servers does not limit who may connect: set ClientAuth and VerifyConnection")
		}
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = c.TLS, 5
	}
	// Data in the cluster finds its server by a tag; tags have no capitals.
	o.Tags.Add(placeTag + hex.EncodeToString([]byte(o.ServerName)))
	routes := c.Routes
	if len(routes) == 0 { // JetStream requires one, which may be to itself: the others will connect
		routes = []string{c.Addr}
	}
	for _, to := range routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: to})
	}
	return nil
}

const placeTag = "carillon:"

// begin has a server that is the first of its cluster be a majority by itself. Otherwise a server waits until it has
// met a second one, with any configuration, unless it finds stored that it has been one of one.
func (c Cluster) begin(o *server.Options, id string) error {
	dir := filepath.Join(o.StoreDir, "jetstream", server.DEFAULT_SYSTEM_ACCOUNT, "_js_", "_meta_")
	path := filepath.Join(dir, "peers.idx")
	if _, err := os.Stat(path); err == nil || !c.First {
		return nil
	}
	of := binary.LittleEndian.AppendUint32(nil, 1) // how many there are,
	of = binary.LittleEndian.AppendUint32(of, 1)   // and are known,
	of = append(of, id...)                         // who they are,
	of = binary.LittleEndian.AppendUint16(of, 0)   // and that no other cluster is extended by them
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(path, of, 0o600)
	}
	if err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	return nil
}

// temporaryPeer is a second server for the first one until that has begun: its raft group of one waits until there is a
// route to any other. It stores nothing, receives only from this one, and ends as soon as it has done its service.
func (s *Server) temporaryPeer(end <-chan struct{}) error {
	n := s.nats.Load()
	port := s.options.Cluster
	n2, err := server.NewServer(&server.Options{ServerName: s.options.ServerName + "-begins", NoSigs: true, NoLog: true,
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: steward, Password: rand.Text(), // without a port it would have no routes
		Cluster: server.ClusterOpts{Name: port.Name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoAdvertise: true, TLSConfig: port.TLSConfig, TLSTimeout: port.TLSTimeout},
		Routes:  []*url.URL{{Scheme: "nats-route", Host: net.JoinHostPort(reached(port.Host), strconv.Itoa(n.ClusterAddr().Port))}}})
	if err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	n2.Start()
	s.idle.Go(func() {
		look := time.NewTicker(20 * time.Millisecond)
		defer look.Stop()
		for n.Running() && !n.JetStreamIsLeader() {
			select {
			case <-end:
				n.Shutdown() // or it would wait for its route to end
			case <-look.C:
			}
		}
		n2.Shutdown()
		n2.WaitForShutdown()
	})
	return nil
}

// reached returns where a listening host can be reached from itself.
func reached(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// Place returns the tag by which streams are put on this server, or "" without a cluster.
func (s *Server) Place() string { return s.tag }

// ClusterAddr returns where other servers connect, or "".
func (s *Server) ClusterAddr() string {
	if addr := s.nats.Load().ClusterAddr(); addr != nil {
		return addr.String()
	}
	return ""
}
