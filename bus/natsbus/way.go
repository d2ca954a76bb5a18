package natsbus

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// Way finds the server of the moment, without waiting. An error means that there is none now; it is asked again soon.
type Way func() (Place, error)

// Place is where a server is, and how to enter.
type Place struct {
	Inside  Server // the server is in this process; the other fields are then ignored
	Address string // host:port
	Token   string // credential
	// Certificate is the SHA-256 of the server's certificate, with which it must begin TLS at once; nil = no TLS.
	Certificate []byte
}

// PeerToken begins the tokens by which servers tell nodes from others.
const PeerToken = "carillon-node-"

// errCertificate: the server is another one, or has another certificate by now.
var errCertificate = errors.New("the server has another certificate than was announced")

// ReachTime is how long a connection may take: meanwhile the library holds a lock that much else needs.
const ReachTime = time.Second

// follow connects to where the way leads.
func (w *wires) follow() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(w.dialer.Timeout, ReachTime))
	defer cancel()
	place, err := w.way()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.place = place
	w.mu.Unlock()
	if place.Inside != nil {
		return place.Inside.InProcessConn()
	}
	c, err := w.dialer.DialContext(ctx, "tcp", place.Address)
	if err != nil || place.Certificate == nil {
		return c, err
	}
	secure := tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		hash := sha256.Sum256(s.PeerCertificates[0].Raw)
		if subtle.ConstantTimeCompare(hash[:], place.Certificate) != 1 {
			return errCertificate
		}
		return nil
	}})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return secure, nil
}

// SkipTLSHandshake reports whether connections have TLS already, if they need it. The library asks.
func (w *wires) SkipTLSHandshake() bool { return w.way != nil }

// token is the credential where the way has led.
func (w *wires) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if inside, ok := w.place.Inside.(Insider); ok {
		return inside.Insider()
	}
	return w.place.Token
}

// within reports whether the server is in this process.
func (w *wires) within() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inside != nil || w.place.Inside != nil
}

// Redial follows the way again: it leads elsewhere now.
func (b *Bus) Redial() {
	b.link.fall(errLost)      // at once, and not only when the library says so
	_ = b.nc.ForceReconnect() // or the bus is closed
}

// Connected reports whether there is a connection.
func (b *Bus) Connected() bool { return b.link.connected() }

// Inside reports whether there is a connection, to the server in this process.
func (b *Bus) Inside() bool { return b.link.connected() && b.wires.within() }
