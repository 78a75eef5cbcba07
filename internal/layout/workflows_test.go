package layout_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// workflow is what these tests read of a file in .github/workflows.
type workflow struct {
	On          yaml.Node          `yaml:"on"`
	Permissions map[string]string  `yaml:"permissions"`
	Jobs        map[string]flowJob `yaml:"jobs"`
}

type flowJob struct {
	Timeout     int               `yaml:"timeout-minutes"`
	Permissions map[string]string `yaml:"permissions"`
	Strategy    struct {
		Matrix map[string]yaml.Node `yaml:"matrix"`
	} `yaml:"strategy"`
	Steps []struct {
		Uses string         `yaml:"uses"`
		Run  string         `yaml:"run"`
		With map[string]any `yaml:"with"`
	} `yaml:"steps"`
}

// TestWorkflows checks what a forge would find only when it runs a workflow, or an attacker before: each target of make and each script that the
// workflows name is there, each job has a limit, actions are pinned by commits, and no job may write to the repository.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows: %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range flowProblems(t, string(text)) {
			t.Errorf("%s: %s", filepath.Base(file), problem)
		}
	}
}

// TestWorkflowsTestEverything: the jobs of each change are the parts of `make test`, and what needs no running program.
func TestWorkflowsTestEverything(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	parts := w.Jobs["test"].values("parts")
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "static" })
	want := strings.Fields(regexp.MustCompile(`(?m)^PARTS := (.*)$`).FindStringSubmatch(makefile(t))[1])
	slices.Sort(parts)
	slices.Sort(want)
	if diff := cmp.Diff(want, parts); diff != "" {
		t.Errorf("the parts of make test, and the jobs of ci.yml beside static (-want +got):\n%s", diff)
	}
}

// TestWorkflowProblems shows each mistake to the check that TestWorkflows relies on.
func TestWorkflowProblems(t *testing.T) {
	t.Parallel()
	const good = `on:
  push:
permissions:
  contents: read
jobs:
  a:
    timeout-minutes: 10
    strategy:
      matrix:
        part: [lint, test]
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0
        with:
          persist-credentials: false
      - run: |
          apt-get install -qy make nothing
          TIME=1 make -C . fuzz TIME=10m PKG=./x && make ${{ matrix.part }}; go run ./bench
          if true; then .ci/run ${{ matrix.part }} build; fi
`
	if got := flowProblems(t, good); len(got) > 0 {
		t.Fatalf("a good workflow: %q", got)
	}
	for what, change := range map[string][3]string{
		"a target that is not there":     {"make -C . fuzz", "make -C . fuzzy", "a: the Makefile has no target fuzzy"},
		"a target of .ci/run":            {".ci/run ${{ matrix.part }} build", ".ci/run builds", "a: the Makefile has no target builds"},
		"a part of the matrix":           {"[lint, test]", "[lint, tests]", "a: the Makefile has no target tests"},
		"a script that is not there":     {"go run ./bench", "go run ./benches", "a: ./benches is not there"},
		"a script below scripts":         {"go run ./bench", "scripts/none", "a: scripts/none is not there"},
		"no limit":                       {"timeout-minutes: 10", "name: x", "a: timeout-minutes is 0, not 1 to 180"},
		"a limit of a day":               {"timeout-minutes: 10", "timeout-minutes: 1440", "a: timeout-minutes is 1440, not 1 to 180"},
		"an action by its tag":           {"08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0", "v5", "actions/checkout@v5 is not a commit with its version behind it"},
		"a commit without its version":   {" # v5.0.0", "", "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 is not a commit with its version behind it"},
		"a token that stays":             {"persist-credentials: false", "fetch-depth: 0", "a: actions/checkout leaves its token to later steps: persist-credentials must be false"},
		"the right to write":             {"contents: read", "contents: write", "permissions: contents is write"},
		"the rights that a forge grants": {"permissions:\n  contents: read\n", "", "permissions: they must be named"},
		"a job's right to write":         {"timeout-minutes: 10", "timeout-minutes: 10\n    permissions: { packages: write }", "a: permissions: packages is write"},
		"strangers with secrets":         {"push:", "pull_request_target:", "pull_request_target runs what strangers wrote with our rights"},
		"a stranger's text in a command": {"go run ./bench", "echo ${{ github.event.issue.title }}", "a: github.event in a command: pass it in env"},
	} {
		if got := flowProblems(t, strings.Replace(good, change[0], change[1], 1)); !slices.Equal(got, []string{change[2]}) {
			t.Errorf("%s: %q, want %q", what, got, change[2])
		}
	}
}

