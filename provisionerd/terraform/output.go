package terraform

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform/template"
)

// Stages of a job, as shown to users.
const (
	stageSetup   = "Setting up"
	stageInit    = "Initializing Terraform Directory"
	stageDetect  = "Detecting template parameters"
	stagePlan    = "Planning infrastructure"
	stageStart   = "Starting workspace"
	stageStop    = "Stopping workspace"
	stageDelete  = "Deleting workspace"
	stageCleanup = "Cleaning up"
	// stageRehearsal is when a prebuilt workspace's claim is planned.
	stageRehearsal = "Planning the claim"
)

// maxLine is how many bytes of one line go into the job's log.
const maxLine = 8 << 10

// logger writes a job's log. The stage is the job's current one.
type logger struct {
	sink job.Sink

	mu    sync.Mutex
	stage string
	debug bool
}

func newLogger(sink job.Sink) *logger { return &logger{sink: sink, stage: stageSetup} }

// enter begins a stage.
func (l *logger) enter(stage string) {
	l.mu.Lock()
	l.stage = stage
	l.mu.Unlock()
}

// current returns the stage.
func (l *logger) current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage
}

// say writes a message of the daemon itself.
func (l *logger) say(level provisionerpb.LogLevel, format string, args ...any) {
	l.write(level, provisionerpb.LogSource_LOG_SOURCE_DAEMON, fmt.Sprintf(format, args...))
}

func (l *logger) write(level provisionerpb.LogLevel, source provisionerpb.LogSource, text string) {
	l.mu.Lock()
	stage, debug := l.stage, l.debug
	l.mu.Unlock()
	if level <= provisionerpb.LogLevel_LOG_LEVEL_DEBUG && !debug {
		return
	}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\r\n"), "\n") {
		l.sink.Log(&provisionerpb.LogLine{
			At: timestamppb.Now(), Level: level, Source: source, Stage: stage, Output: logLine(line),
		})
	}
}

// cleanLine makes text from a template fit for a database and a terminal: valid, printable text of at most maxLine bytes, and a note if it
// removed some of the text.
func cleanLine(line string) string {
	line, note := cutLine(line)
	return tty.Clean(line) + note
}

// logLine is cleanLine for a log, which keeps colours.
func logLine(line string) string {
	line, note := cutLine(line)
	return tty.CleanColor(line) + note
}

// cutLine bounds a line to maxLine bytes of whole characters.
func cutLine(line string) (text, note string) {
	line = strings.TrimRight(line, "\r")
	if len(line) <= maxLine {
		return line, ""
	}
	note = fmt.Sprintf(" … (cut: the line has %d bytes)", len(line))
	line = line[:maxLine]
	for len(line) > 0 && !utf8.RuneStart(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	if r, _ := utf8.DecodeLastRuneInString(line); r == utf8.RuneError && len(line) > 0 {
		line = line[:len(line)-1]
	}
	return line, note
}

// diagnostic is an error or a warning from Terraform.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Snippet  *struct {
		Context string `json:"context"` // of the block around it, such as resource "coder_agent" "main"
		Code    string `json:"code"`    // the source's lines
		Values  []struct {
			Traversal string `json:"traversal"`
		} `json:"values"`
	} `json:"snippet"`
	Range *struct {
		Filename string `json:"filename"`
		Start    struct {
			Line int `json:"line"`
		} `json:"start"`
	} `json:"range"`
}

// String formats the diagnostic for users: main.tf:12: summary: detail.
func (d diagnostic) String() string {
	text := strings.TrimSpace(d.Summary)
	if detail := strings.TrimSpace(d.Detail); detail != "" && detail != text {
		if text != "" {
			text = strings.TrimRight(text, ".:") + ": "
		}
		text += detail
	}
	if hint := cmp.Or(d.hint(), d.removed()); hint != "" {
		text = hint + " (" + text + ")"
	}
	if d.Range != nil && d.Range.Filename == variablesFile {
		return d.variable() + text
	}
	if d.Range != nil && d.Range.Filename != "" {
		return fmt.Sprintf("%s:%d: %s", d.Range.Filename, d.Range.Start.Line, text)
	}
	if d.Address != "" {
		return d.Address + ": " + text
	}
	return text
}

