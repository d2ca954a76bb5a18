package alarms

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// mostMail bounds the text of an e-mail, in bytes.
const mostMail = 256_000

// compose is the e-mail of a message: plain text, with a subject of one line. Its ID is the message's, so that mail
// programs that drop duplicates recognize a retry.
func (s SMTP) compose(t Target, m Message) (*mail.Msg, error) {
	e := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(e.From(s.From), e.To(t.To...)); err != nil {
		return nil, err
	}
	_, domain, _ := strings.Cut(s.From, "@")
	e.Subject(cut(oneLine(m.headline()), mostTitle))
	e.SetMessageIDWithValue(idText(m.ID) + "@" + domain)
	e.SetDateWithValue(m.At)
	e.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no answers of absent people
	e.SetGenHeader("Carillon-Event-Id", idText(m.ID))
	e.SetBodyString(mail.TypeTextPlain, cut(paragraphs(m), mostMail)+"\n")
	return e, nil
}

// idText keeps what a Message-ID may have.
func idText(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '-'
	}, id)
}

// mail sends an e-mail once. A permanent refusal of the message is final; a refused password is not, because it is a
// setting of the server, and correcting it delivers what waits.
func (s *Sender) mail(ctx context.Context, t Target, m Message) Answer {
	if s.cfg.SMTP.Address == "" {
		return Answer{Text: "no SMTP server is configured: set smtp.address"}
	}
	e, err := s.cfg.SMTP.compose(t, m)
	if err != nil {
		return Answer{Final: true, Text: redact(t, err.Error())}
	}
	var opened []net.Conn // the library leaves them open if STARTTLS fails
	defer func() {
		for _, conn := range opened {
			_ = conn.Close()
		}
	}()
	client, err := s.cfg.SMTP.client(func(conn net.Conn) { opened = append(opened, conn) })
	if err == nil {
		err = client.DialAndSendWithContext(ctx, e)
	}
	if e.IsDelivered() { // an error after that is of the farewell
		return Answer{Delivered: true, Status: 250}
	}
	if err == nil {
		err = errors.New("not delivered")
	}
	a := Answer{Text: redact(Target{Secret: s.cfg.SMTP.Password}, err.Error())}
	if refused, ok := errors.AsType[*mail.SendError](err); ok {
		a.Status = refused.ErrorCode()
		a.Final = a.Status >= 500 && !refused.IsTemp()
	}
	return a
}

// client returns a client of the server, which reports each connection without TLS to opened.
func (s SMTP) client(opened func(net.Conn)) (*mail.Client, error) {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, kernel.Invalid("invalid port of the SMTP server %q", port)
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.Roots != "" {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		text, err := os.ReadFile(s.Roots)
		if err != nil {
			return nil, err
		}
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, kernel.Invalid("%s has no certificate in PEM", s.Roots)
		}
	}
	options := []mail.Option{mail.WithTimeout(timeout), mail.WithTLSConfig(config), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithPort(number)}
	if s.TLS == PlainSMTP {
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if s.TLS == TLS {
		options = append(options, mail.WithSSL()) // the library must dial itself, or it takes the connection for a plain one
	} else {
		options = append(options, mail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
			if err == nil {
				opened(conn)
			}
			return conn, err
		}))
	}
	if s.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(s.User), mail.WithPassword(s.Password))
	}
	return mail.NewClient(host, options...)
}
