package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// Pods as Kubernetes starts them, without Kubernetes: each is a process with the rendered arguments, variables and
// files, in a root directory of its own, as user 65532, at an address of its own in a network of the test.

// podUser runs in the pods.
const podUser = 65532

// The rendered pods start: the server takes its settings, files and modes, and does what the chart promises.
func TestPods(t *testing.T) {
	if os.Getenv(inside) == "" {
		if os.Getuid() != 0 {
			tests.Missing(t, "pods start as other users, in a network of their own: run it as root")
		}
		if _, err := program(); err != nil {
			t.Fatal(err)
		}
		self := exec.Command(os.Args[0], "-test.run="+"^TestPods$", "-test.v", "-test.timeout=5m")
		self.Env = append(os.Environ(), inside+"="+theProgram(t))
		self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
		out, err := self.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	network(t)
	t.Run("single", testSingle)
	t.Run("project", testProject)
	t.Run("cluster", testCluster)
	t.Run("postgres", testPostgres)
}

// network gives the loopback interface of this process every address that begins with 10.
func network(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
	pods, err := unix.NewIfreq("lo:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.SetInet4Addr([]byte{10, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, pods); err != nil {
		t.Fatal(err)
	}
}

// place is where the pods of one test run.
type place struct {
	t       *testing.T
	all     []object
	hosts   map[string][]string          // addresses by name
	secrets map[string]map[string]string // Secrets besides those of the chart
	next    int
}

func newPlace(t *testing.T, values map[string]any) *place {
	t.Helper()
	p := &place{t: t, all: rendered(t, values), hosts: map[string][]string{}, secrets: map[string]map[string]string{}}
	p.secrets["carillon-tls"] = certificate(t, "localhost", "carillon", "carillon.jobs.svc", "carillon-bus")
	return p
}

// certificate returns a new certificate as in a Secret, with its authority.
func certificate(t *testing.T, names ...string) map[string]string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	coded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return map[string]string{"tls.crt": public, "ca.crt": public, "tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: coded}))}
}

// pod is one pod.
type pod struct {
	p         *place
	name, ip  string
	root      string
	args, env []string
	cmd       *exec.Cmd
	log       safeBuffer
	ended     chan error
}

// safeBuffer is a buffer that a process writes while a test reads.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *safeBuffer) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// server prepares a pod of the server.
func (p *place) server(name string) *pod {
	s := serverOf(p.t, p.all)
	o := p.pod(name, s.pod, envOf(p.t, s, name))
	o.args = s.box.Args
	return o
}

// worker prepares a pod of a worker.
func (p *place) worker(name string) *pod {
	for _, o := range find(p.all, "Deployment") {
		if o.Metadata.Name == name {
			d := read[appsv1.Deployment](p.t, o)
			box := d.Spec.Template.Spec.Containers[0]
			made := p.pod(name, d.Spec.Template.Spec, envOf(p.t, server{box: box}, name))
			made.args = box.Args
			return made
		}
	}
	p.t.Fatalf("no worker %s", name)
	return nil
}

// pod makes the root directory of a pod.
func (p *place) pod(name string, spec corev1.PodSpec, env map[string]string) *pod {
	p.t.Helper()
	p.next++
	o := &pod{p: p, name: name, ip: fmt.Sprintf("10.9.0.%d", p.next), root: filepath.Join(p.t.TempDir(), name)}
	for _, dir := range []string{"", "etc", "data", "tmp"} {
		o.must(os.MkdirAll(filepath.Join(o.root, dir), 0o755))
	}
	o.must(exec.Command("cp", os.Getenv(inside), filepath.Join(o.root, "carillon")).Run())
	for _, m := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || spec.Volumes[i].EmptyDir != nil { // a disk, or an empty directory
			o.must(os.MkdirAll(filepath.Join(o.root, m.MountPath), 0o755))
			o.must(os.Chown(filepath.Join(o.root, m.MountPath), 0, podUser))
			o.must(os.Chmod(filepath.Join(o.root, m.MountPath), 0o775|os.ModeSetgid))
			continue
		}
		o.mount(m.MountPath, spec.Volumes[i])
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		o.env = append(o.env, name+"="+env[name])
	}
	return o
}

