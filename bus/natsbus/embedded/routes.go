package embedded

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Cluster is how servers find each other. It takes part in none if Routes and Addr are empty. A queue of offers can be
// made by the first at once, by others once two of them have met, and while most of those that have are there.
type Cluster struct {
	Name   string   // the same at all of them. Default: carillon
	Addr   string   // host:port where the others come to
	Routes []string // host:port of the others, as far as they are known; its own among them does no harm
	// First says that there are no others yet: the server does not wait for them. It means nothing where the server has
	// been one of several before. Only one may begin so.
	First bool
	// Secret is what all of them know and nobody else does: what goes between them is encrypted, and whoever does not
	// know it is let in nowhere. Default: it goes in the clear, and anybody is let in, which is for tests.
	Secret string
}

// leastSecret is how long a secret is at least. It is made by a machine, not thought of.
const leastSecret = 20

func (c Cluster) alone() bool { return c.Addr == "" && len(c.Routes) == 0 }

// into makes a server one of a cluster.
func (c Cluster) into(o *server.Options) error {
	host, port, err := net.SplitHostPort(cmp.Or(c.Addr, "127.0.0.1:0"))
	if err != nil {
		return jobs.Invalid("the cluster's address %q is not like host:port", c.Addr)
	}
	o.Cluster = server.ClusterOpts{Name: cmp.Or(c.Name, "carillon"), Host: host, NoAdvertise: true, ConnectRetries: -1}
	if o.Cluster.Port, err = strconv.Atoi(port); err != nil {
		return jobs.Invalid("the cluster's address %q has no number for a port", c.Addr)
	}
	o.Cluster.Port = cmp.Or(o.Cluster.Port, server.RANDOM_PORT)
	if c.Secret != "" {
		if len(c.Secret) < leastSecret {
			return jobs.Invalid("the secret of the cluster has %d characters: %d are the least", len(c.Secret), leastSecret)
		}
		if o.Cluster.TLSConfig, err = mutual(c.Secret); err != nil {
			return fmt.Errorf("make the cluster's certificate: %w", err)
		}
		o.Cluster.TLSTimeout = 5
	}
	// What is kept in the cluster finds its server by a tag; tags know no capitals.
	o.Tags.Add(placeTag + hex.EncodeToString([]byte(o.ServerName)))
	routes := c.Routes
	if len(routes) == 0 { // JetStream wants one, be it to itself: the others will come
		routes = []string{c.Addr}
	}
	for _, to := range routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: to})
	}
	return nil
}

const placeTag = "carillon:"

// mutual makes of a secret a key that both ends have, and of that the certificate that each shows the other. Names and
// dates in it mean nothing: who has the key is one of us.
func mutual(secret string) (*tls.Config, error) {
	seed := sha256.Sum256([]byte("carillon routes 1\n" + secret))
	key := ed25519.NewKeyFromSeed(seed[:])
	ours := key.Public().(ed25519.PublicKey)
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "carillon"}, DNSNames: []string{"carillon"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(100 * 365 * 24 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, ours, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // of names and dates; the key is looked at here:
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) > 0 {
				if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); ok && ours.Equal(theirs) {
					return nil
				}
			}
			return errors.New("the server at the other end does not know the secret of the cluster")
		},
	}, nil
}

// begin has a server that is the first of its cluster be a majority by itself. By its own account a server waits until
// it has met a second one, whatever it is told, unless it finds written that it has been one of one.
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

// neighbour keeps a server company until it has begun: its raft group of one waits until there is a route to anybody.
// It is a server that keeps nothing, hears nobody but this one, and goes as soon as it has done its service.
func (s *Server) neighbour(end <-chan struct{}) error {
	n := s.nats.Load()
	port := s.options.Cluster
	n2, err := server.NewServer(&server.Options{ServerName: s.options.ServerName + "-begins", NoSigs: true, NoLog: true,
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: insider, Password: rand.Text(), // without a port it would have no routes
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

// reached is where a host that listens can be reached from itself.
func reached(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return host
}

// Place is the tag by which streams are put on this server, or "" if there is no other that they could be on.
func (s *Server) Place() string { return s.tag }

// ClusterAddr is where other servers come to, or "".
func (s *Server) ClusterAddr() string {
	if addr := s.nats.Load().ClusterAddr(); addr != nil {
		return addr.String()
	}
	return ""
}
