package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// server is the pod of the server in rendered objects.
type server struct {
	kind     string
	name     string
	replicas int
	labels   map[string]string
	pod      corev1.PodSpec
	box      corev1.Container
	config   map[string]any
	claims   int
	service  string // of the pods' names
}

func serverOf(t *testing.T, all []object) (s server) {
	t.Helper()
	var template corev1.PodTemplateSpec
	for _, o := range append(find(all, "StatefulSet"), find(all, "Deployment")...) {
		if o.Metadata.Name != release.Name {
			continue
		}
		s.kind, s.name = o.Kind, o.Metadata.Name
		if o.Kind == "Deployment" {
			d := read[appsv1.Deployment](t, o)
			s.replicas, template = int(*d.Spec.Replicas), d.Spec.Template
			continue
		}
		d := read[appsv1.StatefulSet](t, o)
		s.replicas, template, s.claims, s.service = int(*d.Spec.Replicas), d.Spec.Template, len(d.Spec.VolumeClaimTemplates), d.Spec.ServiceName
		if d.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
			t.Errorf("pods start one after the other (%s): nodes of a new cluster wait for each other", d.Spec.PodManagementPolicy)
		}
	}
	if len(template.Spec.Containers) != 1 {
		t.Fatalf("%d containers of the server", len(template.Spec.Containers))
	}
	s.labels, s.pod, s.box = template.Labels, template.Spec, template.Spec.Containers[0]
	if err := yaml.Unmarshal([]byte(dataOf(t, all, release.Name, "carillon.yaml")), &s.config); err != nil {
		t.Fatal(err)
	}
	return s
}

// dataOf returns a file of a ConfigMap.
func dataOf(t *testing.T, all []object, name, file string) string {
	t.Helper()
	for _, o := range find(all, "ConfigMap") {
		if o.Metadata.Name == name {
			return read[corev1.ConfigMap](t, o).Data[file]
		}
	}
	t.Fatalf("no ConfigMap %s", name)
	return ""
}

// set returns the value of a setting in carillon.yaml.
func (s server) set(key string) string {
	var at any = s.config
	if v, ok := s.config[key]; ok {
		return fmt.Sprint(v)
	}
	for _, part := range strings.Split(key, ".") {
		m, _ := at.(map[string]any)
		at = m[part]
	}
	if at == nil {
		return ""
	}
	return fmt.Sprint(at)
}

// inside names the program to the process of TestPods that has a network of its own.
const inside = "CHART_TEST_INSIDE"

// program builds the program, once.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(inside); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "carillon-chart-")
	if err != nil {
		return "", err
	}
	built := tests.Go("build", "-trimpath", "-o", dir+"/carillon", "./cmd/carillon")
	built.Dir = "../../.."
	built.Env = append(built.Env, "CGO_ENABLED=0") // it runs in a directory without libraries
	if out, err := built.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	builtIn = dir
	return dir + "/carillon", os.Chmod(dir, 0o755)
})

// builtIn is the directory of the built program; TestMain deletes it.
var builtIn string

func theProgram(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// settings are the program's settings: config print lists those without a value as comments.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	print := exec.Command(theProgram(t), "config", "print")
	print.Dir = t.TempDir()
	out, err := print.Output()
	if err != nil {
		t.Fatal(err)
	}
	known, sections := map[string]bool{}, []string{}
	for line := range strings.Lines(string(out)) {
		m := regexp.MustCompile(`^( *)(# )?([-A-Za-z]+):(.*)`).FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("config print: %q", line)
		}
		sections = append(sections[:len(m[1])/2:len(m[1])/2], m[3])
		known[strings.Join(sections, ".")] = true
	}
	if !known["http.addr"] || !known["nats.tls-ca"] || !known["scheduler.defaults.maxConcurrency"] {
		t.Fatalf("the settings are read wrongly: %v", known)
	}
	return known
}

// variable is the environment variable of a setting.
func variable(key string) string {
	upper := regexp.MustCompile(`[A-Z]`).ReplaceAllString(key, "_$0")
	return "CARILLON_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(upper))
}

// flatten returns the dotted keys of settings.
func flatten(prefix string, at map[string]any) (keys []string) {
	for name, v := range at {
		if m, ok := v.(map[string]any); ok {
			keys = append(keys, flatten(prefix+name+".", m)...)
		} else {
			keys = append(keys, prefix+name)
		}
	}
	return keys
}

