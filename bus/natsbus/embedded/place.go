package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/bus/natsbus"
)

// Place returns where others reach a server that listens: at host, or else at the address that it listens at, or at local
// if that is all addresses of this machine.
func (s *Server) Place(host, local string) (p natsbus.Place, err error) {
	addr, ok := s.nats.Load().Addr().(*net.TCPAddr)
	if !ok {
		return p, errors.New("the NATS server of this process does not listen")
	}
	switch {
	case host != "":
	case addr.IP.IsUnspecified():
		host = local
	default:
		host = addr.IP.String()
	}
	p.Address = net.JoinHostPort(host, strconv.Itoa(addr.Port))
	if s.tls == nil {
		return p, nil
	}
	certificate, err := s.certificate()
	if err != nil {
		return p, err
	}
	hash := sha256.Sum256(certificate)
	p.Certificate = hash[:]
	return p, nil
}

// certificate is the server's at this moment.
func (s *Server) certificate() ([]byte, error) {
	switch {
	case s.tls.GetCertificate != nil:
		c, err := s.tls.GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			return nil, err
		}
		return c.Certificate[0], nil
	case len(s.tls.Certificates) == 1:
		return s.tls.Certificates[0].Certificate[0], nil
	}
	return nil, errors.New("the NATS server of this process has no single certificate")
}

// SelfSigned is TLS with a certificate of its own, for clients that know its hash.
func SelfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// Clients compare the hash, and no time: a process may run for years.
	now := time.Now()
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(100, 0, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}, nil
}