func (o *pod) must(err error) {
	o.p.t.Helper()
	if err != nil {
		o.p.t.Fatalf("pod %s: %v", o.name, err)
	}
}

// mount writes a ConfigMap or a Secret as Kubernetes does: root's files, for the pod's group, behind symbolic links.
func (o *pod) mount(at string, v corev1.Volume) {
	var content map[string]string
	var items []corev1.KeyToPath
	mode := os.FileMode(0o644)
	switch {
	case v.ConfigMap != nil:
		for _, m := range find(o.p.all, "ConfigMap") {
			if m.Metadata.Name == v.ConfigMap.Name {
				content = maps.Clone(read[corev1.ConfigMap](o.p.t, m).Data)
			}
		}
		items = v.ConfigMap.Items
		if text, is := content["carillon.yaml"]; is {
			content["carillon.yaml"] = o.adapt(text)
		}
	case v.Secret != nil:
		content, items, mode = o.p.secrets[v.Secret.SecretName], v.Secret.Items, 0o440
		for _, m := range find(o.p.all, "Secret") {
			if m.Metadata.Name == v.Secret.SecretName {
				content = map[string]string{}
				for key, value := range read[corev1.Secret](o.p.t, m).Data {
					content[key] = string(value)
				}
			}
		}
	}
	if items == nil {
		for key := range content {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	dir := filepath.Join(o.root, at)
	o.must(os.MkdirAll(filepath.Join(dir, "..1"), 0o755))
	o.must(os.Symlink("..1", filepath.Join(dir, "..data")))
	for _, i := range items {
		text, is := content[i.Key]
		if !is {
			o.p.t.Fatalf("pod %s: volume %s has no key %s", o.name, v.Name, i.Key)
		}
		path := filepath.Join(dir, "..1", i.Path)
		o.must(os.WriteFile(path, []byte(text), 0o600))
		o.must(os.Chown(path, 0, podUser))
		o.must(os.Chmod(path, mode))
		o.must(os.Symlink(filepath.Join("..data", i.Path), filepath.Join(dir, i.Path)))
	}
}

// adapt gives a server the pod's address instead of all addresses: here, pods share one network.
func (o *pod) adapt(text string) string {
	return strings.ReplaceAll(text, "0.0.0.0", o.ip)
}

// command is a command of the program in the pod.
func (o *pod) command(args ...string) *exec.Cmd {
	o.p.t.Helper()
	var hosts strings.Builder
	fmt.Fprintf(&hosts, "127.0.0.1 localhost\n%s %s\n", o.ip, o.name)
	for name, addresses := range o.p.hosts {
		for _, a := range addresses {
			fmt.Fprintf(&hosts, "%s %s\n", a, name)
		}
	}
	o.must(os.WriteFile(filepath.Join(o.root, "etc/hosts"), []byte(hosts.String()), 0o644))
	o.must(os.WriteFile(filepath.Join(o.root, "etc/resolv.conf"), nil, 0o644))
	c := exec.CommandContext(o.p.t.Context(), "/carillon", args...)
	c.Dir, c.Env = "/", o.env
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: o.root, Credential: &syscall.Credential{Uid: podUser, Gid: podUser, Groups: []uint32{podUser}}}
	return c
}

func (o *pod) start() {
	o.p.t.Helper()
	o.cmd, o.ended = o.command(o.args...), make(chan error, 1)
	o.cmd.Stdout, o.cmd.Stderr = &o.log, &o.log
	o.must(o.cmd.Start())
	ended, cmd := o.ended, o.cmd
	go func() { ended <- cmd.Wait() }()
	o.p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if o.p.t.Failed() {
			o.p.t.Logf("log of %s:\n%s", o.name, o.log.String())
		}
	})
}

