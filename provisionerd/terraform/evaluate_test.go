package terraform_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// form is a template whose options, and whose questions, depend on earlier answers. Another provider's resource is no obstacle.
const form = `
data "coder_workspace_owner" "me" {}
locals {
  zones = { eu = ["eu-1", "eu-2"], us = ["us-1"] }
}
data "coder_parameter" "region" {
  name    = "region"
  order   = 1
  default = "eu"
  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}
data "coder_parameter" "zone" {
  name    = "zone"
  order   = 2
  default = local.zones[data.coder_parameter.region.value][0]
  dynamic "option" {
    for_each = local.zones[data.coder_parameter.region.value]
    content {
      name  = upper(option.value)
      value = option.value
    }
  }
}
data "coder_parameter" "gpu" {
  count   = data.coder_parameter.region.value == "us" ? 1 : 0
  name    = "gpu"
  type    = "bool"
  order   = 3
  default = "false"
}
data "coder_parameter" "admin" {
  count   = contains(data.coder_workspace_owner.me.groups, "devs") ? 1 : 0
  name    = "admin"
  order   = 4
  default = "no"
}
data "coder_parameter" "cpus" {
  name  = "cpus"
  type  = "number"
  order = 5
  validation {
    min = 1
    max = 8
  }
}
resource "elsewhere_machine" "vm" {
  zone = data.coder_parameter.zone.value
}
`

func ask(ctx context.Context, tb testing.TB, e *terraform.Executor, content map[string]string, values map[string]string) (terraform.Answer, error) {
	tb.Helper()
	source := tarOf(tb, content)
	sum := sha256.Sum256(source)
	q := terraform.Question{
		SourceSHA256: hex.EncodeToString(sum[:]), Metadata: metadata(),
		Source: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(source)), nil },
	}
	for name, value := range values {
		q.Parameters = append(q.Parameters, &provisionerpb.ParameterValue{Name: name, Value: value})
	}
	return e.Evaluate(ctx, q)
}

// shown returns an answer in short form.
func shown(a terraform.Answer) string {
	var parts []string
	for _, p := range a.Parameters {
		var options []string
		for _, o := range p.GetOptions() {
			options = append(options, o.GetValue())
		}
		parts = append(parts, fmt.Sprintf("%s=%s(%s)", p.GetName(), a.Values[p.GetName()], strings.Join(options, "|")))
	}
	return strings.Join(parts, " ")
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for _, c := range []struct {
		values  map[string]string
		want    string
		refused []string
	}{
		{nil, "region=eu(eu|us) zone=eu-1(eu-1|eu-2) admin=no() cpus=()", nil},
		{map[string]string{"region": "eu", "zone": "eu-2", "cpus": "4"}, "region=eu(eu|us) zone=eu-2(eu-1|eu-2) admin=no() cpus=4()", nil},
		{map[string]string{"region": "us", "gpu": "true"}, "region=us(eu|us) zone=us-1(us-1) gpu=true() admin=no() cpus=()", nil},
		// The earlier choice no longer fits: the default replaces it.
		{map[string]string{"region": "us", "zone": "eu-2"}, "region=us(eu|us) zone=us-1(us-1) gpu=false() admin=no() cpus=()", []string{"zone"}},
		{map[string]string{"region": "mars", "zone": "mars-1"}, "region=eu(eu|us) zone=eu-1(eu-1|eu-2) admin=no() cpus=()", []string{"region", "zone"}},
		{map[string]string{"unknown": "x"}, "region=eu(eu|us) zone=eu-1(eu-1|eu-2) admin=no() cpus=()", nil},
	} {
		got, err := ask(t.Context(), t, e, files(form), c.values)
		if err != nil {
			t.Errorf("%v: %v", c.values, err)
			continue
		}
		if shown(got) != c.want || len(got.Refused) != len(c.refused) {
			t.Errorf("%v: %s, refused %v; want %s, refused %v", c.values, shown(got), got.Refused, c.want, c.refused)
		}
		for _, name := range c.refused {
			if got.Refused[name] == "" {
				t.Errorf("%v: %s was not refused", c.values, name)
			}
		}
		if v := got.Parameters[len(got.Parameters)-1].GetValidation(); v.GetMin() != 1 || v.GetMax() != 8 {
			t.Errorf("%v: the rule of cpus is %v", c.values, v)
		}
	}
}

// TestEvaluateHostile: a template exhausts neither the server's time nor its memory nor its disk, and learns nothing about the server.
func TestEvaluateHostile(t *testing.T) {
	t.Parallel()
	e := newExecutor(t, func(o *terraform.Options) { o.Limits = sandbox.Limits{Memory: 512 << 20, File: 8 << 20} })
	var doubling strings.Builder
	doubling.WriteString("locals {\n  a0 = \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"\n")
	for i := range 40 {
		fmt.Fprintf(&doubling, "  a%d = \"${local.a%d}${local.a%d}\"\n", i+1, i, i)
	}
	doubling.WriteString("}\ndata \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = length(local.a40)\n}\n")
	loop := `
data "coder_parameter" "p" {
  name    = "p"
  default = length([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : [for d in range(1000) : a]]]])
}
`
	for name, c := range map[string]string{
		"memory": doubling.String(),
		"time":   loop,
		"disk":   "data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = join(\"\", [for a in range(1000) : join(\"\", [for b in range(1000) : \"0123456789abcdef\"])])\n}\n",
		"count":  "data \"coder_parameter\" \"p\" {\n  for_each = toset([for a in range(1000) : \"p${a}\"])\n  name = each.key\n  default = join(\"\", [for b in range(1000) : \"0123456789abcdef\"])\n}\n",
		"cycle":  "locals {\n  a = local.b\n  b = local.a\n}\ndata \"coder_parameter\" \"p\" {\n  name = local.a\n}\n",
		"syntax": "data \"coder_parameter\" {",
		"name":   "data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = no_such_function(1)\n}\n",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if got, err := ask(ctx, t, e, files(c), nil); err == nil {
				t.Errorf("it was evaluated: %d parameters", len(got.Parameters))
			}
		})
	}
	got, err := ask(t.Context(), t, e, files("data \"coder_parameter\" \"p\" {\n  name = \"p\"\n  default = \"${fileexists(\"/proc/1/environ\")}${data.coder_workspace_owner.me.session_token}\"\n}\ndata \"coder_workspace_owner\" \"me\" {}\n"), nil)
	if err == nil && strings.Contains(got.Values["p"], "SECRET") {
		t.Errorf("the form has the owner's session: %q", got.Values["p"])
	}
	// After every attack, the next question is answered.
	if got, err := ask(t.Context(), t, e, files(form), nil); err != nil || len(got.Parameters) != 4 {
		t.Errorf("afterwards: %v, %v", shown(got), err)
	}
	if _, err := ask(t.Context(), t, e, map[string]string{"main.tf.json": "{}"}, nil); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("JSON: %v", err)
	}
}

func TestEvaluateWaitsAndGivesUp(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			_, err := ask(t.Context(), t, e, files(form), map[string]string{"region": "us"})
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, t, e, files(form), nil); err == nil {
		t.Error("a question that nobody waits for was answered")
	}
}

func BenchmarkEvaluate(b *testing.B) {
	e := newExecutor(b)
	for b.Loop() {
		if _, err := ask(b.Context(), b, e, files(form), map[string]string{"region": "us"}); err != nil {
			b.Fatal(err)
		}
	}
}
