package link

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Key proves a node's identity: an Ed25519 key of its own, which never leaves it. The ID of a node is a digest of its
// public key, so a list of members is a list of the keys that may connect, and no other node can make a key for an
// ID. There is no certificate authority; a bootstrap secret (secret.go) only makes a key a member.
type Key struct {
	certificate tls.Certificate // self-signed; only its key means something
	node        string
}

// String is the node's ID: a key that is printed by mistake stays secret.
func (k Key) String() string { return k.node }

// GoString is String.
func (k Key) GoString() string { return k.node }

// NewKey makes a key.
func NewKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyOf(private)
}

const pemType = "PRIVATE KEY"

// ParseKey reads what PEM has written.
func ParseKey(text []byte) (*Key, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemType || len(rest) > 0 {
		return nil, errors.New("it has no private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("its key is not an Ed25519 key")
	}
	return keyOf(private)
}

func keyOf(private ed25519.PrivateKey) (*Key, error) {
	public := private.Public().(ed25519.PublicKey)
	node := nodeOf(public)
	// A serial number, names and dates are required by the format, and unused.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: node}, DNSNames: []string{"carillon"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &Key{certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, node: node}, nil
}

// PEM is the key in the form of a file.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.certificate.PrivateKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der}), nil
}

// Node is the ID of the node that holds the key.
func (k *Key) Node() string { return k.node }

func nodeOf(public ed25519.PublicKey) string {
	return kernel.DerivedID("node", string(public)).String()
}

// Protocols of connections between nodes, by which TLS keeps them apart.
const (
	ProtocolLink  = "carillon-link" // this package's
	ProtocolRoute = "carillon-route"
)

// TLS is the configuration of both ends of a connection: each shows its key, and the other end's node is checked by
// member, whose error ends the handshake.
func (k *Key) TLS(protocol string, member func(node string) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{k.certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // names, dates and authorities mean nothing here: VerifyConnection checks the key
		SessionTicketsDisabled: true,
		NextProtos:             []string{protocol},
		VerifyConnection: func(s tls.ConnectionState) error {
			node, err := peerOf(s)
			if err != nil {
				return err
			}
			return member(node)
		},
	}
}

// peerOf is the node whose key the other end has shown, and proved by the handshake to hold.
func peerOf(s tls.ConnectionState) (node string, err error) {
	if len(s.PeerCertificates) == 0 {
		return "", errors.New("the other end sent no certificate")
	}
	public, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return "", errors.New("the other end's certificate has no Ed25519 key")
	}
	return nodeOf(public), nil
}
