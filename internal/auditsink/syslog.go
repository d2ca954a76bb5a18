package auditsink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// priority is facility 13 (log audit), severity 6 (informational).
	priority = 13*8 + 6
	// maxDatagram is the longest message over UDP.
	maxDatagram = 65_000
	// resent is how many of the last lines are sent again over a new connection: syslog acknowledges nothing, so they may
	// be lost with the old one.
	resent = 200
)

// syslog sends messages of RFC 5424: over TCP and TLS with their length before them (RFC 6587, RFC 5425), over UDP and Unix
// sockets one in a datagram.
type syslog struct {
	name, network, address, host string
	tls                          *tls.Config // nil = none

	conn   net.Conn
	gone   *atomic.Bool // the other end closed conn
	last   [][]byte     // lines that were sent over the last connection
	framed bool
}

func newSyslog(name, how string, u *url.URL, cfg Config) (Sink, error) {
	s := &syslog{name: name, network: how, address: u.Host, host: field(cfg.Host)}
	switch how {
	case "tcp", "udp", "tls":
		if u.Port() == "" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.User != nil {
			return nil, fmt.Errorf("sink %s: invalid address: want syslog+%s://host:port", name, how)
		}
		s.framed = how != "udp"
	case "unix":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") {
			return nil, fmt.Errorf("sink %s: invalid address: want syslog+unix:///path", name)
		}
		s.address, s.network = u.Path, "unixgram"
	default:
		return nil, fmt.Errorf("sink %s: unknown syslog transport %q: want tls, tcp, udp or unix", name, how)
	}
	if how != "tls" {
		return s, nil
	}
	var err error
	s.network = "tcp"
	s.tls, err = cfg.verify(name, u.Hostname())
	return s, err
}

// field is a text as a field of the header: printable ASCII without spaces, or "-".
func field(text string) string {
	text = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	if text == "" {
		return "-"
	}
	return text[:min(len(text), 255)]
}

func (s *syslog) Name() string { return s.name }

// message is a message of RFC 5424.
func message(at time.Time, host string, pid int, text []byte) []byte {
	return fmt.Appendf(nil, "<%d>1 %s %s carillon %d audit - %s", priority, at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), host, pid, text)
}

// Send sends the lines. A connection that was closed meanwhile is made again, with the last lines once more.
func (s *syslog) Send(ctx context.Context, lines [][]byte) error {
	if s.conn != nil && s.gone.Load() {
		s.Close()
	}
	send := lines
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return err
		}
		send = append(append([][]byte{}, s.last...), lines...)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := s.conn.SetWriteDeadline(deadline); err != nil {
			return s.broken(err)
		}
	}
	var out []byte
	for _, line := range send {
		m := message(time.Now(), s.host, os.Getpid(), bytes.TrimSuffix(line, []byte{'\n'}))
		if s.framed {
			out = append(strconv.AppendInt(out, int64(len(m)), 10), ' ')
			out = append(out, m...)
			if _, err := s.conn.Write(out); err != nil {
				return s.broken(err)
			}
			out = out[:0]
			continue
		}
		if s.network == "udp" && len(m) > maxDatagram {
			return fmt.Errorf("a message has %d bytes, and a datagram at most %d: use TCP or TLS", len(m), maxDatagram)
		}
		if _, err := s.conn.Write(m); err != nil {
			return s.broken(err)
		}
	}
	s.last = append(s.last, lines...)
	s.last = append([][]byte{}, s.last[max(0, len(s.last)-resent):]...)
	return nil
}

func (s *syslog) broken(err error) error {
	s.Close()
	return err
}

// Close closes the connection.
func (s *syslog) Close() {
	if s.conn != nil {
		_ = s.conn.Close() // what was written is with the system
		s.conn = nil
	}
}

func (s *syslog) connect(ctx context.Context) (err error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	var conn net.Conn
	if s.tls != nil {
		conn, err = (&tls.Dialer{NetDialer: &d, Config: s.tls}).DialContext(ctx, s.network, s.address)
	} else {
		conn, err = d.DialContext(ctx, s.network, s.address)
	}
	if err != nil {
		return err
	}
	s.conn, s.gone = conn, new(atomic.Bool)
	if s.framed {
		go watch(conn, s.gone)
	}
	return nil
}

// watch reads until the other end closes the connection: without it, a write would succeed once more and be lost.
func watch(conn net.Conn, gone *atomic.Bool) {
	_, err := io.Copy(io.Discard, conn)
	if !errors.Is(err, net.ErrClosed) {
		gone.Store(true)
	}
}
