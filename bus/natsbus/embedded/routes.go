package embedded

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Cluster is how servers find each other. Without Routes and Addr there is none. A server waits for no other one:
// there is no majority.
type Cluster struct {
	Name   string   // the same at all of them. Default: carillon
	Addr   string   // host:port where the others connect
	Routes []string // host:port of the others, as far as they are known; its own is ignored
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
	for _, to := range c.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: to})
	}
	return nil
}

// ClusterAddr returns where other servers connect, or "".
func (s *Server) ClusterAddr() string {
	if addr := s.nats.Load().ClusterAddr(); addr != nil {
		return addr.String()
	}
	return ""
}
