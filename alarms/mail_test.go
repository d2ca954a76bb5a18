package alarms_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"mime"
	"net"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// received is what the SMTP server of a test accepted.
type received struct {
	TLS  bool     `json:"tls"`
	From string   `json:"from"`
	To   []string `json:"to"`
	Text string   `json:"text"`
}

// smtpServer starts an SMTP server of Debian that wants TLS and a password, and returns its address and lines.
func smtpServer(t *testing.T, certificate, key, user, password, mode string) (address string, lines *bufio.Scanner) {
	t.Helper()
	python := ""
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import aiosmtpd").Run() == nil {
			python = name
			break
		}
	}
	if python == "" {
		tests.Missing(t, "python3-aiosmtpd")
	}
	cmd := exec.Command(python, "testdata/smtpd.py", certificate, key, user, password, mode)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines = bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the SMTP server did not start")
	}
	return net.JoinHostPort("127.0.0.1", lines.Text()), lines
}

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
}

// An e-mail goes over TLS with authentication; texts of a message become no header; refusals are told apart.
func TestMail(t *testing.T) {
	const password = "a password of the server"
	cert, key := certificate(t)
	address, lines := smtpServer(t, cert, key, "carillon", password, alarms.StartTLS)
	sender := func(change func(*alarms.SMTP)) *alarms.Sender {
		t.Helper()
		c := alarms.SMTP{Address: address, User: "carillon", Password: password, From: "carillon@example.com", Roots: cert}
		if change != nil {
			change(&c)
		}
		s, err := alarms.NewSender(alarms.Config{SMTP: c})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m := message()
	m.Title = "Größe\r\nBcc: eve@example.com\r\n\r\nwrong"
	m.ID = "0199>\r\nX-Injected: 1"
	m.Text = "first\n.\nQUIT\r\n.\r\nlast"
	to := alarms.Target{Kind: alarms.Email, To: []string{"ops@example.com", "oncall@example.com"}}
	if a := sender(nil).Send(t.Context(), to, m); !a.Delivered || a.Status != 250 {
		t.Fatalf("answer %+v", a)
	}
	if !lines.Scan() {
		t.Fatal("no e-mail")
	}
	var got received
	if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.TLS || got.From != "carillon@example.com" || !slices.Equal(got.To, to.To) {
		t.Errorf("received %+v", got)
	}
	parsed, err := mail.ReadMessage(strings.NewReader(got.Text))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
	if want := "Größe  Bcc: eve@example.com    wrong"; err != nil || subject != want {
		t.Errorf("subject %q, want %q (%v)", subject, want, err)
	}
	if parsed.Header.Get("Bcc") != "" || parsed.Header.Get("X-Injected") != "" {
		t.Errorf("headers were injected: %v", parsed.Header)
	}
	if id := parsed.Header.Get("Message-Id"); id != "<0199---X-Injected--1@example.com>" {
		t.Errorf("ID %q", id)
	}
	if body, err := io.ReadAll(parsed.Body); err != nil || !strings.Contains(string(body), "last") || !strings.Contains(string(body), "QUIT") {
		t.Errorf("body %q (%v)", body, err)
	}

	for name, c := range map[string]struct {
		to     string
		change func(*alarms.SMTP)
		status int
		final  bool
	}{
		"unknown mailbox":         {to: "unknown@example.com", status: 550, final: true},
		"busy":                    {to: "busy@example.com", status: 451},
		"wrong password":          {change: func(c *alarms.SMTP) { c.Password = "another password" }},
		"certificate not trusted": {change: func(c *alarms.SMTP) { c.Roots = "" }},
		"no server":               {change: func(c *alarms.SMTP) { c.Address = "" }},
		"without TLS":             {change: func(c *alarms.SMTP) { c.TLS, c.User = alarms.PlainSMTP, "" }, status: 530, final: true},
	} {
		to := alarms.Target{Kind: alarms.Email, To: []string{"ops@example.com"}}
		if c.to != "" {
			to.To[0] = c.to
		}
		a := sender(c.change).Send(t.Context(), to, message())
		if a.Delivered || a.Final != c.final || c.status != 0 && a.Status != c.status || a.Text == "" || strings.Contains(a.Text, "password of the") || strings.Contains(a.Text, "another password") {
			t.Errorf("%s: answer %+v", name, a)
		}
	}
}

// TLS may begin with the first byte.
func TestMailOverTLS(t *testing.T) {
	cert, key := certificate(t)
	address, lines := smtpServer(t, cert, key, "carillon", "a password", alarms.TLS)
	for _, roots := range []string{cert, ""} {
		s, err := alarms.NewSender(alarms.Config{SMTP: alarms.SMTP{Address: address, TLS: alarms.TLS, User: "carillon", Password: "a password", From: "carillon@example.com", Roots: roots}})
		if err != nil {
			t.Fatal(err)
		}
		if a := s.Send(t.Context(), target(alarms.Email), message()); a.Delivered != (roots != "") || a.Final {
			t.Fatalf("authorities %q: answer %+v", roots, a)
		}
	}
	var got received
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &got) != nil || !got.TLS {
		t.Errorf("received %+v", got)
	}
}

// A server, or an attacker on the way, that offers no STARTTLS gets neither the password nor the message.
func TestMailNeedsTLS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var all strings.Builder
		_, _ = io.WriteString(conn, "220 here\r\n")
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			all.WriteString(lines.Text() + "\n")
			switch verb, _, _ := strings.Cut(lines.Text(), " "); verb {
			case "EHLO":
				_, _ = io.WriteString(conn, "250-here\r\n250 AUTH PLAIN LOGIN\r\n")
			case "DATA":
				_, _ = io.WriteString(conn, "354 go ahead\r\n")
			default:
				_, _ = io.WriteString(conn, "250 OK\r\n")
			}
		}
		seen <- all.String()
	}()
	s, err := alarms.NewSender(alarms.Config{SMTP: alarms.SMTP{Address: l.Addr().String(), From: "carillon@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if a := s.Send(t.Context(), target(alarms.Email), message()); a.Delivered || a.Final || !strings.Contains(a.Text, "TLS") {
		t.Errorf("answer %+v", a)
	}
	if got := <-seen; strings.Contains(got, "MAIL") || strings.Contains(got, "AUTH") {
		t.Errorf("the server received %q", got)
	}
}

func TestSMTPCheck(t *testing.T) {
	good := alarms.SMTP{Address: "mail.example.com:587", From: "carillon@example.com", User: "carillon", Password: "secret"}
	for name, c := range map[string]struct {
		change func(*alarms.SMTP)
		want   string
	}{
		"good":             {func(*alarms.SMTP) {}, ""},
		"no port":          {func(c *alarms.SMTP) { c.Address = "mail.example.com" }, "want host:port"},
		"TLS":              {func(c *alarms.SMTP) { c.TLS = "ssl" }, `"ssl"`},
		"password in text": {func(c *alarms.SMTP) { c.TLS = alarms.PlainSMTP }, "without TLS"},
		"on this machine":  {func(c *alarms.SMTP) { c.TLS, c.Address = alarms.PlainSMTP, "127.0.0.1:25" }, ""},
		"sender":           {func(c *alarms.SMTP) { c.From = "Carillon\r\nBcc: x@example.com" }, "invalid sender"},
	} {
		s := good
		c.change(&s)
		_, err := alarms.NewSender(alarms.Config{SMTP: s})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
