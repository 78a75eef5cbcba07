package tfstate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/tfstate"
)

const text = `{
  "version": 4, "terraform_version": "1.11.4", "serial": 7, "lineage": "l", "outputs": {"big": {"value": 123456789012345678901234567890, "type": "number"}},
  "resources": [
    {"mode": "data", "type": "d", "name": "a", "instances": [{"attributes": {}}]},
    {"mode": "managed", "type": "t", "name": "a", "provider": "p<&>", "instances": [{"schema_version": 0, "attributes": {"n": 1.0, "h": "<b>"}}]},
    {"module": "module.m[\"x\"]", "mode": "managed", "type": "t", "name": "b", "instances": [
      {"index_key": 0, "attributes": {}}, {"index_key": 1, "status": "tainted", "attributes": {}}, {"index_key": "q\"${", "attributes": {}},
      {"index_key": 2, "deposed": "abcd1234", "attributes": {}}]}
  ],
  "check_results": null
}`

func change(address string, creates bool, end provisionerpb.Change_End) *provisionerpb.Change {
	return &provisionerpb.Change{Address: address, Creates: creates, End: end}
}

const (
	begins   = provisionerpb.Change_END_UNSPECIFIED
	complete = provisionerpb.Change_END_COMPLETE
	errored  = provisionerpb.Change_END_ERRORED
)

func TestSettle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		changes []*provisionerpb.Change
		ended   bool
		want    tfstate.Outcome
	}{
		"nothing":                         {},
		"complete":                        {changes: []*provisionerpb.Change{change("t.a", true, begins), change("t.a", true, complete)}},
		"complete, state older":           {changes: []*provisionerpb.Change{change("t.new", true, complete)}, want: tfstate.Outcome{Unknown: []string{"t.new"}}},
		"in flight, in the state":         {changes: []*provisionerpb.Change{change("t.a", true, begins)}, want: tfstate.Outcome{Tainted: []string{"t.a"}}},
		"in flight, not in the state":     {changes: []*provisionerpb.Change{change("t.new", true, begins)}, want: tfstate.Outcome{Unknown: []string{"t.new"}}},
		"tainted already":                 {changes: []*provisionerpb.Change{change(`module.m["x"].t.b[1]`, true, begins)}, want: tfstate.Outcome{Tainted: []string{`module.m["x"].t.b[1]`}}},
		"only an old object is there":     {changes: []*provisionerpb.Change{change(`module.m["x"].t.b[2]`, true, begins)}, want: tfstate.Outcome{Unknown: []string{`module.m["x"].t.b[2]`}}},
		"odd key":                         {changes: []*provisionerpb.Change{change(`module.m["x"].t.b["q\"$${"]`, true, begins)}, want: tfstate.Outcome{Tainted: []string{`module.m["x"].t.b["q\"$${"]`}}},
		"update in flight":                {changes: []*provisionerpb.Change{change("t.a", false, begins)}, want: tfstate.Outcome{Unknown: []string{"t.a"}}},
		"failed, written down":            {changes: []*provisionerpb.Change{change("t.a", true, errored), change("t.new", true, errored)}, ended: true, want: tfstate.Outcome{Failed: []string{"t.a", "t.new"}}},
		"failed, and marked by Terraform": {changes: []*provisionerpb.Change{change(`module.m["x"].t.b[1]`, true, begins), change(`module.m["x"].t.b[1]`, true, errored)}, ended: true, want: tfstate.Outcome{Tainted: []string{`module.m["x"].t.b[1]`}}},
		"failed, then killed":             {changes: []*provisionerpb.Change{change("t.a", true, errored), change("t.new", true, errored)}, want: tfstate.Outcome{Unknown: []string{"t.new"}, Tainted: []string{"t.a"}}},
		"a data source is no resource":    {changes: []*provisionerpb.Change{change("d.a", true, begins)}, want: tfstate.Outcome{Unknown: []string{"d.a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, state := tfstate.Settle([]byte(text), c.changes, c.ended)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if name == "tainted already" || name == "failed, and marked by Terraform" || len(c.want.Tainted) == 0 {
				if string(state) != text {
					t.Errorf("the state was changed:\n%s", state)
				}
				return
			}
			same(t, state, c.want.Tainted)
		})
	}
}

