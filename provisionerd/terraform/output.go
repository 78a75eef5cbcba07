package terraform

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

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

// newOutput returns an output that writes to a job's log, and calls on for each event unless it is nil.
func newOutput(log *logger, on func(event)) *output { return &output{log: log, on: on} }

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

// diagnostics returns the errors so far.
func (o *output) diagnostics() []diagnostic {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]diagnostic(nil), o.errors...)
}

// variablesFile is the job's own file with the values of variables. Terraform reads it last.
const variablesFile = "zz_job.auto.tfvars.json"
