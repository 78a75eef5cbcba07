package terraform_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-sdk/v2/diag"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"go.yaml.in/yaml/v3"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// The stand-ins for the providers of clouds have the real ones' schemas, which scripts/cloud-schemas writes.

//go:embed testdata/clouds/*.json
var cloudSchemas embed.FS

// cloudBody is what a block may have: attributes, such as "optional set string", and blocks.
type cloudBody map[string]cloudArgument

type cloudArgument struct {
	attribute string

	Nesting   string    `json:"nesting"`
	Max       int       `json:"max"`
	Required  bool      `json:"required"`
	Attribute bool      `json:"attribute"` // written as an attribute whose value is a list of objects
	Body      cloudBody `json:"body"`
}

func (a *cloudArgument) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		return json.Unmarshal(text, &a.attribute)
	}
	type block cloudArgument
	return json.Unmarshal(text, (*block)(a))
}

// changeable are the attributes that the stand-ins change in place. A change of any other one makes a new resource: the schemas do not say which
// do, and this shows that builds change none of them.
var changeable = []string{
	"aws_ec2_instance_state.state", "azurerm_managed_disk.disk_size_gb", "google_compute_instance.desired_status", "google_compute_instance.metadata",
}

func (b cloudBody) schema(of string) attributes {
	all := attributes{}
	for name, a := range b {
		if a.attribute == "" {
			all[name] = &schema.Schema{
				Type: schema.TypeList, Optional: !a.Required, Required: a.Required, ForceNew: true, MaxItems: a.Max,
				Elem: &schema.Resource{Schema: a.Body.schema(of + "." + name)},
			}
			if a.Nesting == "set" {
				all[name].Type = schema.TypeSet
			}
			if a.Attribute {
				all[name].ConfigMode = schema.SchemaConfigModeAttr
			}
			continue
		}
		words := strings.Fields(a.attribute)
		s := &schema.Schema{Type: cloudTypes[words[1]], Optional: words[0] == "optional", Required: words[0] == "required", Computed: words[0] == "computed"}
		s.ForceNew = !s.Computed && !slices.Contains(changeable, of+"."+name)
		if len(words) == 3 {
			s.Elem = &schema.Schema{Type: cloudTypes[words[2]]}
		}
		all[name] = s
	}
	return all
}

var cloudTypes = map[string]schema.ValueType{
	"string": schema.TypeString, "number": schema.TypeFloat, "bool": schema.TypeBool, "list": schema.TypeList, "set": schema.TypeSet, "map": schema.TypeMap,
}

type cloud struct {
	Source    string               `json:"source"`
	Version   string               `json:"version"`
	Provider  cloudBody            `json:"provider"`
	Resources map[string]cloudBody `json:"resources"`
	Data      map[string]cloudBody `json:"data"`
}

// cloudSources returns the providers with stand-ins, with their versions, for mirrorProvider.
func cloudSources(t *testing.T) (sources []string) {
	t.Helper()
	names, err := fs.Glob(cloudSchemas, "testdata/clouds/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := cloudSchemas.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c cloud
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, c.Source+"@"+c.Version)
	}
	return sources
}

// cloudStandIn returns the stand-in for the provider with a name, such as aws, or nil.
func cloudStandIn(name string) *schema.Provider {
	text, err := cloudSchemas.ReadFile("testdata/clouds/" + name + ".json")
	if err != nil {
		return nil
	}
	var c cloud
	if err := json.Unmarshal(text, &c); err != nil {
		panic(err)
	}
	p := &schema.Provider{Schema: c.Provider.schema(""), ResourcesMap: map[string]*schema.Resource{}, DataSourcesMap: map[string]*schema.Resource{}}
	for name, body := range c.Resources {
		r := made(body.schema(name))
		if !slices.ContainsFunc(changeable, func(a string) bool { return strings.HasPrefix(a, name+".") }) {
			r.UpdateContext = nil
		}
		create := r.CreateContext
		r.CreateContext = func(ctx context.Context, d *schema.ResourceData, of any) diag.Diagnostics {
			return append(create(ctx, d, of), fill(d, r.Schema)...)
		}
		p.ResourcesMap[name] = r
	}
	for name, body := range c.Data {
		s := body.schema(name)
		for _, a := range s {
			a.ForceNew, a.Computed = false, !a.Required
		}
		s["id"] = &schema.Schema{Type: schema.TypeString, Optional: true, Computed: true}
		p.DataSourcesMap[name] = &schema.Resource{Schema: s, ReadContext: func(_ context.Context, d *schema.ResourceData, _ any) diag.Diagnostics {
			d.SetId(name + "-id")
			return fill(d, s)
		}}
	}
	return p
}

