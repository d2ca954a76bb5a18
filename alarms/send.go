package alarms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// timeout bounds one request, or one e-mail.
const timeout = 10 * time.Second

// Config is how a Sender sends.
type Config struct {
	// SMTP is the server for e-mail; without an address, e-mail is refused.
	SMTP SMTP
	// Allow refuses addresses of HTTP targets, after the name was looked up; nil = all are allowed. TenantsAllow does so
	// for targets of other tenants than the default one, which do not inherit the networks of the server.
	Allow, TenantsAllow func(netip.AddrPort) error
	// Shows reports whether the text of a response from an address is shown; nil = all are. People with targets in an
	// allowed network could otherwise read what else is there.
	Shows func(netip.AddrPort) bool
	// Heartbeat is an http or https URL that the leader requests every minute; "" = none. It is secret but for its host.
	Heartbeat string
}

// Check returns why the configuration is invalid, or nil.
func (c Config) Check() error {
	if to, err := url.Parse(c.Heartbeat); c.Heartbeat != "" && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "") {
		return kernel.Invalid("invalid heartbeat URL: want http or https with a host") // it may hold a secret
	}
	return c.SMTP.check()
}

// Sender sends messages. It is safe for concurrent use.
type Sender struct {
	cfg          Config
	own, tenants *http.Client // of the default tenant, and of the others: they share no connections
}

// NewSender returns a sender.
func NewSender(c Config) (*Sender, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &Sender{cfg: c, own: client(c.Allow), tenants: client(c.TenantsAllow)}, nil
}

// client returns a client that connects to allowed addresses only.
func client(allow func(netip.AddrPort) error) *http.Client {
	dialer := &net.Dialer{Timeout: timeout}
	if allow != nil {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err == nil {
				err = allow(to)
			}
			if err != nil {
				return &refusedError{err}
			}
			return nil
		}
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect would carry the message elsewhere
		Transport: &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
			TLSHandshakeTimeout: timeout, MaxResponseHeaderBytes: 64 << 10}}
}

// clientOf returns the client for a tenant's targets.
func (s *Sender) clientOf(t jobs.Tenant) *http.Client {
	if t == jobs.DefaultTenant {
		return s.own
	}
	return s.tenants
}

// refusedError is a target whose address may not be called.
type refusedError struct{ error }

// Close closes idle connections.
func (s *Sender) Close() {
	s.own.CloseIdleConnections()
	s.tenants.CloseIdleConnections()
}

// Send sends a message once and returns the answer. Errors are answers, too.
func (s *Sender) Send(ctx context.Context, t Target, m Message) Answer {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := t.Check(); err != nil {
		return Answer{Final: true, Text: redact(t, err.Error())}
	}
	if t.Kind == Email {
		return s.mail(ctx, t, m)
	}
	encoded, err := Encode(t, m, time.Now())
	if err != nil {
		return Answer{Final: true, Text: redact(t, err.Error())}
	}
	var from netip.AddrPort
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		from, _ = netip.ParseAddrPort(got.Conn.RemoteAddr().String()) // an invalid address is not shown
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, encoded.URL, bytes.NewReader(encoded.Body))
	if err != nil {
		return Answer{Final: true, Text: "invalid URL"} // the error would name it
	}
	request.Header = encoded.Header
	request.Header.Set("User-Agent", "carillon")
	response, err := s.clientOf(m.Tenant).Do(request)
	if err != nil {
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err // without the URL
		}
		_, refused := errors.AsType[*refusedError](err)
		return Answer{Final: refused, Text: redact(t, err.Error())}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return Answer{Status: response.StatusCode, Text: redact(t, fmt.Sprintf("response not read: %v", err))}
	}
	answer := Judge(t, response.StatusCode, response.Header, body, time.Now())
	if s.cfg.Shows != nil && !s.cfg.Shows(from) {
		answer.Text = ""
	}
	return answer
}

// Heartbeat requests the heartbeat URL once. Errors do not name it.
func (s *Sender) Heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.Heartbeat, nil)
	if err != nil {
		return errors.New("invalid URL") // the error would name it
	}
	request.Header.Set("User-Agent", "carillon")
	response, err := s.own.Do(request)
	if err != nil {
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err // without the URL
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection is used again
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("status %d: want 2xx", response.StatusCode)
	}
	return nil
}

// TLS of an SMTP server.
const (
	StartTLS  = "starttls" // begins in plain text, and refuses to continue without TLS
	TLS       = "tls"      // from the first byte
	PlainSMTP = "none"     // for a server on this machine or in a trusted network
)

// SMTP is a mail server. The zero value is none.
type SMTP struct {
	Address  string // host:port
	TLS      string // StartTLS ("" too), TLS or PlainSMTP
	User     string // "" = no authentication
	Password string
	From     string // address of the sender
	Roots    string // file with certificates in PEM, besides the system's; "" = none
}

func (s SMTP) check() error {
	if s.Address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.Address)
	switch {
	case err != nil || host == "" || port == "":
		return kernel.Invalid("invalid address of the SMTP server %q: want host:port", s.Address)
	case s.TLS != "" && s.TLS != StartTLS && s.TLS != TLS && s.TLS != PlainSMTP:
		return kernel.Invalid("invalid TLS of the SMTP server %q: want starttls, tls or none", s.TLS)
	case s.User != "" && s.TLS == PlainSMTP && !loopback(host):
		return kernel.Invalid("the password of the SMTP server would be sent without TLS to %s: use starttls or tls", host)
	}
	if err := (Target{Kind: Email, To: []string{s.From}}).Check(); err != nil {
		return kernel.Invalid("invalid sender of e-mail %q: want an address such as carillon@example.com", s.From)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