// Settings, variables and flags of the pods exist in the program.
func TestSettingsExist(t *testing.T) {
	known := settings(t)
	variables := map[string]bool{"CARILLON_CONFIG": true}
	for key := range known {
		variables[variable(key)] = true
	}
	help, err := exec.Command(theProgram(t), "server", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	eachExample(t, func(t *testing.T, _ string, all []object) {
		s := serverOf(t, all)
		keys := flatten("", s.config)
		if len(keys) < 5 {
			t.Errorf("settings %q", keys)
		}
		for _, key := range keys {
			if !known[key] {
				t.Errorf("the program has no setting %s", key)
			}
		}
		checkVariables(t, s.box, variables)
		if s.box.Args[0] != "server" || len(s.box.Command) > 0 {
			t.Errorf("the container starts %q %q", s.box.Command, s.box.Args)
		}
		for _, arg := range s.box.Args {
			if strings.HasPrefix(arg, "--") && !strings.Contains(string(help), "\n      "+arg+" ") {
				t.Errorf("carillon server has no flag %s", arg)
			}
		}
		for _, o := range find(all, "Deployment") {
			checkVariables(t, read[appsv1.Deployment](t, o).Spec.Template.Spec.Containers[0], variables)
		}
	})
}

func checkVariables(t *testing.T, box corev1.Container, known map[string]bool) {
	t.Helper()
	for _, e := range box.Env {
		if strings.HasPrefix(e.Name, "CARILLON_") && !known[e.Name] {
			t.Errorf("the program has no variable %s", e.Name)
		}
	}
}

// Metrics by which KEDA scales workers exist.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, o := range find(rendered(t, example(t, "everything")), "ScaledObject") {
		query := read[scaledObject](t, o).Spec.Triggers[0].Metadata["query"]
		for _, name := range regexp.MustCompile(`carillon_\w+`).FindAllString(query, -1) {
			asked++
			if !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("docs/metrics.md has no %s", name)
			}
		}
	}
	if asked != 3 {
		t.Errorf("the query asks for %d metrics", asked)
	}
}

