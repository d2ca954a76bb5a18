package embedded

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// verifyEvery is how often the servers at the other ends of open routes are verified again.
const verifyEvery = time.Second

// verifier remembers which certificates other servers have shown, so that those of open routes can be verified again.
type verifier struct {
	verify func(tls.ConnectionState) error

	mu     sync.Mutex
	valid  map[string]tls.ConnectionState // by pin
	barred bool                           // a valid one was refused later
	routes map[uint64]bool                // that were open when refused ones were last closed
}

// remembering returns a configuration that verifies as c does, and remembers what was valid.
func (v *verifier) remembering(c *tls.Config) *tls.Config {
	v.verify, v.valid = c.VerifyConnection, map[string]tls.ConnectionState{}
	c = c.Clone()
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server at the other end shows no certificate")
		}
		if err := v.verify(s); err != nil {
			return err
		}
		shown := s.PeerCertificates[0]
		v.mu.Lock()
		defer v.mu.Unlock()
		v.valid[pin(shown)] = tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown}}
		return nil
	}
	return c
}

// pin returns a server's name for the key of a certificate.
func pin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// again verifies all that were valid once more. close reports that routes of others may be open: a certificate is
// refused now, or was before, and a route has come since, whose handshake may be older than that.
func (v *verifier) again(routes map[uint64]bool) (valid server.PinnedCertSet, close bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	valid = server.PinnedCertSet{}
	for key, state := range v.valid {
		if v.verify(state) != nil {
			delete(v.valid, key)
			v.barred, close = true, true
			continue
		}
		valid[key] = struct{}{}
	}
	for id := range routes {
		close = close || v.barred && !v.routes[id]
	}
	if close {
		v.routes = routes
	}
	return valid, close
}

// verifyRoutes verifies the other servers every second until end is closed.
func (s *Server) verifyRoutes(end <-chan struct{}) {
	tick := time.NewTicker(verifyEvery)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return
		case <-tick.C:
		}
		if !s.turn.TryLock() { // it is being stopped
			continue
		}
		if err := s.closeInvalid(); err != nil && s.log.to != nil {
			s.log.to.Error("routes of removed NATS servers were not closed", "err", err)
		}
		s.turn.Unlock()
	}
}

// closeInvalid closes the routes whose other end is not valid any more. A server closes routes only by a reload of its
// options: with a list of the valid keys, and then without it, so that a new one can connect. Clients stay connected.
func (s *Server) closeInvalid() error {
	n := s.nats.Load()
	all, err := n.Routez(nil)
	if err != nil {
		return err
	}
	routes := map[uint64]bool{}
	for _, r := range all.Routes {
		routes[r.Rid] = true
	}
	valid, close := s.verifier.again(routes)
	if !close {
		return nil
	}
	for _, pins := range []server.PinnedCertSet{valid, nil} {
		options := s.options.Clone()
		options.Cluster.TLSPinnedCerts = pins
		if err := n.ReloadOptions(options); err != nil {
			return fmt.Errorf("reload the options of the NATS server: %w", err)
		}
	}
	return nil
}
