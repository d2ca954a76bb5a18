package link

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

// Authority is a cluster's own: the key that all its nodes hold, and that no other has. With it, each node makes itself
// a certificate for as long as it runs. It is made once, when the cluster begins, and given to nodes that join.
type Authority struct {
	Certificate []byte `json:"certificate"` // DER
	Key         []byte `json:"key"`         // an Ed25519 seed
}

// lifetime is that of an authority and of what it signs: nothing lapses that nobody would renew.
const lifetime = 100 * 365 * 24 * time.Hour

// NewAuthority makes a key for a cluster.
func NewAuthority(cluster string) (*Authority, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	is := template("cluster "+cluster, lifetime)
	is.IsCA, is.BasicConstraintsValid = true, true
	is.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, is, is, public, private)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate: %w", err)
	}
	return &Authority{Certificate: der, Key: private.Seed()}, nil
}

// Pin is a fingerprint of the authority's certificate, by which a node that joins knows it.
func (a *Authority) Pin() string {
	sum := sha256.Sum256(a.Certificate)
	return hex.EncodeToString(sum[:])
}

func template(name string, life time.Duration) *x509.Certificate {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		number = big.NewInt(time.Now().UnixNano())
	}
	return &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(life), // clocks differ
	}
}

// Files are a certificate, its key and the authority of all nodes' certificates, as PEM, for who has an authority of
// its own. Name is a DNS name that the certificates of all nodes carry and no others do.
type Files struct {
	Certificate, Key, Authority string
	Name                        string
}

// Keys are what a node proves itself by.
type Keys struct {
	own   *tls.Certificate // nil: it has none yet
	roots *x509.CertPool   // nil: only what has the pin is believed
	pin   string
	name  string // that certificates must carry
	bound bool   // a certificate names its node
}

func nameOf(cluster string) string { return cluster + ".carillon.internal" }

// Keys are a node's, by the key of its cluster.
func (a *Authority) Keys(cluster, node string) (*Keys, error) {
	root, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's certificate: %w", err)
	}
	if len(a.Key) != ed25519.SeedSize {
		return nil, errors.New("read the cluster's key: it has the wrong length")
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	is := template(node, lifetime)
	is.DNSNames = []string{nameOf(cluster)}
	is.KeyUsage = x509.KeyUsageDigitalSignature
	is.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, is, root, public, ed25519.NewKeyFromSeed(a.Key))
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return &Keys{own: &tls.Certificate{Certificate: [][]byte{der, a.Certificate}, PrivateKey: private}, roots: roots, name: nameOf(cluster), bound: true}, nil
}

// Keys are a node's, by certificates that somebody else has made.
func (f Files) Keys() (*Keys, error) {
	if f.Name == "" {
		return nil, errors.New("certificates between nodes need a name that all of them carry and no others do")
	}
	own, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate between nodes: %w", err)
	}
	pem, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, fmt.Errorf("read the authority between nodes: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read the authority between nodes: %s holds no certificate", f.Authority)
	}
	return &Keys{own: &own, roots: roots, name: f.Name}, nil
}

// Pinned are the keys of a node that joins: it has none, and knows the cluster by its pin.
func Pinned(cluster, pin string) *Keys { return &Keys{pin: pin, name: nameOf(cluster)} }

func (k *Keys) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*k.own},
		ClientAuth: tls.RequestClientCert, // what comes is looked at in belongs
	}
}

func (k *Keys) client() *tls.Config {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection does it: a node is no host name
		VerifyConnection:   func(s tls.ConnectionState) error { return k.verify(s, x509.ExtKeyUsageServerAuth) },
	}
	if k.own != nil {
		c.Certificates = []tls.Certificate{*k.own}
	}
	return c
}

// belongs says whether the other side has proved that it is a node of the cluster.
func (k *Keys) belongs(s tls.ConnectionState, node string) error {
	if err := k.verify(s, x509.ExtKeyUsageClientAuth); err != nil {
		return err
	}
	if is := s.PeerCertificates[0].Subject.CommonName; k.bound && is != node {
		return fmt.Errorf("the certificate is of node %.60q, not of %.60q", is, node)
	}
	return nil
}

// verify says whether a certificate is one of the cluster's nodes.
func (k *Keys) verify(s tls.ConnectionState, usage x509.ExtKeyUsage) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("there is no certificate")
	}
	roots, between := k.roots, x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
		if sum := sha256.Sum256(c.Raw); k.pin != "" && hex.EncodeToString(sum[:]) == k.pin {
			roots = x509.NewCertPool()
			roots.AddCert(c)
		}
	}
	if roots == nil {
		return errors.New("the certificate is not of the cluster that the token is for")
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: k.name, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return fmt.Errorf("the certificate is not one of the cluster's: %w", err)
	}
	return nil
}
