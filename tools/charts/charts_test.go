// Package charts_test checks the Helm charts of packaging/charts: Helm lints and renders them, every rendered object is decoded into
// Kubernetes' own types, which refuses unknown fields and wrong types, and kubeconform validates it against Kubernetes' schemas, which
// also require fields.
package charts_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/yannh/kubeconform/pkg/validator"
	"google.golang.org/protobuf/proto"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi"
	"sigs.k8s.io/yaml"
)

const folder = "../../packaging/charts"

// required are the values without which a chart refuses to render.
var required = map[string]string{
	"codermesh": `
accessURL: https://coder.example.com
secrets: {database: {name: db}, stateEncryptionKey: {name: state}}`,
	"codermesh-provisioner": `
serverURL: https://coder.example.com
secrets: {key: {name: key}}`,
	"codermesh-proxy": `
serverURL: https://coder.example.com
accessURL: https://eu.example.com
secrets: {token: {name: token}}`,
}

// everything sets every value to something else than its default.
var everything = map[string]string{
	"codermesh": `
replicas: 3
secrets: {provisionerPSK: {name: psk}}
service: {annotations: {a: b}}
stun: {enabled: true, annotations: {a: b}}
metrics: {enabled: true, serviceMonitor: {enabled: true, interval: 1m, labels: {a: b}}}
webhooks: {allowedNetworks: [10.96.0.0/12, 192.0.2.0/24]}
connections: {blockDirect: true, browserOnly: true}
ingress: {enabled: true, className: nginx, annotations: {a: b}, tlsSecret: certificate}` + common,
	"codermesh-provisioner": `
replicas: 2
tags: {environment: production, b: c}
rbac: {namespaces: [red, blue]}
metrics: {enabled: true, serviceMonitor: {enabled: true, interval: 1m, labels: {a: b}}}
storage: {className: fast}` + common,
	"codermesh-proxy": `
stun: {enabled: true, annotations: {a: b}}
ingress: {enabled: true, className: nginx, host: other.example.com, annotations: {a: b}, tlsSecret: certificate}` + common,
}

const common = `
image: {tag: "1", pullSecrets: [{name: registry}]}
serviceAccount: {name: other, annotations: {a: b}}
env: [{name: CODER_VERBOSE, value: "true"}]
resources: {limits: {memory: 1Gi}}
podAnnotations: {a: b}
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}`

