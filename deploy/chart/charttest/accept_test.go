package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
)

func loadArchive(from io.Reader) (*chart.Chart, error) { return loader.LoadArchive(from) }

// strict decodes as an API server does that refuses unknown and repeated fields.
var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// accept returns why an API server would refuse an object.
func accept(text string) error {
	o, _, err := strict.Decode([]byte(text), nil, nil)
	if err != nil {
		return err
	}
	legacyscheme.Scheme.Default(o)
	var errs field.ErrorList
	into := func(to runtime.Object) bool {
		if err = legacyscheme.Scheme.Convert(o, to, nil); err != nil {
			errs = append(errs, field.InternalError(nil, err))
		}
		return err == nil
	}
	var pods corevalidation.PodValidationOptions
	switch o.(type) {
	case *appsv1.StatefulSet:
		if to := new(apps.StatefulSet); into(to) {
			errs = appsvalidation.ValidateStatefulSet(to, appsvalidation.StatefulSetValidationOptions{}, pods)
		}
	case *appsv1.Deployment:
		if to := new(apps.Deployment); into(to) {
			errs = appsvalidation.ValidateDeployment(to, pods)
		}
	case *corev1.Service:
		if to := new(core.Service); into(to) {
			one := core.IPFamilyPolicySingleStack // the API server sets these three, by its network
			to.Spec.IPFamilyPolicy, to.Spec.IPFamilies = &one, []core.IPFamily{core.IPv4Protocol}
			if to.Spec.ClusterIP != "" {
				to.Spec.ClusterIPs = []string{to.Spec.ClusterIP}
			}
			errs = corevalidation.ValidateServiceCreate(to)
		}
	case *corev1.ConfigMap:
		if to := new(core.ConfigMap); into(to) {
			errs = corevalidation.ValidateConfigMap(to)
		}
	case *corev1.Secret:
		if to := new(core.Secret); into(to) {
			errs = corevalidation.ValidateSecret(to)
		}
	case *networkingv1.NetworkPolicy:
		if to := new(networking.NetworkPolicy); into(to) {
			errs = networkingvalidation.ValidateNetworkPolicy(to, networkingvalidation.NetworkPolicyValidationOptions{})
		}
	case *networkingv1.Ingress:
		if to := new(networking.Ingress); into(to) {
			errs = networkingvalidation.ValidateIngressCreate(to)
		}
	case *policyv1.PodDisruptionBudget:
		if to := new(policy.PodDisruptionBudget); into(to) {
			errs = policyvalidation.ValidatePodDisruptionBudget(to, policyvalidation.PodDisruptionBudgetValidationOptions{})
		}
	default:
		errs = append(errs, field.NotSupported(nil, o.GetObjectKind().GroupVersionKind().String(), []string{"a kind that this test knows"}))
	}
	return errs.ToAggregate()
}

// scaledObject is what the chart uses of KEDA's ScaledObject, whose module needs a hundred others.
type scaledObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type       string            `json:"type"`
			MetricType string            `json:"metricType"`
			Metadata   map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// An API server accepts every object of every example, and the security standard "restricted" every pod.
func TestAccepted(t *testing.T) {
	guard, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	eachExample(t, func(t *testing.T, _ string, all []object) {
		pods := 0
		for _, o := range all {
			var spec *corev1.PodTemplateSpec
			switch o.Kind {
			case "Certificate":
				if c := read[certmanager.Certificate](t, o); len(c.Spec.DNSNames) == 0 || c.Spec.IssuerRef.Name == "" {
					t.Errorf("certificate %+v", c.Spec)
				}
				continue
			case "ServiceMonitor":
				read[monitoring.ServiceMonitor](t, o)
				continue
			case "PrometheusRule":
				if r := read[monitoring.PrometheusRule](t, o); len(r.Spec.Groups) == 0 || len(r.Spec.Groups[0].Rules) < 5 {
					t.Errorf("%d groups of rules", len(r.Spec.Groups))
				}
				continue
			case "ScaledObject":
				if s := read[scaledObject](t, o); s.APIVersion != "keda.sh/v1alpha1" || len(s.Spec.Triggers) != 1 || s.Spec.MinReplicaCount > s.Spec.MaxReplicaCount {
					t.Errorf("scaled object %+v", s)
				}
				continue
			case "StatefulSet":
				spec = &read[*appsv1.StatefulSet](t, o).Spec.Template
			case "Deployment":
				spec = &read[*appsv1.Deployment](t, o).Spec.Template
			}
			if err := accept(o.text); err != nil {
				t.Errorf("%s %s: %v\n%s", o.Kind, o.Metadata.Name, err, o.text)
			}
			if spec == nil {
				continue
			}
			pods++
			results := guard.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &spec.ObjectMeta, &spec.Spec)
			if sum := podsecurity.AggregateCheckResults(results); !sum.Allowed {
				t.Errorf("%s %s: %s", o.Kind, o.Metadata.Name, sum.ForbiddenDetail())
			}
		}
		if pods == 0 {
			t.Error("no pods are checked")
		}
	})
}

// The check of this test refuses what an API server refuses.
func TestRefusedByKubernetes(t *testing.T) {
	set := find(rendered(t, example(t, "single")), "StatefulSet")[0].text
	for old, now := range map[string]string{
		"replicas: 1":              "replicas: one",
		"serviceName:":             "serviceNames:",
		"port: http,":              "port: -1,",
		"storage: 8Gi":             "storage: much",
		"name: data, mountPath":    "name: date, mountPath",
		"containerPort: 8080":      "containerPort: 80800",
		"minReadySeconds: 5":       "minReadySeconds: -5",
		"kubernetes.io/hostname\n": "''\n",
	} {
		if !strings.Contains(set, old) {
			t.Errorf("%q does not occur", old)
		}
		if err := accept(strings.Replace(set, old, now, 1)); err == nil {
			t.Errorf("%q is accepted", now)
		}
	}
}

// Helm's own check finds nothing.
func TestLint(t *testing.T) {
	eachExample(t, func(t *testing.T, name string, _ []object) {
		// The linter wants the directory to have the chart's name.
		dir := filepath.Join(t.TempDir(), "carillon")
		if err := chartutil.SaveDir(theChart(t), filepath.Dir(dir)); err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.All(dir, example(t, name), release.Namespace, true).Messages {
			if m.Severity > support.InfoSev {
				t.Error(m)
			}
		}
	})
}

// The chart's copies of the alert rules and the dashboard are those of the repository.
func TestSameFiles(t *testing.T) {
	c := theChart(t)
	for name, from := range map[string]string{"files/alerts.yml": "../../alerts.yml", "files/carillon.json": "../../grafana/carillon.json"} {
		want, err := os.ReadFile(from)
		if os.IsNotExist(err) && name == "files/carillon.json" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range c.Files {
			found = found || f.Name == name && string(f.Data) == string(want)
		}
		if !found {
			t.Errorf("the chart has no %s like deploy/%s: ln -s ../%s %s", name, from[6:], from, name)
		}
	}
}
