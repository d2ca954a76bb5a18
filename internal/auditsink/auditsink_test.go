package auditsink

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/auditfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/webhook"
)

// audits are lines of a chain.
func audits(n int) (lines [][]byte) {
	var prev []byte
	for i := range n {
		a := &kernel.Audit{Tenant: "default", N: uint64(i + 1), At: time.Date(2026, 11, 27, 8, 0, i, 0, time.UTC), Actor: "person:änn", Verb: "edit", Target: "job <a> %s\n",
			After: fmt.Appendf(nil, `{"retries":%d,"description":"%s"}`, i, strings.Repeat("x", 3000)), Prev: prev}
		a.Hash = a.Sum()
		prev = a.Hash
		lines = append(lines, auditfile.Append(nil, a))
	}
	return lines
}

func sink(t *testing.T, address string, cfg Config) Sink {
	t.Helper()
	s, err := Parse("siem", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func send(t *testing.T, s Sink, lines ...[]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Send(ctx, lines); err != nil {
		t.Fatal(err)
	}
}

// A file has mode 0600 and is opened again when it was renamed. A line that was cut off by a crash is removed.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := sink(t, path, Config{})
	l := audits(6)
	send(t, s, l[0], l[1])
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("the file is %v, %v", st, err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	send(t, s, l[2])
	s.Close()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(l[3][:100]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	send(t, s, l[3])
	if err := os.Remove(path + ".2"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".3", l[4][:50], 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, sink(t, path+".3", Config{}), l[4], l[5])
	for name, want := range map[string][]byte{path + ".1": bytes.Join(l[:2], nil), path: bytes.Join(l[2:4], nil), path + ".3": bytes.Join(l[4:], nil)} {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	if err := os.Mkdir(path+".4", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := sink(t, path+".4", Config{}).Send(t.Context(), l[:1]); err == nil {
		t.Error("a folder received lines")
	}
}

// A full disk leaves no part of a line.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	if err := sink(t, "/dev/full", Config{}).Send(t.Context(), audits(1)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("/dev/full: %v", err)
	}
}

// The example of RFC 5424, section 6.5, is of another program; the same fields make the same bytes.
func TestSyslogMessage(t *testing.T) {
	at := time.Date(2003, 8, 24, 5, 14, 15, 3000, time.FixedZone("", -7*3600))
	const want = "<110>1 2003-08-24T12:14:15.000003Z 192.0.2.1 carillon 8710 audit - It's time to make the do-nuts. %%"
	if got := string(message(at, "192.0.2.1", 8710, []byte("It's time to make the do-nuts. %%"))); got != want {
		t.Errorf("the message is\n%s\nwant\n%s", got, want)
	}
	for text, want := range map[string]string{"": "-", "a b\n": "ab", "ünode": "node", strings.Repeat("x", 300): strings.Repeat("x", 255)} {
		if got := field(text); got != want {
			t.Errorf("field %q is %q", text, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, good := range []string{"/var/log/a.jsonl", "syslog+tls://h:6514", "syslog+tcp://[::1]:601", "syslog+udp://h:514", "syslog+unix:///dev/log", "https://h/x?y=1", "http://127.0.0.1:9/x"} {
		if _, err := Parse("a", good, Config{Secret: secret}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"audit.jsonl": "invalid address: want a path", "syslog+tcp://h": "host:port", "syslog+ssl://h:1": "unknown syslog transport", "syslog://h:1": "invalid address",
		"http://h/x": "https", "https://u:hidden@h/x": "without a user", "https://hidden\x7f": "invalid", "syslog+unix://dev/log": "///path",
	} {
		if _, err := Parse("a", bad, Config{Secret: secret}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v, want %s", bad, err, want)
		}
	}
	if _, err := Parse("a", "https://h", Config{}); err == nil || !strings.Contains(err.Error(), "audit.secret-file") {
		t.Errorf("a webhook without a secret: %v", err)
	}
	if _, err := Parse("a b\n", "/x", Config{}); err == nil {
		t.Error("a name with a line feed is accepted")
	}
}

// A webhook receives signed lines; what it refuses, or redirects, is an error without the URL.
func TestWebhook(t *testing.T) {
	secret := []byte("0123456789abcdef")
	status := http.StatusOK
	var got []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = webhook.Verify(secret, r.Header.Get(webhook.SignatureHeader), body, time.Now())
		}
		if err != nil {
			t.Error(err)
		}
		if status == http.StatusOK {
			got = append(got, body...)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sink(t, server.URL+"/hidden", Config{Secret: secret, CA: ca})
	l := audits(3)
	send(t, s, l[0], l[1])
	for _, status = range []int{http.StatusInternalServerError, http.StatusTemporaryRedirect} {
		if err := s.Send(t.Context(), l[2:]); err == nil || !strings.Contains(err.Error(), http.StatusText(status)) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	status = http.StatusOK
	send(t, s, l[2])
	if !bytes.Equal(got, bytes.Join(l, nil)) {
		t.Errorf("the webhook has %q", got)
	}
	server.Close()
	if err := s.Send(t.Context(), l[:1]); err == nil || strings.Contains(err.Error(), "hidden") {
		t.Errorf("a server that is away: %v", err)
	}
}

// rsyslogd receives what the RFCs define over each transport, and its file can be verified: also after it was restarted.
func TestSyslogServer(t *testing.T) {
	daemon, err := exec.LookPath("rsyslogd")
	if err != nil {
		if daemon = "/usr/sbin/rsyslogd"; !exists(daemon) {
			tests.Missing(t, "rsyslogd (apt-get install rsyslog)")
		}
	}
	for _, c := range []struct{ how, module, input, address string }{
		{"tcp", "imtcp", `input(type="imtcp" port="0" listenPortFileName="%[1]s/port" address="127.0.0.1")`, "syslog+tcp://127.0.0.1:"},
		{"udp", "imudp", `input(type="imudp" port="%[2]s" address="127.0.0.1")`, "syslog+udp://127.0.0.1:"},
		{"unix", "imuxsock", `input(type="imuxsock" Socket="%[1]s/log" UseSpecialParser="off" RateLimit.Interval="0")`, ""},
	} {
		t.Run(c.how, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "sink") // short: the path of a socket is limited
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			port := ""
			if c.how == "udp" {
				port = freeUDP(t)
			}
			module := `module(load="` + c.module + `"`
			if c.how == "unix" {
				module += ` SysSock.Use="off"`
			}
			conf := `global(workDirectory="` + dir + `" maxMessageSize="1m")` + "\n" + module + ")\n" + fmt.Sprintf(c.input, dir, port) + `
template(name="plain" type="string" string="%%timestamp:::date-rfc3339%% %%hostname%% %%app-name%%[%%procid%%] %%msgid%% %%pri%%:%%msg%%\n")
*.* action(type="omfile" file="` + dir + `/out" template="plain")
`
			conf = strings.ReplaceAll(conf, "%%", "%")
			if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			stop := serve(t, daemon, dir)
			address := c.address + port
			switch c.how {
			case "tcp":
				address += eventually(t, func() string { b, _ := os.ReadFile(dir + "/port"); return strings.TrimSpace(string(b)) })
			case "unix":
				eventually(t, func() string {
					if exists(dir + "/log") {
						return "up"
					}
					return ""
				})
				address = "syslog+unix://" + dir + "/log"
			default:
				time.Sleep(2 * time.Second)
			}
			s := sink(t, address, Config{Host: "node-1"})
			l := audits(8)
			send(t, s, l[:5]...)
			lines := func(want int) {
				eventually(t, func() string {
					b, _ := os.ReadFile(dir + "/out")
					if bytes.Count(b, []byte("carillon[")) >= want {
						return "done"
					}
					return ""
				})
			}
			lines(5)
			if c.how == "tcp" { // restarted: the connection is made again, and the last lines repeated
				stop()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				for tries := 0; s.Send(ctx, l[5:6]) == nil && tries < 3; tries++ {
					time.Sleep(100 * time.Millisecond)
				}
				cancel()
				if err := os.Remove(dir + "/port"); err != nil {
					t.Fatal(err)
				}
				serve(t, daemon, dir)
				s.(*syslog).address = "127.0.0.1:" + eventually(t, func() string { b, _ := os.ReadFile(dir + "/port"); return strings.TrimSpace(string(b)) })
			}
			send(t, s, l[5:]...)
			lines(8)
			time.Sleep(200 * time.Millisecond)
			var v auditfile.Verifier
			v.Syslog = true
			f, err := os.Open(dir + "/out")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			out, _ := io.ReadAll(f)
			for line := range bytes.Lines(out) { // its own messages are there, too
				if bytes.Contains(line, []byte("carillon[")) {
					if !bytes.Contains(line, []byte(" node-1 carillon[")) || !bytes.Contains(line, []byte(" audit 110:")) && !bytes.Contains(line, []byte(" audit log_audit.info:")) {
						t.Errorf("a message is %.200q", line)
					}
					if err := v.Read("out", bytes.NewReader(line)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if chains, _, err := v.Done(); err != nil || len(chains) != 1 || chains[0].First != 1 || chains[0].Last != 8 {
				t.Errorf("%+v, %v", chains, err)
			}
		})
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// serve runs rsyslogd in the foreground.
func serve(t *testing.T, daemon, dir string) (stop func()) {
	t.Helper()
	c := exec.Command(daemon, "-n", "-f", dir+"/conf", "-i", dir+"/pid")
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = c.Process.Signal(syscall.SIGTERM) // it ignores an interrupt
			time.AfterFunc(5*time.Second, func() { _ = c.Process.Kill() })
			_ = c.Wait()
			_ = os.Remove(dir + "/pid")
		}
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("rsyslogd: %s", &said)
		}
	})
	return stop
}

func eventually(t *testing.T, is func() string) string {
	t.Helper()
	for range 300 {
		if got := is(); got != "" {
			return got
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("rsyslogd does not do it within 15 s")
	return ""
}

func freeUDP(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}