// fill sets what the real provider would: each text is its own name.
func fill(d *schema.ResourceData, of attributes) (said diag.Diagnostics) {
	for name, a := range of {
		if _, set := d.GetOk(name); set || !a.Computed {
			continue
		}
		var value any
		switch _, block := a.Elem.(*schema.Resource); {
		case block:
			continue
		case a.Type == schema.TypeString:
			value = "the-" + name
		case a.Type == schema.TypeFloat:
			value = 1
		case a.Type == schema.TypeBool:
			value = true
		case a.Type == schema.TypeMap:
			value = map[string]any{"the": name}
		default:
			value = []any{"the-" + name}
		}
		said = append(said, diag.FromErr(d.Set(name, value))...)
	}
	return said
}

// clouds are the starters with machines of clouds.
var clouds = map[string]struct {
	variables  []*provisionerpb.VariableValue
	parameters []*provisionerpb.ParameterValue
	machine    string            // its type
	chosen     string            // what the parameters make of the machine
	userData   string            // its attribute with what it does when it starts
	limit      int               // the cloud's, in bytes
	kept       string            // the resource with the disk that outlives stops
	stopped    map[string]string // the state of resources after a stop; nil if the machine is gone then
}{
	"aws-linux": {
		parameters: spot, machine: "aws_instance", chosen: "market_type:spot", userData: "user_data_base64", limit: 16 << 10, kept: "aws_ebs_volume",
	},
	"aws-windows": {
		machine: "aws_instance", chosen: "instance_type:t3.large", userData: "user_data_base64", limit: 16 << 10, kept: "aws_instance",
		stopped: map[string]string{"aws_ec2_instance_state": "stopped"},
	},
	"azure-linux": {
		variables: subscription, parameters: spot, machine: "azurerm_linux_virtual_machine", chosen: "priority:Spot",
		userData: "custom_data", limit: 64 << 10, kept: "azurerm_managed_disk",
	},
	"azure-windows": {
		variables: subscription, parameters: spot, machine: "azurerm_windows_virtual_machine", chosen: "priority:Spot",
		userData: "custom_data", limit: 64 << 10, kept: "azurerm_managed_disk",
	},
	"gcp-linux": {
		variables: project, parameters: spot, machine: "google_compute_instance", chosen: "provisioning_model:SPOT",
		userData: "metadata", limit: 256 << 10, kept: "google_compute_disk", stopped: map[string]string{"google_compute_instance": "TERMINATED"},
	},
	"gcp-windows": {
		variables: project, parameters: []*provisionerpb.ParameterValue{{Name: "on_stop", Value: "suspend"}}, machine: "google_compute_instance",
		chosen: "provisioning_model:STANDARD", userData: "metadata", limit: 256 << 10, kept: "google_compute_disk",
		stopped: map[string]string{"google_compute_instance": "SUSPENDED"},
	},
}

var (
	subscription = []*provisionerpb.VariableValue{{Name: "subscription_id", Value: "12345678-1234-4123-8123-123456789abc"}}
	project      = []*provisionerpb.VariableValue{{Name: "project", Value: "workspaces"}}
	spot         = []*provisionerpb.ParameterValue{{Name: "spot", Value: "true"}}
)