// Ports, names, selectors and mounts of the objects fit together.
func TestObjectsFit(t *testing.T) {
	eachExample(t, func(t *testing.T, name string, all []object) {
		s := serverOf(t, all)
		ports := map[string]int32{}
		for _, p := range s.box.Ports {
			ports[p.Name] = p.ContainerPort
		}
		listens := map[string]string{"http": s.set("http.addr"), "bus": s.set("nats.addr"), "nodes": s.set("cluster.addr")}
		for name, addr := range listens {
			if port, there := ports[name]; there != (addr != "") || there && !strings.HasSuffix(addr, fmt.Sprintf(":%d", port)) {
				t.Errorf("port %s is %d, but the server listens at %q", name, port, addr)
			}
		}
		if want := s.set("cluster.addr") != "" && s.set("nats.url") == ""; (ports["routes"] == 7947) != want {
			t.Errorf("port of routes: %d", ports["routes"])
		}
		services := map[string]corev1.Service{}
		for _, o := range find(all, "Service") {
			v := read[corev1.Service](t, o)
			services[o.Metadata.Name] = v
			matches(t, o, &metav1.LabelSelector{MatchLabels: v.Spec.Selector}, s.labels)
			for _, p := range v.Spec.Ports {
				if at := ports[p.TargetPort.String()]; at != p.Port {
					t.Errorf("service %s: port %d goes to %s, which is %d", o.Metadata.Name, p.Port, p.TargetPort.String(), at)
				}
			}
		}
		if _, is := services["carillon-bus"]; is != (s.set("nats.url") == "") {
			t.Errorf("a service of the bus: %v", is)
		}
		if v, is := services[s.service]; s.kind == "StatefulSet" && (!is || v.Spec.ClusterIP != "None" || !v.Spec.PublishNotReadyAddresses) {
			t.Errorf("the service %q of the pods' names: %+v", s.service, v.Spec)
		}
		if mode := example(t, name)["mode"]; mode == "cluster" {
			var want []string
			for i := range s.replicas {
				want = append(want, fmt.Sprintf("%s-%d.%s:%d", s.name, i, s.service, ports["nodes"]))
			}
			if peers := strings.Split(s.set("cluster.peers"), ","); !slices.Equal(peers, want) {
				t.Errorf("peers %q, want the names of the pods %q", peers, want)
			}
			if got := envOf(t, s, "carillon-0")["CARILLON_CLUSTER_ADVERTISE"] + ":7946"; got != want[0] {
				t.Errorf("the first pod's address is %s, want %s", got, want[0])
			}
			if s.claims != 1 {
				t.Errorf("%d claims", s.claims)
			}
		}
		for _, o := range find(all, "PodDisruptionBudget") {
			v := read[policyv1.PodDisruptionBudget](t, o)
			matches(t, o, v.Spec.Selector, s.labels)
			if s.replicas < 2 || v.Spec.MaxUnavailable.IntValue() != 1 {
				t.Errorf("%d pods may be missing of %d", v.Spec.MaxUnavailable.IntValue(), s.replicas)
			}
		}
		if n := len(find(all, "PodDisruptionBudget")); n != min(1, s.replicas-1) {
			t.Errorf("%d disruption budgets for %d pods", n, s.replicas)
		}
		for _, c := range s.pod.TopologySpreadConstraints {
			matches(t, object{Kind: "spread"}, c.LabelSelector, s.labels)
		}
		for _, o := range find(all, "NetworkPolicy") {
			checkPolicy(t, read[networkingv1.NetworkPolicy](t, o), s, ports)
		}
		checkMounts(t, s)
		checkEnd(t, s)
		for _, o := range find(all, "Deployment") {
			d := read[appsv1.Deployment](t, o)
			matches(t, o, d.Spec.Selector, d.Spec.Template.Labels)
			if o.Metadata.Name == s.name {
				continue
			}
			if labels.SelectorFromSet(services["carillon"].Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
				t.Errorf("requests for the server go to %s", o.Metadata.Name)
			}
			for _, e := range d.Spec.Template.Spec.Containers[0].Env {
				if u := e.Value; e.Name == "BUS_ADDRESS" && !strings.Contains(u, "://carillon-bus:4222?") {
					t.Errorf("%s: address %s", o.Metadata.Name, u)
				}
			}
			if g := *d.Spec.Template.Spec.TerminationGracePeriodSeconds; g < 30 {
				t.Errorf("%s has %d s to end; workers need up to 28", o.Metadata.Name, g)
			}
		}
		for _, o := range find(all, "ScaledObject") {
			to := read[scaledObject](t, o).Spec.ScaleTargetRef.Name
			if !slices.ContainsFunc(find(all, "Deployment"), func(d object) bool { return d.Metadata.Name == to && !strings.Contains(d.text, "\n  replicas:") }) {
				t.Errorf("%s scales %s, which is missing or has a number of its own", o.Metadata.Name, to)
			}
		}
	})
}

func matches(t *testing.T, o object, selector *metav1.LabelSelector, want map[string]string) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || s.Empty() || !s.Matches(labels.Set(want)) {
		t.Errorf("%s %s selects %v, not %v: %v", o.Kind, o.Metadata.Name, s, want, err)
	}
}

// checkPolicy: ports of nodes are open to nodes only, and DNS and stores can be reached.
func checkPolicy(t *testing.T, p networkingv1.NetworkPolicy, s server, ports map[string]int32) {
	t.Helper()
	matches(t, object{Kind: "policy"}, &p.Spec.PodSelector, s.labels)
	number := func(port networkingv1.NetworkPolicyPort) int32 {
		if port.Port.IntValue() != 0 {
			return int32(port.Port.IntValue())
		}
		return ports[port.Port.String()]
	}
	open := map[int32]bool{}
	for _, in := range p.Spec.Ingress {
		if len(in.From) == 0 {
			t.Error("a port is open to all")
		}
		for _, port := range in.Ports {
			n := number(port)
			open[n] = true
			if n != 7946 && n != 7947 {
				continue
			}
			if len(in.From) != 1 || in.From[0].NamespaceSelector != nil || in.From[0].IPBlock != nil {
				t.Fatalf("port %d is open to %+v", n, in.From)
			}
			matches(t, object{Kind: "peers of nodes"}, in.From[0].PodSelector, s.labels)
		}
	}
	for name, n := range ports {
		if !open[n] {
			t.Errorf("port %s is closed", name)
		}
	}
	if len(open) != len(ports) {
		t.Errorf("ports %v are open, the server has %v", open, ports)
	}
	var out []int32
	for _, e := range p.Spec.Egress {
		for _, port := range e.Ports {
			out = append(out, number(port))
		}
	}
	want := []int32{53}
	if s.set("cluster.addr") != "" {
		want = append(want, 7946)
	}
	if s.set("store.url") != "" {
		want = append(want, 5432)
	}
	if s.set("nats.url") != "" {
		want = append(want, 4222)
	}
	for _, n := range want {
		if !slices.Contains(out, n) {
			t.Errorf("pods cannot reach port %d: %v", n, out)
		}
	}
}