// place returns file and line in the template t, which may be nil.
func (d diagnostic) place(t *template.Source) string {
	if d.Range != nil && d.Range.Filename != "" {
		return fmt.Sprintf("%s:%d", d.Range.Filename, d.Range.Start.Line)
	}
	return t.Place(stripIndexes(d.Address))
}

// at is String with a place in the template t, which may be nil, even if Terraform names only an address.
func (d diagnostic) at(t *template.Source) string {
	if d.Range == nil && d.Address != "" && t != nil {
		return d.place(t) + ": " + d.String()
	}
	return d.String()
}

// inModules reports whether the diagnostic is about a module that was fetched, or about the version of Terraform.
func (d diagnostic) inModules() bool {
	return d.Range != nil && strings.Contains(d.Range.Filename, ".terraform/modules/") || strings.HasPrefix(d.Summary, "Unsupported Terraform Core version")
}

// variable returns "variable NAME: " for a diagnostic about the job's own file of variables, which no author knows, or "" if Terraform does
// not name the variable.
func (d diagnostic) variable() string {
	if d.Snippet != nil {
		for _, value := range d.Snippet.Values {
			if name, ok := strings.CutPrefix(value.Traversal, "var."); ok {
				return "variable " + name + ": "
			}
		}
	}
	return ""
}

// These find the provider or module that Terraform cannot get, and why.
var (
	unavailableProvider = lazyregexp.New(`(?s)^Could not retrieve the list of available versions for provider (\S+): (.*)$`)
	unavailableModule   = lazyregexp.New(`(?s)^Failed to retrieve available versions for module "([^"]+)" \([^)]*\) from (\S+): (.*)$`)
)

// guessed finds the providers in Terraform's complaint that it lacks them.
var guessed = lazyregexp.New(`provider registry\.(?:terraform\.io|opentofu\.org)/(\S+): required by this configuration but no version is selected`)

// hint returns what to do about a mistake that Terraform misreports, or "". For a template that does not name the source of its providers,
// Terraform reports an inconsistent lock file and suggests a command that the author cannot run.
func (d diagnostic) hint() string {
	detail := strings.TrimSpace(d.Detail)
	if found := unavailableProvider().FindStringSubmatch(detail); found != nil {
		return fmt.Sprintf("The provisioner cannot get the provider %s: give it a route to the provider's registry, or a mirror that has it", found[1])
	}
	if found := unavailableModule().FindStringSubmatch(detail); found != nil {
		return fmt.Sprintf("The provisioner cannot get the module %s from %s: give it a route there, or a registry of your own", found[1], found[2])
	}
	if d.Summary != "Inconsistent dependency lock file" {
		return ""
	}
	for _, found := range guessed().FindAllStringSubmatch(d.Detail, -1) {
		if found[1] == "hashicorp/coder" {
			return `The template uses the provider coder and does not say where it comes from. Add: terraform { required_providers { coder = { source = "coder/coder" } } }`
		}
	}
	return "The template's providers do not fit its .terraform.lock.hcl. Name each in terraform { required_providers { … } }, and run terraform init in the template's folder to renew the file"
}

// event is one parsed line of Terraform's output.
type event struct {
	level      provisionerpb.LogLevel
	text       string // "" for none
	kind       string // Terraform's type: apply_start, diagnostic, …; "" for a line that is not JSON
	addr       string // of the resource that the event is about
	action     string // what is done to it, or planned: create, update, delete, …
	resource   string // its type
	diagnostic *diagnostic
	dump       []byte // the state that Terraform could not save anywhere else
}

// subject is what an event is about.
type subject struct {
	Action   string `json:"action"`
	Resource struct {
		Addr string `json:"addr"`
		Type string `json:"resource_type"`
	} `json:"resource"`
}

// dumpMessage announces a state that Terraform could save neither to its state file nor to errored.tfstate. No template can forge such a
// line: Terraform wraps the output of a template's programs in events.
const dumpMessage = "Emergency state dump"