// TestStartersOfClouds runs the starters with machines of clouds through a prebuilt workspace, which a claim would not change, a stop and the next
// start, with providers that have the real ones' schemas and make nothing.
func TestStartersOfClouds(t *testing.T) {
	t.Setenv("TF_CLI_CONFIG_FILE", mirrorProvider(t, cloudSources(t)...))
	e := newExecutor(t)
	for name, c := range clouds {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, starter(t, name))
			imported := j.importIt(e, &provisionerpb.TemplateImport{Variables: c.variables})
			if imported.GetError() != "" || strings.Contains(j.sink.text(), "no effect") {
				t.Fatalf("import: %s\n%s", imported.GetError(), j.sink.text())
			}
			if got := imported.GetTemplateImport().GetPresets(); len(got) < 2 {
				t.Errorf("presets: %v", got)
			}
			var state []byte
			build := func(transition provisionerpb.Transition, change func(m *provisionerpb.Metadata)) (*provisionerpb.BuildResult, resourcesOfState) {
				t.Helper()
				m := metadata()
				change(m)
				built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{
					Transition: transition, Metadata: m, State: state, Variables: c.variables, Parameters: c.parameters,
				}))
				state = built.GetState()
				return built, readState(t, state)
			}
			built, first := build(start, func(m *provisionerpb.Metadata) {
				m.Prebuild, m.OwnerName, m.WorkspaceName = true, "prebuilds", "prebuild-x"
			})
			checkStarter(t, j.sink.text(), built)
			if reasons := built.GetClaimWaits(); len(reasons) > 0 || built.GetClaimPlan() == nil {
				t.Errorf("claims wait because of %q", reasons)
			}
			i := slices.IndexFunc(built.GetResources(), func(r *provisionerpb.Resource) bool { return len(r.GetAgents()) > 0 })
			if got := built.GetResources()[i].GetType(); got != c.machine {
				t.Errorf("the agent belongs to a resource of type %s", got)
			}
			if got := fmt.Sprint(first[c.machine]); !strings.Contains(got, c.chosen) {
				t.Errorf("the machine is not %s: %s", c.chosen, got)
			}
			checkUserData(t, first[c.machine][c.userData], c.limit, first["coder_agent"]["token"])
			checkClosed(t, first)
			none := func(*provisionerpb.Metadata) {}
			_, stopped := build(stop, none)
			if _, there := stopped[c.machine]; there != (c.stopped != nil) {
				t.Errorf("after a stop, the state has the machine: %t", there)
			}
			for typ, want := range c.stopped {
				if got := firstOf(stopped[typ]["state"], stopped[typ]["desired_status"]); got != want {
					t.Errorf("after a stop, %s is %v", typ, got)
				}
			}
			_, again := build(start, none)
			if again[c.kept]["id"] != first[c.kept]["id"] || c.stopped != nil && again[c.machine]["id"] != first[c.machine]["id"] {
				t.Error("the start made a new disk or machine")
			}
		})
	}
}

// resourcesOfState are the attributes of managed resources by their type: these starters have one of each.
type resourcesOfState map[string]map[string]any

func readState(t *testing.T, state []byte) resourcesOfState {
	t.Helper()
	var s struct {
		Resources []struct {
			Mode, Type string
			Instances  []struct{ Attributes map[string]any }
		}
	}
	if len(state) > 0 {
		if err := json.Unmarshal(state, &s); err != nil {
			t.Fatal(err)
		}
	}
	all := resourcesOfState{}
	for _, r := range s.Resources {
		if r.Mode == "managed" && len(r.Instances) > 0 {
			all[r.Type] = r.Instances[0].Attributes
		}
	}
	return all
}

// firstOf returns the first value that says something.
func firstOf(values ...any) any {
	for _, v := range values {
		if v != nil && v != "" {
			return v
		}
	}
	return nil
}

// checkClosed checks that the cloud lets nothing in, and that AWS answers the second version of its metadata service only.
func checkClosed(t *testing.T, state resourcesOfState) {
	t.Helper()
	text := func(v any) string { return strings.ReplaceAll(fmt.Sprint(v), "map[", "") }
	if group, there := state["aws_security_group"]; there {
		if in, options := text(group["ingress"]), text(state["aws_instance"]["metadata_options"]); in != "[]" || !strings.Contains(options, "http_tokens:required") ||
			!strings.Contains(options, "http_put_response_hop_limit:1 ") {
			t.Errorf("ingress %s, metadata service %s", in, options)
		}
	} else if group, there := state["azurerm_network_security_group"]; there {
		if rule := text(group["security_rule"]); strings.Count(rule, "access:") != 1 || !strings.Contains(rule, "access:Deny") || !strings.Contains(rule, "direction:Inbound") {
			t.Errorf("rules %s", rule)
		}
	} else if rule := state["google_compute_firewall"]; text(rule["allow"]) != "[]" || !strings.Contains(text(rule["deny"]), "protocol:all") || rule["direction"] != "INGRESS" {
		t.Errorf("firewall %v", rule)
	}
}