// checkMounts: each file that a setting names is mounted, secrets for the pod's group only, and nothing else is writable.
func checkMounts(t *testing.T, s server) {
	t.Helper()
	volumes := map[string]corev1.Volume{"data": {}}
	for _, v := range s.pod.Volumes {
		volumes[v.Name] = v
		if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
			t.Errorf("volume %s has mode %o: the server refuses what others can read", v.Name, *v.Secret.DefaultMode)
		}
	}
	files := map[string]bool{}
	for _, m := range s.box.VolumeMounts {
		v, is := volumes[m.Name]
		if !is {
			t.Errorf("no volume %s", m.Name)
		}
		if !m.ReadOnly && m.Name != "data" && m.Name != "scratch" {
			t.Errorf("%s is writable", m.MountPath)
		}
		switch {
		case v.Secret != nil && v.Secret.Items == nil:
			files[m.MountPath+"/*"] = true
		case v.Secret != nil:
			for _, i := range v.Secret.Items {
				files[m.MountPath+"/"+i.Path] = true
			}
		case v.ConfigMap != nil && v.ConfigMap.Items == nil:
			files[m.MountPath] = true
		case v.ConfigMap != nil:
			for _, i := range v.ConfigMap.Items {
				files[m.MountPath+"/"+i.Path] = true
			}
		}
	}
	named := []string{envOf(t, s, "carillon-0")["CARILLON_CONFIG"]}
	for _, key := range flatten("", s.config) {
		if text := s.set(key); strings.HasPrefix(text, "/etc/") {
			named = append(named, text)
		}
	}
	for _, path := range named {
		if !files[path] && !files[filepath.Dir(path)+"/*"] {
			t.Errorf("%s is not mounted: %v", path, files)
		}
	}
	if !strings.HasPrefix(s.set("data"), "/data/") {
		t.Errorf("the data is in %s", s.set("data"))
	}
	if p := s.pod.SecurityContext.FSGroupChangePolicy; p == nil || *p != corev1.FSGroupChangeOnRootMismatch {
		t.Error("Kubernetes would open the node's key to its group at each start")
	}
	if *s.pod.AutomountServiceAccountToken || *s.pod.EnableServiceLinks || !*s.box.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("the pod has a token, variables of services or a writable root")
	}
	if s.box.Resources.Limits.Memory().IsZero() || s.box.Resources.Requests.Cpu().IsZero() {
		t.Error("the pod has no limit of memory, or requests no processor")
	}
}

// checkEnd: Kubernetes waits longer for a pod than the server takes.
func checkEnd(t *testing.T, s server) {
	t.Helper()
	var grace, pause int64
	if _, err := fmt.Sscanf(s.set("shutdown.grace"), "%ds", &grace); err != nil {
		t.Error(err)
	}
	if l := s.box.Lifecycle; l != nil {
		pause = l.PreStop.Sleep.Seconds
	}
	if end := *s.pod.TerminationGracePeriodSeconds; end < grace+pause+20 {
		t.Errorf("Kubernetes kills the pod %d s after its end begins; it takes %d s and %d s", end, pause, grace)
	}
	if s.box.LivenessProbe.HTTPGet.Path != "/livez" || s.box.ReadinessProbe.HTTPGet.Path != "/readyz" || s.box.StartupProbe.HTTPGet.Path != "/livez" {
		t.Error("probes have other paths")
	}
	if secure := s.set("http.tls-cert") != ""; secure != (s.box.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS) {
		t.Error("probes use another scheme than the server")
	}
}

// envOf returns a pod's variables, as Kubernetes fills them in.
func envOf(t *testing.T, s server, pod string) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range s.box.Env {
		text := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil && e.ValueFrom.FieldRef.FieldPath == "metadata.name" {
			text = pod
		}
		env[e.Name] = regexp.MustCompile(`\$\(([A-Z_]+)\)`).ReplaceAllStringFunc(text, func(name string) string { return env[name[2:len(name)-1]] })
	}
	return env
}