// stop ends the pod as Kubernetes does.
func (o *pod) stop() {
	o.p.t.Helper()
	o.must(o.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-o.ended:
		if err != nil {
			o.p.t.Errorf("pod %s ended: %v", o.name, err)
		}
	case <-time.After(50 * time.Second):
		o.p.t.Errorf("pod %s does not end", o.name)
	}
}

// probe is a probe of the kubelet, which trusts any certificate.
func (o *pod) probe(path string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Get("https://" + o.ip + ":8080" + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return nil
}

// cli runs a command as a user does who has forwarded the pod's port, and returns its output.
func (o *pod) cli(token string, args ...string) (string, error) {
	o.p.t.Helper()
	c := o.command(args...)
	c.Env = []string{"CARILLON_SERVER=https://carillon:8080", "CARILLON_TOKEN_FILE=/tmp/admin.token", "CARILLON_CA_FILE=/tmp/ca.pem"}
	admin := filepath.Join(o.root, "tmp/admin.token")
	o.must(os.WriteFile(filepath.Join(o.root, "tmp/ca.pem"), []byte(o.p.secrets["carillon-tls"]["ca.crt"]), 0o644))
	o.must(os.WriteFile(admin, []byte(token), 0o600))
	o.must(os.Chown(admin, podUser, podUser))
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("carillon %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), err
}

// at sends the requests of later commands to a pod.
func (p *place) at(o *pod) *pod {
	p.hosts["carillon"] = []string{o.ip}
	return o
}

// wait waits until check succeeds.
func (p *place) wait(what string, check func() error) {
	p.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond) // between two tries
	}
}

// One node takes its settings, certificate, token and jobs, refuses requests without a token, and ends in time.
func testSingle(t *testing.T) {
	values := example(t, "single")
	values["jobs"] = example(t, "everything")["jobs"]
	p := newPlace(t, values)
	o := p.server("carillon-0")
	o.start()
	p.wait("readiness", func() error { return o.probe("/readyz") })
	if err := o.probe("/livez"); err != nil {
		t.Error(err)
	}
	if err := o.probe("/api/v1/jobs"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a token: %v", err)
	}
	p.wait("the job of the values", func() error {
		out, err := p.at(o).cli(adminToken, "jobs", "list")
		if err == nil && !strings.Contains(out, "reports.ping") {
			err = fmt.Errorf("jobs:\n%s", out)
		}
		return err
	})
	o.stop()
	for _, path := range []string{"etc", "tmp"} {
		files, err := filepath.Glob(filepath.Join(o.root, path, "*"))
		if err != nil || path == "etc" && len(files) != 3 { // carillon, hosts, resolv.conf
			t.Errorf("files in %s: %q, %v", path, files, err)
		}
	}
}

// A program of carillon init, unchanged, works in a worker's pod: it finds its address, token and authority, and stops
// in time.
func testProject(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "billing")
	if out, err := exec.Command(theProgram(t), "init", dir, "--replace", "../../..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	built := tests.Go("build", "-o", "program", ".")
	built.Dir, built.Env = dir, append(built.Env, "CGO_ENABLED=0", "GOPROXY=off")
	if out, err := built.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := newPlace(t, with(t, example(t, "single"), `
tls: {caKey: ca.crt}
workers: [{name: billing, app: billing, image: registry.example.com/billing, tokenSecret: {name: billing-worker, key: token}}]
`))
	o := p.server("carillon-0")
	p.hosts["carillon-bus"] = []string{o.ip}
	o.start()
	p.wait("readiness", func() error { return o.probe("/readyz") })
	text, err := p.at(o).cli(adminToken, "tokens", "create", "billing", "--role", "worker", "--app", "billing", "-q")
	o.must(err)
	p.secrets["billing-worker"] = map[string]string{"token": text}
	w := p.worker("carillon-billing")
	o.must(exec.Command("cp", filepath.Join(dir, "program"), filepath.Join(w.root, "carillon")).Run()) // what its image starts
	w.start()
	p.wait("its jobs", func() error {
		out, err := o.cli(adminToken, "jobs", "list", "--app", "billing")
		if err == nil && !strings.Contains(out, "billing.greet") {
			err = fmt.Errorf("jobs:\n%s", out)
		}
		return err
	})
	if out, err := o.cli(adminToken, "jobs", "trigger", "billing.greet", "--args", `{"name":"Ann"}`, "--wait"); err != nil || !strings.Contains(out, "Succeeded") {
		t.Errorf("a run: %v %s", err, out)
	}
	w.stop()
	o.stop()
}

