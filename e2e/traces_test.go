package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	exports "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// collector receives traces as an OTLP collector does.
type collector struct {
	*httptest.Server
	mu       sync.Mutex // guards everything below
	requests int
	spans    []collected
	text     strings.Builder // everything that arrived
}

type collected struct {
	*spans.Span
	service string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests++
		body, err := io.ReadAll(r.Body)
		var request exports.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Api-Key") != "the-collectors-key" {
			http.Error(w, "not a trace", http.StatusBadRequest)
			return
		}
		c.text.Write(body)
		for _, from := range request.GetResourceSpans() {
			service := attribute(from.GetResource().GetAttributes(), "service.name")
			for _, scope := range from.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					c.spans = append(c.spans, collected{span, service})
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func attribute(all []*v1.KeyValue, name string) string {
	for _, a := range all {
		if a.GetKey() == name {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// await waits for a trace that begins with the root and has spans with all names, and returns its spans by name.
func (c *collector) await(t *testing.T, root string, names ...string) map[string]collected {
	t.Helper()
	var found map[string]collected
	testwait.Until(t, root, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		state := fmt.Errorf("no trace begins with it among %d spans", len(c.spans))
		for _, first := range c.spans {
			if first.GetName() != root || len(first.GetParentSpanId()) > 0 {
				continue
			}
			found = map[string]collected{}
			for _, s := range c.spans {
				if string(s.GetTraceId()) == string(first.GetTraceId()) {
					found[s.GetName()] = s
				}
			}
			missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name].Span != nil })
			if len(missing) == 0 {
				return nil
			}
			state = fmt.Errorf("the trace lacks %q", missing)
		}
		return state
	})
	return found
}

// forget forgets the spans that have arrived.
func (c *collector) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = nil
}

// TestTraceOfBuild checks that one trace follows a build from its request through the queue and an external provisioner to the phases of
// Terraform, that a failed build is marked, and that no value of a parameter, output of a template or credential is sent.
func TestTraceOfBuild(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	d := prepare(t, "--provisioner-daemons=0", "--trace")
	d.extra = append(d.extra, "CODER_PROVISIONER_DAEMON_PSK="+provisionerKey, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL,
		"OTEL_EXPORTER_OTLP_HEADERS=api-key=the-collectors-key", "OTEL_BSP_SCHEDULE_DELAY=100")
	d.begin()
	d.provisioner("rack", "--trace")
	words := filepath.Join(d.dir, "template-traced", "words")
	if err := os.MkdirAll(words, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(words, "main.tf"), []byte(`output "bad" { value = "fail" }`), 0o644); err != nil {
		t.Fatal(err)
	}
	d.push("traced", tracedTemplate)
	const request = "POST /api/v2/users/{user}/workspaces"
	d.coder("create", "dev", "-t", "traced", "-y", "--parameter", "word=the-secret-word")
	good := c.await(t, request, "job queued", "job start", "terraform plan", "terraform apply")
	root, job := good[request], good["job start"]
	for _, want := range []struct {
		name, service string
		parent        collected
	}{
		{"job queued", "codermesh-server", root},
		{"job start", "codermesh-provisioner", root},
		{"terraform plan", "codermesh-provisioner", job},
		{"terraform apply", "codermesh-provisioner", job},
	} {
		got := good[want.name]
		if got.service != want.service || string(got.GetParentSpanId()) != string(want.parent.GetSpanId()) {
			t.Errorf("%q is of %s below %x, want %s below %x", want.name, got.service, got.GetParentSpanId(), want.service, want.parent.GetSpanId())
		}
		if got.GetEndTimeUnixNano() < got.GetStartTimeUnixNano() || got.GetStatus().GetCode() != spans.Status_STATUS_CODE_UNSET {
			t.Errorf("%q: %v", want.name, got.Span)
		}
	}
	if plan, apply := good["terraform plan"], good["terraform apply"]; plan.GetEndTimeUnixNano() > apply.GetStartTimeUnixNano() {
		t.Errorf("the plan ends after the apply began: %v, %v", plan.Span, apply.Span)
	}
	if root.service != "codermesh-server" || attribute(root.GetAttributes(), "codermesh.request") == "" {
		t.Errorf("the request: %v", root.Span)
	}
	c.await(t, "POST /api/v2/organizations/{organization}/templateversions", "job import", "terraform init")

	c.forget()
	if _, _, err := d.try("create", "bad", "-t", "traced", "-y", "--parameter", "word=fail"); err == nil {
		t.Fatal("the build did not fail")
	}
	bad := c.await(t, request, "job start", "terraform plan", "terraform apply")
	for name, want := range map[string]spans.Status_StatusCode{
		"job start": spans.Status_STATUS_CODE_ERROR, "terraform plan": spans.Status_STATUS_CODE_UNSET, "terraform apply": spans.Status_STATUS_CODE_ERROR,
	} {
		if got := bad[name].GetStatus(); got.GetCode() != want || got.GetMessage() != "" {
			t.Errorf("%q of the failed build: %v, want %v without a message", name, got, want)
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, secret := range []string{"the-secret-word", "the-output-of-the-template", d.token, provisionerKey, password} {
		if strings.Contains(c.text.String(), secret) {
			t.Errorf("%q was sent to the collector", secret)
		}
	}
}

const tracedTemplate = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
module "words" {
  source = "./words"
}
data "coder_parameter" "word" {
  name = "word"
  type = "string"
}
resource "terraform_data" "one" {
  input = data.coder_parameter.word.value
  provisioner "local-exec" {
    command = "echo the-output-of-the-template; test ${data.coder_parameter.word.value} != ${module.words.bad}"
  }
}
`

// TestTracesAreOff checks that a server without --trace sends nothing, even if its environment names a collector, and that one with --trace
// sends its last spans when it stops.
func TestTracesAreOff(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"off": nil, "on": {"--trace"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			d := prepare(t, append(args, "--provisioner-daemons=0")...)
			d.extra = append(d.extra, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_EXPORTER_OTLP_HEADERS=api-key=the-collectors-key", "OTEL_BSP_SCHEDULE_DELAY=600000")
			d.begin()
			d.coder("whoami")
			if err := d.end(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if sent := c.requests > 0; sent != (name == "on") {
				t.Errorf("the collector got %d requests with %d spans", c.requests, len(c.spans))
			}
			if sent := slices.ContainsFunc(c.spans, func(s collected) bool { return s.GetName() == "GET /api/v2/users/{user}" }); sent != (name == "on") {
				t.Errorf("the last request was sent: %t", sent)
			}
		})
	}
}

// TestTracesNeedCollector checks what --trace refuses.
func TestTracesNeedCollector(t *testing.T) {
	t.Parallel()
	d := prepare(t, "--trace", "--provisioner-daemons=0")
	for want, env := range map[string][]string{
		"--trace needs the address of a collector":       {"OTEL_EXPORTER_OTLP_ENDPOINT="},
		`traces cannot be sent with the protocol "grpc"`: {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	} {
		cmd := d.command(t.Context(), "server", "--trace", "--provisioner-daemons=0")
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "\nTry: ") {
			t.Errorf("got %v, want %q and a hint\n%s", err, want, out)
		}
	}
}
