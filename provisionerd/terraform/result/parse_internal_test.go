package result

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/printable"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line, text, kind string
		level            provisionerpb.LogLevel
	}{
		"plain":     {line: "hello\n", text: "hello", level: provisionerpb.LogLevel_LOG_LEVEL_INFO},
		"half":      {line: `{"@level":"info"`, text: `{"@level":"info"`, level: provisionerpb.LogLevel_LOG_LEVEL_INFO},
		"not ours":  {line: `{"a":1}`, text: `{"a":1}`, level: provisionerpb.LogLevel_LOG_LEVEL_INFO},
		"outputs":   {line: `{"@level":"info","@message":"Outputs: 1","type":"outputs"}`, kind: "outputs", level: provisionerpb.LogLevel_LOG_LEVEL_INFO},
		"data read": {line: `{"@level":"info","@message":"m","type":"apply_start","hook":{"action":"read","resource":{"addr":"data.x.y"}}}`, text: "m", level: provisionerpb.LogLevel_LOG_LEVEL_DEBUG},
		"complete":  {line: `{"@level":"info","@message":"m","type":"apply_complete","hook":{"action":"create","resource":{"addr":"x.y"}}}`, text: "m", kind: "apply_complete", level: provisionerpb.LogLevel_LOG_LEVEL_INFO},
		"error": {
			line: `{"@level":"error","@message":"Error: x","type":"diagnostic","diagnostic":{"severity":"error","summary":"Bad thing","detail":"It is bad.","range":{"filename":"main.tf","start":{"line":12}}}}`,
			text: "Error: main.tf:12: Bad thing: It is bad.", kind: "diagnostic", level: provisionerpb.LogLevel_LOG_LEVEL_ERROR,
		},
		"warning": {
			line: `{"@level":"warn","@message":"Warning: x","type":"diagnostic","diagnostic":{"severity":"warning","summary":"Old","address":"a.b"}}`,
			text: "Warning: a.b: Old", kind: "diagnostic", level: provisionerpb.LogLevel_LOG_LEVEL_WARN,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parseLine([]byte(c.line)); got.Text != c.text || got.Kind != c.kind || got.Level != c.level {
				t.Errorf("parseLine(%s) = %+v", c.line, got)
			}
		})
	}
}

func TestStripIndexes(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"a.b": "a.b", "a.b[0]": "a.b", `module.m["x"].a.b[1]`: "module.m.a.b", `a.b["]"]`: "a.b", `a.b["\"]["].c`: "a.b.c",
	} {
		if got := stripIndexes(address); got != want {
			t.Errorf("stripIndexes(%s) = %s, want %s", address, got, want)
		}
	}
}

