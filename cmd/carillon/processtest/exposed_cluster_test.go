//go:build unix

package processtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// fortress is three nodes as on three machines: an address each, TLS on all doors, tokens, and a NATS server in each.
type fortress struct {
	t     *testing.T
	walls []*castle
	nodes []*process
	ca    string // who vouches for all of them
	admin string
}

func newFortress(t *testing.T) *fortress {
	t.Helper()
	f := &fortress{t: t, ca: filepath.Join(t.TempDir(), "ca.pem")}
	dir := t.TempDir()
	for i := range 3 {
		ip := fmt.Sprintf("127.0.0.%d", i+2)
		if l, err := net.Listen("tcp", ip+":0"); err != nil {
			tests.Missing(t, fmt.Sprintf("a second address of loopback, for nodes on several: %v", err))
		} else {
			_ = l.Close()
		}
		_, first, err := net.SplitHostPort(block(t, 2)[0])
		if err != nil {
			t.Fatal(err)
		}
		_, web, _ := net.SplitHostPort(freeport.Address(t))
		_, nats, _ := net.SplitHostPort(freeport.Address(t))
		name := fmt.Sprintf("n%d", i+1)
		c := &castle{t: t, page: "https://" + ip + ":" + web, bus: ip + ":" + nats, data: filepath.Join(dir, name), cert: filepath.Join(dir, name+".pem")}
		key := filepath.Join(dir, name+".key")
		certify(t, net.ParseIP(ip), c.cert, key)
		args := []string{"server", "--node", name, "--data", c.data, "--auth", "on", "--http", ip + ":" + web, "--nats-addr", c.bus, "--cluster", ip + ":" + first,
			"--http-tls-cert", c.cert, "--http-tls-key", key, "--nats-tls-cert", c.cert, "--nats-tls-key", key}
		if i > 0 {
			file := filepath.Join(dir, name+".token")
			var answer []byte
			await(t, "a node is invited", func() bool { // not while there is an election
				var status int
				status, answer, _ = f.walls[0].ask(http.MethodPost, "/api/v1/cluster/invitations", f.admin, "")
				if status == http.StatusUnauthorized || status == http.StatusForbidden {
					t.Fatalf("an invitation: %d %s", status, answer)
				}
				return status < 300
			})
			if err := os.WriteFile(file, []byte(decode[api.Invitation](t, answer).Token), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--join-file", file)
		}
		path, err := carillonProgram()
		if err != nil {
			t.Fatal(err)
		}
		f.walls, f.nodes = append(f.walls, c), append(f.nodes, start(t, "node "+name, path, nil, args...))
		f.trust(c)
		if i == 0 {
			await(t, "the first token is granted", func() bool { return f.nodes[0].out.has("first token:") })
			f.admin = c.file("admin.token")
		}
		f.ready(i)
	}
	await(t, "the cluster is whole", func() bool {
		status, raw, _ := f.walls[2].ask(http.MethodGet, "/api/v1/cluster", f.admin, "")
		return status == http.StatusOK && decode[api.Cluster](t, raw).Tolerates == 1
	})
	return f
}

// trust adds a node's certificate to the trusted ones.
func (f *fortress) trust(c *castle) {
	f.t.Helper()
	raw, err := os.ReadFile(c.cert)
	if err != nil {
		f.t.Fatal(err)
	}
	c.browser = browser(believes(f.t, raw))
	all, err := os.ReadFile(f.ca)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.ca, append(all, raw...), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fortress) ready(i int) {
	f.t.Helper()
	await(f.t, f.nodes[i].name+" is ready", func() bool {
		if f.nodes[i].over() {
			f.t.Fatalf("%s ended with %v", f.nodes[i].name, f.nodes[i].err)
		}
		r, err := f.walls[i].browser.Get(f.walls[i].page + "/readyz")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// url names all buses, beginning with one of them.
func (f *fortress) url(token string, first int) string {
	var all []string
	for i := range f.walls {
		all = append(all, "tls://"+token+"@"+f.walls[(first+i)%len(f.walls)].bus)
	}
	return strings.Join(all, ",") + "?ca=" + f.ca
}

// door is the bus of one node only.
func (f *fortress) door(token string, i int) string {
	return "tls://" + token + "@" + f.walls[i].bus + "?ca=" + f.ca
}

// grant creates a token, at any node, and returns its text.
func (f *fortress) grant(at int, body string) string {
	f.t.Helper()
	status, answer, _ := f.walls[at].ask(http.MethodPost, "/api/v1/tokens", f.admin, body)
	if status != http.StatusCreated {
		f.t.Fatalf("a token: %d %s", status, answer)
	}
	return decode[struct{ Text string }](f.t, answer).Text
}

// speak returns a connection to one node as a worker, without a worker.
func (f *fortress) speak(token string, at int, as bus.Principal) (*natsbus.Bus, error) {
	f.t.Helper()
	raw, err := os.ReadFile(f.ca)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	b, err := natsbus.Connect(ctx, "tls://"+f.walls[at].bus, natsbus.Config{As: as, Token: token, TLS: believes(f.t, raw)})
	if err == nil {
		f.t.Cleanup(func() { _ = b.Close() })
	}
	return b, err
}

// leader returns the number of the leader, as another node reports it.
func (f *fortress) leader(ask int) (leader int) {
	f.t.Helper()
	await(f.t, "a node leads", func() bool {
		status, raw, _ := f.walls[ask].ask(http.MethodGet, "/api/v1/overview", f.admin, "")
		if status != http.StatusOK {
			return false
		}
		leader = slices.Index([]string{"n1", "n2", "n3"}, decode[api.Overview](f.t, raw).Leader)
		return leader >= 0
	})
	return leader
}

// Three nodes with tokens and a NATS server each: every node limits a worker to its app; a revoked token is refused at
// all nodes; and when a node dies its workers continue at another.
func TestExposedCluster(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	f := newFortress(t)
	members := f.grant(1, `{"name":"crew","role":"worker","app":"process"}`)
	thief := f.grant(2, `{"name":"thief","role":"worker","app":"thieves"}`)
	shop := f.grant(0, `{"name":"shop","role":"client"}`)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	journals := t.TempDir()
	for i := range 3 { // each is at home at another node
		raw, err := json.Marshal(workerSpec{URL: f.url(members, i), Name: fmt.Sprint("h", i), Journal: journals, Slots: 4})
		if err != nil {
			t.Fatal(err)
		}
		start(t, fmt.Sprint("worker h", i), self, []string{workerVariable + "=" + string(raw)})
	}
	client, err := carillon.Dial(f.url(shop, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	work := func(what string) {
		t.Helper()
		var runs []jobs.Receipt
		await(t, what+": runs are asked for", func() bool {
			var err error
			runs, err = plainJob.EnqueueAll(t.Context(), client, make([]task, 30))
			return err == nil
		})
		for _, r := range runs {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if run, err := client.Wait(ctx, r.ID); err != nil || run.State != jobs.Succeeded {
				t.Errorf("%s: run %s is %v (%v)", what, r.ID, run, err)
			}
			cancel()
		}
	}
	await(t, "the workers are known", func() bool {
		_, raw, _ := f.walls[1].ask(http.MethodGet, "/api/v1/workers", f.admin, "")
		return len(decode[list[api.Worker]](t, raw).Items) == 3
	})
	work("three nodes")

	lead := f.leader(0)
	held, err := plainJob.Enqueue(t.Context(), client, task{}, jobs.After(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		// The thief cannot claim another app: the connection or the subject is refused.
		if w, err := carillon.NewWorker(f.door(thief, i), worker.Config{App: "process", Name: "h0"}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the thief comes to n%d as a worker of app process: %v", i+1, err)
			if err == nil {
				_ = w.Close()
			}
		}
		// With its own name it can connect, but its messages, through any node, affect only its own app.
		as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "h0", App: "thieves"}
		b, err := f.speak(thief, i, as)
		if err != nil {
			t.Fatalf("the thief in its own name at n%d, of which n%d leads: %v", i+1, lead+1, err)
		}
		rows := busstore.New(b, as)
		for _, k := range []kernel.Command{
			kernel.Start{ID: held.ID, Worker: "h0", Attempt: 1}, kernel.Finish{ID: held.ID, Worker: "h0", Attempt: 1, Outcome: kernel.OutcomeSuccess}, kernel.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(plainJob)},
			kernel.Register{App: "process", Worker: "h0", Start: true, Job: kernel.Declaration{Key: jobs.Key(plainJob), Kind: kernel.Triggered, Version: 99}},
		} {
			r := rows.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: as.Actor(), Command: k}})
			if !errors.Is(r[0].Err, jobs.Forbidden) {
				t.Errorf("the thief at n%d sends %s: %v", i+1, k.Verb(), r[0].Err)
			}
		}
		if _, err := rows.Run(t.Context(), "", held.ID); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the thief at n%d reads another app's run: %v", i+1, err)
		}
		other := as
		other.App = "process"
		if b, err := f.speak(thief, i, other); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("the thief at n%d claims app process: %v, %v", i+1, b, err)
		}
	}

	// A token revoked at one node is refused at all, and its connections end.
	var guests []*natsbus.Bus
	for i := range 3 {
		b, err := f.speak(thief, i, bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: fmt.Sprint("t", i), App: "thieves"})
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, b)
	}
	if status, answer, _ := f.walls[(lead+1)%3].ask(http.MethodDelete, "/api/v1/tokens/"+strings.Split(thief, "_")[2], f.admin, ""); status >= 300 {
		t.Fatalf("revoke: %d %s", status, answer)
	}
	revoked := time.Now()
	for i, b := range guests {
		await(t, fmt.Sprintf("n%d closes the connection of a revoked token", i+1), func() bool {
			_, err := b.Call(t.Context(), bus.ServiceHeartbeat, bus.Encode(bus.Heartbeat{}))
			return errors.Is(err, bus.ErrNoReceiver) // there is no connection, nor will there be
		})
		if w, err := carillon.NewWorker(f.door(thief, i), worker.Config{App: "thieves", Name: "again"}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a revoked token at n%d: %v", i+1, err)
			if err == nil {
				_ = w.Close()
			}
		}
	}
	t.Logf("a revoked token was shut out at all nodes %v after", time.Since(revoked))

	// The leader dies. Its workers continue at the other nodes, and new clients can connect there.
	f.nodes[lead].kill()
	died := time.Now()
	newcomer, err := f.comes(shop, lead)
	if err != nil {
		t.Fatalf("a client after the death of a node: %v", err)
	}
	defer newcomer.Close()
	t.Logf("a client connected %v after the leader's death", time.Since(died))
	work("two nodes")
	t.Logf("thirty runs were done %v after the leader's death", time.Since(died))
	alive := (lead + 1) % 3
	await(t, "all workers are at the nodes that live", func() bool {
		_, raw, _ := f.walls[alive].ask(http.MethodGet, "/api/v1/workers", f.admin, "")
		return len(decode[list[api.Worker]](t, raw).Items) == 3
	})
}

// believes trusts what is in PEM.
func believes(t *testing.T, raw []byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		t.Fatal("no certificates")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// comes dials the live nodes until it is connected.
func (f *fortress) comes(token string, dead int) (*client.Client, error) {
	var err error
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		var c *client.Client
		if c, err = carillon.Dial(f.url(token, (dead+1)%3)); err == nil {
			return c, nil
		}
	}
	return nil, err
}