func TestTainted(t *testing.T) {
	t.Parallel()
	addrs := []string{"t.a", `module.m["x"].t.b[1]`, "t.gone"}
	for state, want := range map[string][]string{text: addrs[1:2], `{"version":4}`: {}, "": addrs, "torn": addrs} {
		if diff := cmp.Diff(want, tfstate.Tainted([]byte(state), addrs)); diff != "" {
			t.Errorf("tainted in %.20q (-want +got):\n%s", state, diff)
		}
	}
	all, err := tfstate.Resources([]byte(text))
	want := []string{`module.m["x"].t.b["q\"$${"]`, `module.m["x"].t.b[0]`, `module.m["x"].t.b[1]`, "t.a"}
	if diff := cmp.Diff(want, all); err != nil || diff != "" {
		t.Errorf("resources, %v (-want +got):\n%s", err, diff)
	}
}

// same checks that state is text with a higher serial and the given instances tainted.
func same(t *testing.T, state []byte, tainted []string) {
	t.Helper()
	read := func(text []byte) map[string]any {
		var s map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&s); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		return s
	}
	want, got := read([]byte(text)), read(state)
	want["serial"] = json.Number("8")
	for _, r := range want["resources"].([]any) {
		r := r.(map[string]any)
		for _, i := range r["instances"].([]any) {
			i := i.(map[string]any)
			module, _ := r["module"].(string)
			index := i["index_key"]
			if n, ok := index.(json.Number); ok {
				index, _ = n.Float64()
			}
			if slices.Contains(tainted, tfstate.Address(module, r["type"].(string), r["name"].(string), index)) && i["deposed"] == nil {
				i["status"] = "tainted"
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestSettleWithoutState(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"", "{", `{"version":3}`, "null"} {
		got, left := tfstate.Settle([]byte(state), []*provisionerpb.Change{change("t.a", true, begins), change("t.b", true, complete)}, false)
		if diff := cmp.Diff(tfstate.Outcome{Unknown: []string{"t.a", "t.b"}}, got); diff != "" || string(left) != state {
			t.Errorf("%q: left %q, outcome (-want +got):\n%s", state, left, diff)
		}
	}
}

func TestAgentToken(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("11111111-1111-4111-8111-111111111111")
	agent := func(mode, typ, deposed string) string {
		return fmt.Sprintf(`{"version":4,"resources":[{"mode":%q,"type":%q,"name":"a","instances":[{"attributes":{"id":"x","token":"other"}},{"deposed":%q,"attributes":{"id":%q,"token":"secret"}}]}]}`,
			mode, typ, deposed, id)
	}
	for name, c := range map[string]struct{ state, want string }{
		"the agent":       {agent("managed", "coder_agent", ""), "secret"},
		"another type":    {agent("managed", "t", ""), ""},
		"a data source":   {agent("data", "coder_agent", ""), ""},
		"about to go":     {agent("managed", "coder_agent", "d"), ""},
		"an empty state":  {"", ""},
		"no state":        {"[]", ""},
		"odd attributes":  {`{"resources":[{"mode":"managed","type":"coder_agent","instances":[{"attributes":[1]}]}]}`, ""},
		"an odd resource": {`{"resources":[null,{"mode":"managed","type":"coder_agent","instances":[null]}]}`, ""},
	} {
		if got := tfstate.AgentToken([]byte(c.state), id); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// FuzzAgentToken: whatever the state, nothing panics, and a token that is found is in it.
func FuzzAgentToken(f *testing.F) {
	f.Add([]byte(`{"version":4,"resources":[{"mode":"managed","type":"coder_agent","name":"a","instances":[{"attributes":{"id":"00000000-0000-0000-0000-000000000000","token":"t"}}]}]}`))
	f.Fuzz(func(t *testing.T, state []byte) {
		if got := tfstate.AgentToken(state, uuid.Nil); len(got) > 3*len(state) {
			t.Errorf("a token of %d bytes in a state of %d", len(got), len(state))
		}
	})
}

// FuzzSettle: whatever the state, nothing panics, every resource that was begun is named, and a rewritten state is readable.
func FuzzSettle(f *testing.F) {
	f.Add([]byte(text), "t.a", true, int32(0), false)
	f.Add([]byte(`{"version":4,"serial":1,"resources":[{"mode":"managed","type":"t","name":"a","instances":[null,{}]}]}`), "t.a", true, int32(0), false)
	f.Add([]byte(`{"version":4,"resources":[{"mode":"managed","type":"t","name":"a","instances":[{}]}]}`), "t.a", true, int32(2), false)
	f.Fuzz(func(t *testing.T, state []byte, addr string, creates bool, end int32, ended bool) {
		c := change(addr, creates, provisionerpb.Change_End(end))
		got, left := tfstate.Settle(state, []*provisionerpb.Change{c}, ended)
		named := len(got.Unknown) + len(got.Tainted) + len(got.Failed)
		if c.GetEnd() == begins && named != 1 {
			t.Fatalf("a change in flight is named %d times", named)
		}
		again, same := tfstate.Settle(left, []*provisionerpb.Change{c}, ended)
		if diff := cmp.Diff(got, again); diff != "" || string(same) != string(left) {
			t.Fatalf("settled twice: %s\n%q\n%q", diff, left, same)
		}
	})
}

func TestParameters(t *testing.T) {
	t.Parallel()
	parameter := func(attributes string) string {
		return `{"mode": "data", "type": "coder_parameter", "name": "p", "instances": [{"attributes": ` + attributes + `}]}`
	}
	text := `{"version": 4, "resources": [` + strings.Join([]string{
		parameter(`{"name": "zone", "value": "fra1", "default": "fra1", "mutable": false, "styling": "{}"}`),
		parameter(`{"name": "cpus", "value": "8", "default": "2", "mutable": true}`),
		parameter(`{"name": "empty", "value": "", "default": ""}`),
		parameter(`{"name": "once", "value": "now", "default": "", "mutable": true, "ephemeral": true}`),
		parameter(`{"name": "secret", "value": "s3cret", "default": "", "styling": "{\"mask_input\": true}"}`),
		parameter(`{"name": "unreadable", "value": "s3cret", "default": "", "styling": "?"}`),
		parameter(`{"name": "hidden", "value": "own", "default": "own", "styling": "{\"mask_input\": true}"}`),
		parameter(`{"name": "unknown", "value": null}`),
		parameter(`{"name": "login", "value": "Bearer t0ken", "default": "Bearer t0ken"}`),
		parameter(`{"name": "session", "value": "s3ssion", "default": "s3ssion"}`),
		`{"mode": "data", "type": "coder_external_auth", "name": "a", "instances": [{"attributes": {"id": "github", "access_token": "t0ken"}}]}`,
		`{"mode": "data", "type": "coder_workspace_owner", "name": "me", "instances": [{"attributes": {"name": "fra1", "session_token": "s3ssion", "ssh_private_key": ""}}]}`,
		`{"mode": "managed", "type": "coder_parameter", "name": "p", "instances": [{"attributes": {"name": "managed", "value": "x"}}]}`,
		`{"mode": "data", "type": "other", "name": "p", "instances": [{"attributes": {"name": "other", "value": "x"}}]}`,
	}, ", ") + `]}`
	want := []tfstate.Parameter{{Name: "cpus", Value: "8", Mutable: true}, {Name: "empty"}, {Name: "hidden", Value: "own"}, {Name: "zone", Value: "fra1"}}
	if diff := cmp.Diff(want, tfstate.Parameters([]byte(text))); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "nonsense", `{"version": 4}`} {
		if got := tfstate.Parameters([]byte(text)); len(got) > 0 {
			t.Errorf("parameters of %q: %v, want none", text, got)
		}
	}
}