func TestNewestState(t *testing.T) {
	t.Parallel()
	state := func(serial, what string) string {
		return `{"version":4,"lineage":"l","serial":` + serial + `,"outputs":{"` + what + `":{}}}`
	}
	for name, c := range map[string]struct{ earlier, normal, errored, want string }{
		"none":                          {},
		"seen earlier, torn since":      {earlier: state("4", "w"), normal: state("5", "n")[:20], want: state("4", "w")},
		"seen earlier, written since":   {earlier: state("4", "w"), normal: state("5", "n"), want: state("5", "n")},
		"seen earlier, older on disk":   {earlier: state("4", "w"), normal: state("3", "n"), want: state("4", "w")},
		"seen earlier, another lineage": {earlier: strings.Replace(state("4", "w"), `"l"`, `"k"`, 1), normal: state("1", "n"), want: state("1", "n")},
		"normal":                        {normal: state("1", "n"), want: state("1", "n")},
		"errored newer":                 {normal: state("1", "n"), errored: state("2", "e"), want: state("2", "e")},
		"equal":                         {normal: state("2", "n"), errored: state("2", "e"), want: state("2", "e")},
		"errored older":                 {normal: state("3", "n"), errored: state("2", "e"), want: state("3", "n")},
		"normal is torn":                {normal: `{"version":4,"lin`, errored: state("1", "e"), want: state("1", "e")},
		"errored is torn":               {normal: state("1", "n"), errored: state("9", "e")[:20], want: state("1", "n")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{"terraform.tfstate": c.normal, "errored.tfstate": c.errored} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			found, err := StatesIn(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(Newest([]byte(c.earlier), found...)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"@level":"info","@message":"m","type":"apply_start","hook":{"resource":{"addr":"x"}}}`))
	f.Add([]byte(`{"@message":"x","type":"diagnostic","diagnostic":{"severity":"error","range":{}}}`))
	f.Add([]byte("\xff\x00"))
	f.Add([]byte(`{"@level":"info","@message":"x: Plan to create","type":"planned_change","change":{"resource":{"addr":"x","resource_type":"coder_script"},"action":"create"}}`))
	f.Add([]byte(`{"@level":"info","@message":"x: Plan to replace","type":"planned_change","change":{"resource":{"addr":"x","resource_type":"docker_volume"},"action":"replace"}}`))
	f.Add([]byte(`{"@level":"info","@message":"Emergency state dump","state":{"version":4,"lineage":"l"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e := parseLine(line)
		if len(e.Dump) > len(line) || e.Dump != nil && !json.Valid(e.Dump) {
			t.Errorf("a dump of %d bytes", len(e.Dump))
		}
		Newest(nil, e.Dump)
		if lost := Lost([]Event{e, e}, []byte(`{"version":4,"lineage":"l"}`)); len(lost) > 1 || len(lost) == 1 && lost[0].Action != "replace" && lost[0].Action != "delete" {
			t.Errorf("lost: %+v", lost)
		}
		p := newAgentChanges(e.Dump)
		p.event(e)
		if s, err := ParseState(e.Dump); err == nil {
			p.outstanding(s)
		}
		if got := printable.Line(e.Text); !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > 3*printable.MaxLine+100 {
			t.Errorf("line of %d bytes", len(got))
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":4,"serial":1,"lineage":"l","resources":[{"mode":"managed","type":"coder_agent","name":"a","instances":[{"index_key":0,"attributes":{"id":"11111111-1111-4111-8111-111111111111","os":"linux"},"dependencies":["a.b[0]"]}]},{"mode":"managed","type":"t","name":"b","instances":[{"attributes":{"id":1},"dependencies":["coder_agent.a"]}]}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		s, err := ParseState(text)
		if err != nil {
			return
		}
		if _, err := DeriveResources(nil, s.Nodes("managed")); err != nil {
			return
		}
		if _, err := ReadDeclared(nil, s.Nodes("data")); err != nil {
			return
		}
	})
}

func FuzzGraph(f *testing.F) {
	f.Add([]byte("digraph G {\n  \"a.b\" -> \"c.d\";\n}\n"))
	f.Fuzz(func(_ *testing.T, dot []byte) {
		graph, err := ParseGraph(dot)
		if err != nil {
			return
		}
		for from := range graph {
			reach(graph, from)
		}
	})
}

// TestHint: Terraform blames the lock file if a template does not name its providers; the hint tells the author what to write.
func TestHint(t *testing.T) {
	t.Parallel()
	detail := func(provider string) string {
		return "The following dependency selections recorded in the lock file are inconsistent with the current configuration:\n  - provider registry.terraform.io/" +
			provider + ": required by this configuration but no version is selected\n\nTo make the initial dependency selections, run:\n  terraform init"
	}
	for want, d := range map[string]Diagnostic{
		`source = "coder/coder"`: {Summary: "Inconsistent dependency lock file", Detail: detail("hashicorp/coder")},
		".terraform.lock.hcl":    {Summary: "Inconsistent dependency lock file", Detail: detail("hashicorp/null")},
		"cannot get the provider registry.terraform.io/hashicorp/aws: give it": {
			Summary: "Failed to query available provider packages",
			Detail:  "\nCould not retrieve the list of available versions for provider registry.terraform.io/hashicorp/aws: not found in any of the search locations\n\n  - /srv/mirror",
		},
		"cannot get the module ide from registry.example.com: give it": {
			Summary: "Error accessing remote module registry",
			Detail:  `Failed to retrieve available versions for module "ide" (main.tf:12) from registry.example.com: no such host.`,
		},
		"Something else: coder": {Summary: "Something else", Detail: "coder"},
	} {
		if got := d.String(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

// FuzzLastSaid: the file with what Terraform printed after its daemon's death may have been written by the template.
func FuzzLastSaid(f *testing.F) {
	f.Add([]byte("torn\"}\n{\"@message\":\"x\",\"type\":\"apply_complete\",\"hook\":{\"action\":\"create\",\"resource\":{\"addr\":\"t.a\"}}}\n{\"@message\":\"Emergency state dump\",\"state\":{}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "said"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		changes, dump := LastWords(dir, "said")
		for _, c := range changes {
			if c.GetAddress() == "" {
				t.Error("a change without an address")
			}
		}
		if dump != nil && !json.Valid(dump) {
			t.Errorf("dump %q", dump)
		}
	})
}