// Three nodes that start at once are one cluster, survive the end of each, and the deletion of all: then they come back
// under other addresses. A node that lost its disk joins again, and is refused while it has another cluster's secret.
func testCluster(t *testing.T) {
	values := with(t, example(t, "cluster"), "tls: {certManager: {enabled: false}, existingSecret: carillon-tls}")
	p := newPlace(t, values)
	var pods []*pod
	for i := range 3 {
		o := p.server("carillon-" + strconv.Itoa(i))
		p.hosts[o.name+".carillon-nodes"] = []string{o.ip}
		pods = append(pods, o)
	}
	pods[0].start()
	p.wait("the first node waits for the others", func() error {
		if err := pods[0].probe("/livez"); err != nil {
			return err
		}
		if log := pods[0].log.String(); !strings.Contains(log, "carillon-2.carillon-nodes:7946 (does not answer)") {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
	if err := pods[0].probe("/readyz"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a node that waits: %v", err)
	}
	if out, err := p.at(pods[0]).cli(adminToken, "jobs", "list"); err == nil || !strings.Contains(err.Error(), "waits for other nodes") {
		t.Errorf("a node that waits answers %q, %v", out, err)
	}
	pods[1].start()
	pods[2].start()
	id := p.whole(pods)
	for _, o := range pods[:2] {
		o.stop() // as a rolling update does
		o.start()
		p.whole(pods)
	}
	for _, o := range pods {
		o.kill()
	}
	for i, o := range pods {
		o.move(fmt.Sprintf("10.9.1.%d", i+1))
		p.hosts[o.name+".carillon-nodes"] = []string{o.ip}
	}
	for _, o := range pods {
		o.start()
	}
	if again := p.whole(pods); again != id {
		t.Errorf("cluster %s came back as %s", id, again)
	}

	lost := pods[1]
	lost.stop()
	lost.must(os.RemoveAll(filepath.Join(lost.root, "data/carillon")))
	lost.secret("another-cluster's-secret-0123456789abcdef")
	lost.start()
	p.wait("its refusal", func() error {
		select {
		case err := <-lost.ended:
			if err == nil || !strings.Contains(lost.log.String(), "its cluster secret differs from this node's; set the same secret on all nodes") {
				t.Errorf("it ended: %v\n%s", err, lost.log.String())
			}
			return nil
		default:
			return fmt.Errorf("it goes on")
		}
	})
	for _, o := range []*pod{pods[0], pods[2]} {
		if log := o.log.String(); !strings.Contains(log, "a node was refused") || !strings.Contains(log, `"name":"carillon-1"`) {
			t.Errorf("%s does not log the refusal:\n%s", o.name, log)
		}
		if strings.Contains(o.log.String(), clusterSecret) {
			t.Errorf("%s logs the secret", o.name)
		}
	}
	lost.secret(clusterSecret)
	lost.start()
	if again := p.whole(pods); again != id {
		t.Errorf("the node joined %s instead of %s", again, id)
	}
}

// whole waits until pods are ready and each reports a cluster of three, of which one may fail, and returns its ID.
func (p *place) whole(pods []*pod) (id string) {
	p.t.Helper()
	for _, o := range pods {
		p.wait("readiness of "+o.name, func() error { return o.probe("/readyz") })
		p.wait("a cluster of three", func() error {
			out, err := p.at(o).cli(adminToken, "cluster", "status")
			if err != nil {
				return err
			}
			if !strings.Contains(out, "carillon-0") || !strings.Contains(out, "carillon-2") || !strings.Contains(out, "one node may fail") {
				return fmt.Errorf("status:\n%s", out)
			}
			return nil
		})
		raw, err := os.ReadFile(filepath.Join(o.root, "data/carillon/rows/node.json"))
		o.must(err)
		var node struct{ Cluster string }
		o.must(json.Unmarshal(raw, &node))
		if id != "" && node.Cluster != id {
			p.t.Errorf("%s is in cluster %s, another one in %s", o.name, node.Cluster, id)
		}
		id = node.Cluster
	}
	return id
}

// kill ends the pod at once.
func (o *pod) kill() {
	o.p.t.Helper()
	o.must(o.cmd.Process.Kill())
	<-o.ended
}

// move gives the pod another address, as a new pod of its name has.
func (o *pod) move(ip string) {
	o.p.t.Helper()
	path := filepath.Join(o.root, "etc/carillon/config/..1/carillon.yaml")
	text, err := os.ReadFile(path)
	o.must(err)
	o.must(os.WriteFile(path, bytes.ReplaceAll(text, []byte(o.ip), []byte(ip)), 0o644))
	o.ip = ip
}

// secret gives the pod another cluster secret.
func (o *pod) secret(text string) {
	o.p.t.Helper()
	o.must(os.WriteFile(filepath.Join(o.root, "etc/carillon/secret/..1/cluster-secret"), []byte(text), 0o440))
}

// Two servers share a database. A worker finds the one whose bus is open, and the other one when it leads.
func testPostgres(t *testing.T) {
	database, err := sqltest.Postgres.Serve("127.0.0.1:5432")
	if err != nil {
		tests.Missing(t, fmt.Sprintf("PostgreSQL: %v", err))
	}
	t.Cleanup(database.Stop)
	url, err := database.Database("carillon")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, with(t, example(t, "postgres"), fmt.Sprintf(`
database: {url: %q}
tls: {caKey: ca.crt}
workers: [{name: http, app: http, args: [worker], tokenSecret: {name: http-worker, key: token}}]
`, url)))
	p.secrets["carillon-database"] = map[string]string{"password": "any"}
	pods := []*pod{p.server("carillon-7d4b-aaaaa"), p.server("carillon-7d4b-bbbbb")}
	for _, o := range pods {
		o.start()
		p.hosts["carillon-bus"] = append(p.hosts["carillon-bus"], o.ip)
	}
	for _, o := range pods { // the standby, too: a rolling update waits for it
		p.wait("readiness of "+o.name, func() error { return o.probe("/readyz") })
	}
	p.wait("a leader", func() error {
		if err := pods[0].probe("/leaderz"); err == nil {
			return nil
		}
		return pods[1].probe("/leaderz")
	})
	var text string
	p.wait("a worker's token", func() (err error) {
		text, err = p.at(pods[0]).cli(adminToken, "tokens", "create", "http-worker", "--role", "worker", "--app", "http", "-q")
		return err
	})
	p.secrets["http-worker"] = map[string]string{"token": text}
	w := p.worker("carillon-http")
	w.start()

	// leads returns the server that the worker is connected to.
	leads := func(among ...*pod) (leader *pod) {
		p.wait("a worker", func() error {
			var all []string
			for _, o := range among {
				out, err := p.at(o).cli(adminToken, "workers", "list")
				if err == nil && strings.Contains(out, "http") {
					leader = o
					return nil
				}
				all = append(all, fmt.Sprintf("%s: %v %s", o.name, err, out))
			}
			return fmt.Errorf("no server knows one: %s\n%s", strings.Join(all, "; "), w.log.String())
		})
		return leader
	}
	first := leads(pods...)
	first.stop()
	others := slices.DeleteFunc(slices.Clone(pods), func(o *pod) bool { return o == first })
	leads(others...)
	w.stop()
}