// checkUserData checks what a machine does when it starts, as its state has it: it is not larger than the cloud allows, holds no token of the agent,
// and its scripts and its services are what they should be.
func checkUserData(t *testing.T, value any, limit int, token any) {
	t.Helper()
	text := ""
	switch v := value.(type) {
	case string:
		raw, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > limit-512 { // a release's program has a key in its script
			t.Errorf("user data has %d bytes, and the cloud takes %d", len(raw), limit)
		}
		text = unpacked(raw)
	case map[string]any: // Google's
		text = fmt.Sprint(firstOf(v["user-data"], v["windows-startup-script-ps1"]))
	}
	secret, _ := token.(string)
	config, linux := strings.CutPrefix(text, "#cloud-config\n")
	if !linux {
		_, packed, _ := strings.Cut(text, "FromBase64String('")
		packed, _, _ = strings.Cut(packed, "'")
		raw, err := base64.StdEncoding.DecodeString(packed)
		script := unpacked(raw)
		if err != nil || !strings.Contains(script, "coder-windows-amd64.exe") || secret == "" || strings.Contains(text+script, secret) {
			t.Errorf("a script without the agent's start, or with its token: %v\n%s\n%s", err, text, script)
		}
		return
	}
	var c struct {
		Files []struct{ Path, Content string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range c.Files {
		files[f.Path] = f.Content
	}
	for name, content := range files {
		if strings.HasPrefix(content, "#!/bin/sh\n") {
			if out, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", content).CombinedOutput(); err != nil {
				t.Errorf("%s: %v %s", name, err, out)
			}
		}
		if _, command, unit := strings.Cut(content, "\nExecStart="); unit && strings.HasPrefix(content, "[Unit]\n") {
			if command, _, _ = strings.Cut(command, "\n"); files[command] == "" {
				t.Errorf("%s starts %q, which is not there", name, command)
			}
		}
	}
	if !strings.Contains(files["/opt/coder/agent"], "coder-linux-") || secret == "" || strings.Contains(text, secret) {
		t.Errorf("a configuration without the agent's start, or with its token:\n%s", text)
	}
}

// unpacked returns the text that is compressed in raw, or raw.
func unpacked(raw []byte) string {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return string(raw)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestSchemasOfClouds checks that attributes and blocks that a provider does not have, of another type, and without required ones are refused:
// otherwise TestStartersOfClouds would show little.
func TestSchemasOfClouds(t *testing.T) {
	t.Setenv("TF_CLI_CONFIG_FILE", mirrorProvider(t, cloudSources(t)...))
	template := starter(t, "aws-linux")
	template["wrong.tf"] = `
resource "aws_ebs_volume" "unknown" {
  availability_zone = "a"
  sice              = 1
}
resource "aws_ebs_volume" "of_another_type" {
  availability_zone = "a"
  size              = "twenty"
}
resource "aws_ebs_volume" "without" {}
resource "aws_instance" "unknown_in_a_block" {
  metadata_options {
    http_token = "required"
  }
}
resource "aws_instance" "unknown_block" {
  root_block {}
}
output "unknown" {
  value = data.aws_subnet.workspace.vpc
}
`
	j := newTrial(t, template)
	if j.importIt(newExecutor(t), &provisionerpb.TemplateImport{}).GetError() == "" {
		t.Error("the import succeeded")
	}
	for _, want := range []string{
		`wrong.tf:4: Unsupported argument: An argument named "sice" is not expected here`,
		`wrong.tf:8: Incorrect attribute value type: Inappropriate value for attribute "size": a number is required`,
		`wrong.tf:10: Missing required argument: The argument "availability_zone" is required`,
		`wrong.tf:13: Unsupported argument: An argument named "http_token" is not expected here`,
		`wrong.tf:17: Unsupported block type: Blocks of type "root_block" are not expected here`,
		`wrong.tf:20: Unsupported attribute: This object has no argument, nested block, or exported attribute named "vpc"`,
	} {
		if !strings.Contains(j.sink.text(), want) {
			t.Errorf("want %s\n%s", want, j.sink.text())
		}
	}
}