// The secrets are in objects of kind Secret only.
func TestSecretsStaySecret(t *testing.T) {
	eachExample(t, func(t *testing.T, name string, all []object) {
		for _, o := range all {
			for _, secret := range []string{adminToken, clusterSecret} {
				plain, coded := strings.Contains(o.text, secret), strings.Contains(o.text, base64.StdEncoding.EncodeToString([]byte(secret)))
				if plain || coded && o.Kind != "Secret" {
					t.Errorf("%s %s has a secret", o.Kind, o.Metadata.Name)
				}
			}
		}
		notes := mustRender(t, example(t, name))["NOTES.txt"]
		if strings.Contains(notes, adminToken) || !strings.Contains(notes, "port-forward") {
			t.Errorf("notes:\n%s", notes)
		}
	})
}

// kept is a cluster that has Secrets.
type kept struct{ all *fake.FakeDynamicClient }

func (k kept) GetClientFor(_, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	if kind != "Secret" {
		return nil, false, apierrors.NewBadRequest("the chart looks up " + kind)
	}
	return k.all.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}), true, nil
}

// The chart generates secrets that the program takes, different ones each time, and an upgrade keeps them.
func TestUpgradeKeepsSecrets(t *testing.T) {
	values, err := readValues(filepath.Join(valuesDir, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	secretIn := func(text string) corev1.Secret {
		return read[corev1.Secret](t, object{Kind: "Secret", text: text})
	}
	none := kept{fake.NewSimpleDynamicClient(runtime.NewScheme())}
	render := func(in kept) string {
		files, err := render(theChart(t), values, newest, in)
		if err != nil {
			t.Fatal(err)
		}
		return files["secret.yaml"]
	}
	first := render(none)
	one, two := secretIn(first), secretIn(render(none))
	for _, key := range []string{"admin-token", "cluster-secret"} {
		if string(one.Data[key]) == string(two.Data[key]) || len(one.Data[key]) < 32 {
			t.Errorf("%s: two installations have %q and %q", key, one.Data[key], two.Data[key])
		}
	}
	if token := string(one.Data["admin-token"]); !regexp.MustCompile(`^carillon_default_[a-z0-9]{8}_[A-Za-z0-9]{26,}$`).MatchString(token) {
		t.Errorf("the generated token is %s", token)
	}
	if one.Annotations["helm.sh/resource-policy"] != "keep" {
		t.Error("the end of the release deletes the secret")
	}
	raw, err := yaml.YAMLToJSON([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	stored := new(unstructured.Unstructured)
	if err := json.Unmarshal(raw, stored); err != nil {
		t.Fatal(err)
	}
	again := secretIn(render(kept{fake.NewSimpleDynamicClient(runtime.NewScheme(), stored)}))
	for key, want := range one.Data {
		if string(again.Data[key]) != string(want) {
			t.Errorf("an upgrade changes %s", key)
		}
	}
}

// Wrong values are refused, with what to do.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct{ from, values, want string }{
		{"single", "replicas: 2", "mode single has one pod"},
		{"cluster", "replicas: 2", "an odd number, at least 3"},
		{"cluster", "replicas: 4", "replicas is 4, but a cluster needs an odd number"},
		{"cluster", "replicas: 1", "an odd number, at least 3"},
		{"cluster", "replicas: 0", "replicas"},
		{"single", "mode: double", "mode"},
		{"single", "tls: {existingSecret: ''}", "no TLS: set tls.existingSecret"},
		{"single", "tls: {plain: true}", "more than one of tls.plain"},
		{"single", "tls: {plain: true, existingSecret: '', caKey: ca.crt}", "tls.caKey is set"},
		{"cluster", "tls: {certManager: {issuerRef: {name: ''}}}", "needs tls.certManager.issuerRef"},
		{"postgres", "database: {url: ''}", "mode postgres needs database.url"},
		{"postgres", "database: {urlKey: url}", "both database.url and database.urlKey"},
		{"postgres", "database: {existingSecret: ''}", "database.existingSecret is not set"},
		{"postgres", "database: {url: 'postgres://u:geheim@db/x'}", "database.url has a password"},
		{"postgres", "database: {url: 'postgres://db/x?password=geheim'}", "database.url has a password"},
		{"postgres", "database: {url: 'sqlite://x'}", "url"},
		{"single", "database: {existingSecret: x}", "database is set, but mode is single"},
		{"nats", "nats: {url: 'nats://nats:4222'}", "nats.url nats://nats:4222 has no TLS"},
		{"nats", "nats: {url: 'tls://u:geheim@nats:4222'}", "before the @"},
		{"nats", "nats: {user: ''}", "nats.user and nats.passwordKey belong together"},
		{"nats", "nats: {tokenKey: t}", "more than one of nats.user"},
		{"nats", "nats: {existingSecret: ''}", "nats.existingSecret is not set"},
		{"single", "nats: {user: x}", "nats.url is not set"},
		{"nats", "workers: [{name: a, app: a, image: a, tokenSecret: {name: a, key: a}}]", "worker a has a tokenSecret"},
		{"single", "workers: [{name: a, app: b, image: a}]", "carillon tokens create a --role worker --app b"},
		{"everything", "workers: [{name: a, app: a, image: a, tokenSecret: {name: a, key: a}}, {name: a, app: a, image: a, tokenSecret: {name: a, key: a}}]", "two workers have the name a"},
		{"single", "workers: [{name: a, app: b, image: a, slots: 3}]", "slots"},
		{"single", "ingress: {enabled: true}", "ingress.enabled needs ingress.host"},
		{"single", "secrets: {existingSecret: x}", "secrets.existingSecret is set: remove one"},
		{"cluster", "secrets: {clusterSecret: short}", "secrets.clusterSecret has 5 characters: want at least 32"},
		{"single", "secrets: {adminToken: admin}", "secrets.adminToken is no token"},
		{"single", "config: {http: {addr: '0.0.0.0:80'}}", "config.http is set by the chart"},
		{"single", "config: {admin-token-file: x}", "config.admin-token-file is set by the chart"},
		{"single", "config: {shutdown: {grace: 60s}}", "use shutdownGraceSeconds"},
		{"everything", "config: {jobs: {every: 5m}}", "both jobs and config.jobs are set"},
		{"single", "metrics: {serviceMonitor: {enabled: true}}", "carillon tokens create prometheus --role viewer"},
		{"single", "reply: 3", "reply"},
		{"single", "image: {tags: x}", "tags"},
		{"single", "image: {digest: sha256:12}", "digest"},
		{"single", "networkPolicy: {busFrom: []}", "busFrom"},
	} {
		t.Run(c.values, func(t *testing.T) {
			_, err := render(theChart(t), with(t, example(t, c.from), c.values), newest, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	if _, err := render(theChart(t), example(t, "single"), "v1.24.0", nil); err == nil || !strings.Contains(err.Error(), "v1.24.0") {
		t.Errorf("an old Kubernetes: %v", err)
	}
}

// Kubernetes before 1.30 cannot sleep before the end of a container.
func TestOldKubernetes(t *testing.T) {
	for version, want := range map[string]bool{"v1.25.0": false, "v1.29.9": false, "v1.30.0": true, "v1.31.2-gke.100": true} {
		files, err := render(theChart(t), example(t, "cluster"), version, nil)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(files["server.yaml"], "sleep:") != want {
			t.Errorf("%s sleeps: want %v", version, want)
		}
	}
}

// A changed setting restarts the pods, another change does not.
func TestConfigRestarts(t *testing.T) {
	sum := func(more string) string {
		files := mustRender(t, with(t, example(t, "cluster"), more))
		return regexp.MustCompile(`checksum/config: \w+`).FindString(files["server.yaml"])
	}
	before := sum("{}")
	if before == "" || before == sum("config: {retention: {bytes: 9999999999}}") || before != sum("service: {type: NodePort}") {
		t.Error("the checksum does not follow the settings")
	}
}

// The README's table has every value, and the schema has no others.
func TestReadme(t *testing.T) {
	values, err := os.ReadFile(chartDir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(chartDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(readme), values)
	if err != nil {
		t.Fatal(err)
	}
	if want != string(readme) {
		t.Error("the README's table is out of date: run `go run . -readme` in deploy/chart/charttest")
	}
	var defaults map[string]any
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if err := yaml.Unmarshal(values, &defaults); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	compareSchema(t, "", schema.Properties, defaults)
}

// compareSchema compares the names of values in the schema with those in values.yaml.
func compareSchema(t *testing.T, at string, properties, values map[string]any) {
	t.Helper()
	for name, p := range properties {
		v, is := values[name]
		inner, _ := p.(map[string]any)["properties"].(map[string]any)
		section, _ := v.(map[string]any)
		switch {
		case at+name == "global": // Helm adds it
		case !is:
			t.Errorf("values.yaml has no %s%s", at, name)
		case len(inner) > 0 && len(section) > 0:
			compareSchema(t, at+name+".", inner, section)
		}
	}
	for name := range values {
		if properties[name] == nil {
			t.Errorf("the schema has no %s%s", at, name)
		}
	}
}