// pinned matches an action by its commit, with the version in a comment, which dependabot updates with it.
var pinned = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+(\.\d+)*$`)

// flowProblems says what is wrong with a workflow.
func flowProblems(t *testing.T, text string) (problems []string) {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, node := range w.On.Content {
		if node.Value == "pull_request_target" || node.Value == "workflow_run" {
			add("%s runs what strangers wrote with our rights", node.Value)
		}
	}
	if w.Permissions == nil {
		add("permissions: they must be named")
	}
	rights := func(where string, permissions map[string]string) {
		for name, right := range permissions {
			if right != "read" && right != "none" {
				add("%spermissions: %s is %s", where, name, right)
			}
		}
	}
	rights("", w.Permissions)
	for line := range strings.Lines(text) {
		if _, uses, ok := strings.Cut(line, "uses: "); ok && !pinned.MatchString(strings.TrimSpace(uses)) {
			add("%s is not a commit with its version behind it", strings.TrimSpace(uses))
		}
	}
	targets := targetsOf(makefile(t))
	for name, job := range w.Jobs {
		rights(name+": ", job.Permissions)
		if job.Timeout < 1 || job.Timeout > 180 {
			add("%s: timeout-minutes is %d, not 1 to 180", name, job.Timeout)
		}
		for _, step := range job.Steps {
			if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
				add("%s: actions/checkout leaves its token to later steps: persist-credentials must be false", name)
			}
			for _, problem := range commandProblems(job.expand(step.Run), targets) {
				add("%s: %s", name, problem)
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// values returns the values of a list in a job's matrix, and none if an earlier job makes the list.
func (j flowJob) values(name string) (values []string) {
	node := j.Strategy.Matrix[name]
	if node.Decode(&values) != nil {
		return nil
	}
	return values
}

// expand returns what a step runs, for each value of the matrix that it names.
func (j flowJob) expand(run string) []string {
	all := []string{run}
	for name := range j.Strategy.Matrix {
		expression := "${{ matrix." + name + " }}"
		if values := j.values(name); strings.Contains(run, expression) && len(values) > 0 {
			before := all
			all = nil
			for _, text := range before {
				for _, value := range values {
					all = append(all, strings.ReplaceAll(text, expression, value))
				}
			}
		}
	}
	return all
}

var (
	between    = regexp.MustCompile(`\n|;|&&|\|\||\||\bthen\b|\bdo\b|\belse\b|\$\(`) // commands of a shell
	expression = regexp.MustCompile(`\$\{\{.*?\}\}`)
	ourFile    = regexp.MustCompile(`^(\./|\.ci/|scripts/)[\w./-]+$`)
)

// commandProblems says what commands of a step name that is not there.
func commandProblems(runs []string, targets map[string]bool) (problems []string) {
	for _, run := range runs {
		if strings.Contains(run, "github.event") || strings.Contains(run, "inputs.") {
			problems = append(problems, "github.event in a command: pass it in env")
		}
		run = expression.ReplaceAllString(run, "=") // its value is not known here
		for _, command := range between.Split(run, -1) {
			words := strings.Fields(command)
			for len(words) > 0 && strings.Contains(words[0], "=") {
				words = words[1:]
			}
			for _, word := range words {
				if _, err := os.Stat(filepath.Join("../..", word)); ourFile.MatchString(word) && err != nil {
					problems = append(problems, word+" is not there")
				}
			}
			if len(words) == 0 || words[0] != "make" && words[0] != ".ci/run" {
				continue
			}
			for i, word := range words[1:] {
				if strings.HasPrefix(word, "-") || words[i] == "-C" || strings.Contains(word, "=") {
					continue
				}
				if !targets[word] {
					problems = append(problems, "the Makefile has no target "+word)
				}
			}
		}
	}
	return problems
}

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// targetsOf returns the targets of a Makefile that a command may name.
func targetsOf(text string) map[string]bool {
	all := map[string]bool{}
	for _, rule := range regexp.MustCompile(`(?m)^([\w./ -]+):([^=]|$)`).FindAllStringSubmatch(text, -1) {
		for name := range strings.FieldsSeq(rule[1]) {
			all[name] = true
		}
	}
	return all
}