// render returns the objects of a chart, as YAML documents.
func render(t *testing.T, name string, values ...string) (map[string]string, error) {
	t.Helper()
	chart, err := loader.LoadDir(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	merged := map[string]any{}
	for _, text := range values {
		read, err := chartutil.ReadValues([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		merged = chartutil.MergeTables(read, merged)
	}
	input, err := chartutil.ToRenderValues(chart, merged, chartutil.ReleaseOptions{Name: "mesh", Namespace: "dev"}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(chart, input)
}

// serviceMonitor has the fields of the Prometheus operator's object that charts set. Its module is not worth the weight.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string               `json:"jobLabel"`
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// schemas returns kubeconform with JSON schemas made from the OpenAPI document in kyaml, because kubeconform itself contains none. The
// document is that of Kubernetes 1.21, which has every kind of the charts; later fields pass.
func schemas(t *testing.T) validator.Validator {
	t.Helper()
	version := kubernetesapi.DefaultOpenAPI
	data := kubernetesapi.OpenAPIMustAsset[version]("kubernetesapi/" + strings.ReplaceAll(version, ".", "_") + "/swagger.pb")
	document, swagger := &openapi_v2.Document{}, spec.Swagger{}
	if err := proto.Unmarshal(data, document); err != nil {
		t.Fatal(err)
	}
	if complete, err := swagger.FromGnostic(document); err != nil || !complete {
		t.Fatalf("read the OpenAPI document: complete %t, %v", complete, err)
	}
	// OpenAPI calls these strings only.
	swagger.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = *new(spec.Schema).Typed("string", "").AddType("integer", "")
	swagger.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = *new(spec.Schema).Typed("string", "").AddType("number", "")

	dir := t.TempDir()
	write := func(name string, value any) {
		text, err := json.Marshal(value)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("swagger.json", map[string]any{"definitions": swagger.Definitions})
	for name, definition := range swagger.Definitions {
		var kinds []struct{ Group, Version, Kind string }
		if err := definition.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			t.Fatal(err)
		}
		for _, k := range kinds {
			file := fmt.Sprintf("%s-%s-%s.json", cmp.Or(k.Group, k.Version), k.Version, strings.ToLower(k.Kind))
			write(file, map[string]string{"$ref": "swagger.json#/definitions/" + name})
		}
	}
	v, err := validator.New([]string{dir + "/{{.Group}}-{{.ResourceAPIVersion}}-{{.ResourceKind}}.json"}, validator.Opts{
		Strict: true, SkipKinds: map[string]struct{}{"ServiceMonitor": {}}, // the Prometheus operator's
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// conforms validates the documents of a rendered file.
func conforms(v validator.Validator, text string) (problems []string) {
	for _, result := range v.Validate("", io.NopCloser(strings.NewReader(text))) {
		if result.Err != nil {
			problems = append(problems, result.Err.Error())
		}
	}
	return problems
}

// decode checks the documents of a rendered file, and counts them by kind.
func decode(text string, kinds map[string]int) error {
	for document := range strings.SplitSeq(text, "\n---\n") {
		var head struct{ Kind, APIVersion string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return err
		}
		if head.Kind == "" {
			continue
		}
		into, ok := map[string]any{
			"v1 Service": &corev1.Service{}, "v1 ServiceAccount": &corev1.ServiceAccount{},
			"apps/v1 Deployment": &appsv1.Deployment{}, "apps/v1 StatefulSet": &appsv1.StatefulSet{},
			"networking.k8s.io/v1 Ingress": &networkingv1.Ingress{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
			"rbac.authorization.k8s.io/v1 Role": &rbacv1.Role{}, "rbac.authorization.k8s.io/v1 RoleBinding": &rbacv1.RoleBinding{},
			"monitoring.coreos.com/v1 ServiceMonitor": &serviceMonitor{},
		}[head.APIVersion+" "+head.Kind]
		if !ok {
			return fmt.Errorf("%s %s is not a kind that charts make", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return fmt.Errorf("%s: %w\n%s", head.Kind, err, document)
		}
		kinds[head.Kind]++
	}
	return nil
}

func TestCharts(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]int{
		"codermesh":             {"Deployment": 1, "Service": 3, "ServiceAccount": 1, "Ingress": 1, "PodDisruptionBudget": 1, "ServiceMonitor": 1},
		"codermesh-provisioner": {"StatefulSet": 1, "Service": 2, "ServiceAccount": 1, "Role": 2, "RoleBinding": 2, "ServiceMonitor": 1},
		"codermesh-proxy":       {"Deployment": 1, "Service": 2, "ServiceAccount": 1, "Ingress": 1},
	}
	v := schemas(t)
	for name := range required {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := chartutil.ReadValues([]byte(required[name]))
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range lint.AllWithKubeVersion(filepath.Join(folder, name), values, "dev", nil).Messages {
				if message.Severity > support.InfoSev {
					t.Errorf("lint: %s", message)
				}
			}
			for _, set := range [][]string{{required[name]}, {required[name], everything[name]}} {
				files, err := render(t, name, set...)
				if err != nil {
					t.Fatal(err)
				}
				kinds := map[string]int{}
				for _, file := range slices.Sorted(maps.Keys(files)) {
					if err := decode(files[file], kinds); err != nil {
						t.Errorf("%s: %v", file, err)
					}
					for _, problem := range conforms(v, files[file]) {
						t.Errorf("%s: %s", file, problem)
					}
				}
				if len(set) == 2 && !maps.Equal(kinds, want[name]) {
					t.Errorf("objects: got %v, want %v", kinds, want[name])
				}
			}
		})
	}
}

// A chart without its required values says which one is missing.
func TestRequired(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"codermesh": "set accessURL", "codermesh-provisioner": "set secrets.key.name", "codermesh-proxy": "set serverURL"} {
		if _, err := render(t, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

// The check of objects finds mistakes.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"apiVersion: v1\nkind: Service\nspec: {prots: []}":          "prots",
		"apiVersion: v1\nkind: Service\nspec: {ports: [{port: x}]}": "port",
		"apiVersion: v2\nkind: Service":                             "not a kind",
	} {
		if err := decode(document, map[string]int{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", document, err, want)
		}
	}
}

// The schemas find what the types cannot.
func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	v := schemas(t)
	for document, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\nspec: {selector: {}}":                                              "missing property 'template'",
		"apiVersion: v1\nkind: Service\nspec: {ports: [{name: http}]}":                                             "missing property 'port'",
		"apiVersion: v1\nkind: Service\nspec: {ports: [{port: 1, targetPort: http}, {port: 2, targetPort: true}]}": "targetPort",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: [{resources: [pods]}]":                       "missing property 'verbs'",
		"apiVersion: apps/v9\nkind: Deployment":                                                                    "could not find schema",
	} {
		if problems := strings.Join(conforms(v, document), "\n"); !strings.Contains(problems, want) {
			t.Errorf("%q: got %q, want %q", document, problems, want)
		}
	}
	for _, document := range []string{
		"apiVersion: v1\nkind: Service\nspec: {ports: [{port: 1, targetPort: http}, {port: 2, targetPort: 80}]}",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {maxUnavailable: 1}",
	} {
		if problems := conforms(v, document); problems != nil {
			t.Errorf("%q: %q", document, problems)
		}
	}
}

// The provisioner's account may manage workspaces in the named namespaces, and nothing in others.
func TestPermissions(t *testing.T) {
	t.Parallel()
	files, err := render(t, "codermesh-provisioner", required["codermesh-provisioner"], "rbac: {namespaces: [red, blue]}")
	if err != nil {
		t.Fatal(err)
	}
	text := files["codermesh-provisioner/templates/rbac.yaml"]
	for _, want := range []string{"namespace: red", "namespace: blue", "persistentvolumeclaims"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	for _, never := range []string{"ClusterRole", "*", "escalate", "impersonate"} {
		if strings.Contains(text, never) {
			t.Errorf("has %q:\n%s", never, text)
		}
	}
}
