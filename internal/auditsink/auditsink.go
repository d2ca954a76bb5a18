// Package auditsink sends lines of the audit to files, syslog servers and webhooks. It is not promised.
//
// Where to start: [Parse] makes a [Sink] of its address. What is sent, and when, is the leader's: controlplane/export.go.
package auditsink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Sink receives lines. It is used by one goroutine at a time.
type Sink interface {
	// Name is what the store records progress under.
	Name() string
	// Send delivers lines, each with its line feed. After an error, some of them may have been delivered: they are sent
	// again.
	Send(ctx context.Context, lines [][]byte) error
	// Close closes files and connections. The next Send opens them again.
	Close()
}

// Config is what sinks have in common.
type Config struct {
	Host   string // name of this machine, in syslog messages
	CA     string // file with the authorities that TLS servers are verified against; "" = those of the system
	Secret []byte // signs requests of webhooks
}

// Parse makes a sink of its name and address:
//
//	/var/log/carillon/audit.jsonl    a file, by its absolute path
//	syslog+tls://logs.example:6514   also syslog+tcp, syslog+udp, and syslog+unix:///dev/log
//	https://audit.example/carillon   a webhook; http:// on this machine
func Parse(name, address string, cfg Config) (Sink, error) {
	if err := kernel.CheckName("sink of the audit", name); err != nil {
		return nil, err
	}
	if filepath.IsAbs(address) {
		return &file{name: name, path: filepath.Clean(address)}, nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("sink %s: invalid address: %w", name, bare(err))
	}
	how, isSyslog := strings.CutPrefix(u.Scheme, "syslog+")
	switch {
	case isSyslog:
		return newSyslog(name, how, u, cfg)
	case u.Scheme == "https", u.Scheme == "http":
		return newWebhook(name, u, cfg)
	}
	return nil, fmt.Errorf("sink %s: invalid address: want a path that begins with a slash, syslog+tls://host:port, syslog+tcp, syslog+udp, syslog+unix:///path, or https://host/path", name)
}

// verify is how a server is verified.
func (c Config) verify(name, host string) (*tls.Config, error) {
	t := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if c.CA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", name, err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("sink %s: %s has no certificate", name, c.CA)
	}
	return t, nil
}

// bare is an error of a URL without the URL, which may have a secret.
func bare(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