// parseLine reads one line of `terraform … -json`. Lines that are not JSON come out as they are.
func parseLine(line []byte) event {
	line = bytes.TrimRight(line, "\r\n")
	raw := event{level: provisionerpb.LogLevel_LOG_LEVEL_INFO, text: string(line)}
	if len(line) == 0 || line[0] != '{' {
		return raw
	}
	var m struct {
		Level      string          `json:"@level"`
		Message    *string         `json:"@message"`
		Type       string          `json:"type"`
		Diagnostic *diagnostic     `json:"diagnostic"`
		Hook       subject         `json:"hook"`
		Change     subject         `json:"change"`
		State      json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Message == nil {
		return raw
	}
	e := event{level: levelOf(m.Level), text: *m.Message, kind: m.Type, addr: m.Hook.Resource.Addr, action: m.Hook.Action, resource: m.Hook.Resource.Type}
	switch m.Type {
	case "planned_change":
		e.addr, e.action, e.resource = m.Change.Resource.Addr, m.Change.Action, m.Change.Resource.Type
	case "diagnostic":
		if m.Diagnostic == nil {
			return e
		}
		e.diagnostic = m.Diagnostic
		e.level, e.text = provisionerpb.LogLevel_LOG_LEVEL_ERROR, "Error: "+m.Diagnostic.String()
		if m.Diagnostic.Severity == "warning" {
			e.level, e.text = provisionerpb.LogLevel_LOG_LEVEL_WARN, "Warning: "+m.Diagnostic.String()
		}
	case "version", "resource_drift", "refresh_start", "refresh_complete", "provision_start", "provision_complete":
		e.level = provisionerpb.LogLevel_LOG_LEVEL_DEBUG
	case "apply_start", "apply_complete", "apply_errored":
		if m.Hook.Action == "read" { // a data source: nothing is changed
			e.kind, e.level = "", min(e.level, provisionerpb.LogLevel_LOG_LEVEL_DEBUG)
			if m.Type == "apply_errored" {
				e.level = levelOf(m.Level)
			}
		}
	case "outputs":
		e.text = "" // a template's outputs are private, and may be secrets
	}
	if *m.Message == dumpMessage {
		e.dump = m.State
	}
	return e
}

func levelOf(name string) provisionerpb.LogLevel {
	switch name {
	case "trace":
		return provisionerpb.LogLevel_LOG_LEVEL_TRACE
	case "debug":
		return provisionerpb.LogLevel_LOG_LEVEL_DEBUG
	case "warn":
		return provisionerpb.LogLevel_LOG_LEVEL_WARN
	case "error":
		return provisionerpb.LogLevel_LOG_LEVEL_ERROR
	default:
		return provisionerpb.LogLevel_LOG_LEVEL_INFO
	}
}

// output receives the lines of one Terraform command and remembers what matters in them. Its Write gets whole lines.
type output struct {
	log *logger
	on  func(event) // called for each event; may be nil

	mu     sync.Mutex
	errors []diagnostic
}

func (o *output) Write(line []byte) (int, error) {
	e := parseLine(line)
	if e.text != "" {
		o.log.write(e.level, provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, e.text)
	}
	if e.diagnostic != nil && e.diagnostic.Severity != "warning" {
		o.mu.Lock()
		o.errors = append(o.errors, *e.diagnostic)
		o.mu.Unlock()
	}
	if o.on != nil {
		o.on(e)
	}
	return len(line), nil
}

// unsaved reports whether Terraform complained that it could not save its state.
func (o *output) unsaved() bool {
	for _, d := range o.diagnostics() {
		if strings.HasPrefix(d.Summary, "Failed to") && strings.Contains(d.Summary, "state") {
			return true
		}
	}
	return false
}

func (o *output) diagnostics() []diagnostic {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]diagnostic(nil), o.errors...)
}

// stderrLines passes on what Terraform writes outside its JSON: crashes, and errors before it has begun.
type stderrLines struct{ log *logger }

func (s stderrLines) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); text != "" {
		s.log.write(provisionerpb.LogLevel_LOG_LEVEL_ERROR, provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, string(line))
	}
	return len(line), nil
}
