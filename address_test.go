package carillon_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A worker or client of a token is of the token's tenant, unless another one is named.
func TestTenantOfTheToken(t *testing.T) {
	tenants := make(chan jobs.Tenant, 1)
	server, err := embedded.Start(embedded.Config{Admit: func(_ context.Context, text string) (bus.Principal, string, error) {
		tenant, _, _, _ := kernel.CutToken(text)
		tenants <- tenant
		return bus.Principal{Tenant: tenant, Role: bus.Client}, "", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	at := strings.TrimPrefix(server.URL(), "nats://")
	const token = "carillon_acme_abcdefgh_SECRET"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"nats://" + token + "@" + at, "nats://" + at + "?token-file=" + file} {
		c, err := carillon.Dial(url) // refused if it introduces itself as of another tenant
		if err != nil {
			t.Fatal(err)
		}
		if tenant := <-tenants; tenant != "acme" {
			t.Errorf("the tenant is %q", tenant)
		}
		_ = c.Close()
		if _, err := carillon.DialAs(url, client.Config{Tenant: "other"}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("with the token of another tenant: %v", err)
		}
		<-tenants
	}
}

// A token before the @ or in a file authenticates; without a valid token the error describes what to do.
func TestTokensInAddresses(t *testing.T) {
	const token = "carillon_default_abcdefgh_SECRET"
	server, err := embedded.Start(embedded.Config{Admit: func(_ context.Context, text string) (bus.Principal, string, error) {
		if text != token {
			return bus.Principal{}, "", kernel.Refuse(jobs.Forbidden, "the token is not known")
		}
		return bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker}, "billing", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	at := strings.TrimPrefix(server.URL(), "nats://")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick"})
	for _, address := range []string{"nats://" + token + "@" + at, "nats://" + at + "?token-file=" + file, "nats://" + at + "/?token-file=" + file} {
		w, err := carillon.NewWorker(address, worker.Config{App: "billing"}, tick)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
	}
	for _, address := range []string{"nats://" + at, "nats://SECRET@" + at, "nats://u:SECRET@" + at} {
		_, err := carillon.NewWorker(address, worker.Config{App: "billing"}, tick)
		if !errors.Is(err, jobs.Forbidden) || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), "carillon tokens create --role worker") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := carillon.Dial("nats://" + token + "@" + at); !errors.Is(err, jobs.Forbidden) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("a client with a worker's token: %v", err)
	}
}

// Parameters behind the ? are checked before a connection.
func TestWhatIsBehindAnAddress(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	open, empty, two, mine := file("open", "SECRET", 0o644), file("empty", "\n", 0o600), file("two", "SECRET SECRET", 0o600), file("mine", "SECRET", 0o600)
	for address, want := range map[string]string{
		"nats://127.0.0.1:1?token-file=" + open:                             "chmod 600",
		"nats://127.0.0.1:1?token-file=" + empty:                            "holds no token",
		"nats://127.0.0.1:1?token-file=" + two:                              "holds no token",
		"nats://127.0.0.1:1?token-file=" + filepath.Join(dir, "none"):       "no such file",
		"nats://127.0.0.1:1?token-file=":                                    "needs one value",
		"nats://127.0.0.1:1?token-file=" + mine + "&token-file=" + mine:     "needs one value",
		"nats://SECRET@127.0.0.1:1?token-file=" + mine:                      "remove one",
		"nats://127.0.0.1:1?token=SECRET":                                   `unknown parameter "token"`,
		"nats://127.0.0.1:1?ca=" + mine:                                     "no certificates",
		"tls://127.0.0.1:1?ca=" + filepath.Join(dir, "none"):                "no such file",
		"SECRET@127.0.0.1:1":                                                "such as nats://127.0.0.1:4222",
		"localhost:4222":                                                    "such as nats://127.0.0.1:4222",
		"":                                                                  "such as nats://127.0.0.1:4222",
		"http://127.0.0.1:1":                                                "want nats://",
		"nats://127.0.0.1:1/SECRET":                                         "has a path or fragment",
		"nats://127.0.0.1:1,nats://127.0.0.1:2?token-file=" + open:          "chmod 600",
		"nats://SECRET@127.0.0.1:1,nats://127.0.0.1:2?token-file=" + mine:   "remove one",
		"nats://127.0.0.1:1?token-file=" + mine + ",nats://127.0.0.1:2?x=1": `unknown parameter "x"`,
	} {
		if _, err := carillon.Dial(address); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// Without a server, the error describes how to start one; with an unknown certificate, how to trust it.
func TestNoServer(t *testing.T) {
	if _, err := carillon.Dial("nats://u:SECRET@127.0.0.1:1"); !errors.Is(err, jobs.Unavailable) ||
		!strings.Contains(err.Error(), "carillon dev") || !strings.Contains(err.Error(), "nats://127.0.0.1:1") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("nothing is there: %v", err)
	}
	page := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer page.Close()
	server, err := embedded.Start(embedded.Config{TLS: &tls.Config{Certificates: page.TLS.Certificates}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	_, at, _ := strings.Cut(server.URL(), "://")
	if _, err := carillon.Dial("tls://" + at); err == nil || !strings.Contains(err.Error(), "?ca=") {
		t.Errorf("an unknown certificate: %v", err)
	}
}
