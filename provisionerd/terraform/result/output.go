package result

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// Event is one parsed line of Terraform's output.
type Event struct {
	Level      provisionerpb.LogLevel
	Text       string // "" for none
	Kind       string // Terraform's type: apply_start, diagnostic, …; "" for a line that is not JSON
	Addr       string // of the resource that the event is about
	Action     string // what is done to it, or planned: create, update, delete, …
	Resource   string // its type
	Diagnostic *Diagnostic
	Dump       []byte // the state that Terraform could not save anywhere else
}

// subject is what an event is about.
type subject struct {
	Action   string `json:"action"`
	Resource struct {
		Addr string `json:"addr"`
		Type string `json:"resource_type"`
	} `json:"resource"`
}

// dumpMessage announces a state that Terraform could save neither to its state file nor to errored.tfstate. No template
// can forge such a line: Terraform wraps the output of a template's programs in events.
const dumpMessage = "Emergency state dump"

// parseLine reads one line of `terraform … -json`. Lines that are not JSON come out as they are.
func parseLine(line []byte) Event {
	line = bytes.TrimRight(line, "\r\n")
	raw := Event{Level: provisionerpb.LogLevel_LOG_LEVEL_INFO, Text: string(line)}
	if len(line) == 0 || line[0] != '{' {
		return raw
	}
	var m struct {
		Level      string          `json:"@level"`
		Message    *string         `json:"@message"`
		Type       string          `json:"type"`
		Diagnostic *Diagnostic     `json:"diagnostic"`
		Hook       subject         `json:"hook"`
		Change     subject         `json:"change"`
		State      json.RawMessage `json:"state"`
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Message == nil {
		return raw
	}
	e := Event{Level: levelOf(m.Level), Text: *m.Message, Kind: m.Type, Addr: m.Hook.Resource.Addr,
		Action: m.Hook.Action, Resource: m.Hook.Resource.Type}
	switch m.Type {
	case "planned_change":
		e.Addr, e.Action, e.Resource = m.Change.Resource.Addr, m.Change.Action, m.Change.Resource.Type
	case "diagnostic":
		if m.Diagnostic == nil {
			return e
		}
		e.Diagnostic = m.Diagnostic
		e.Level, e.Text = provisionerpb.LogLevel_LOG_LEVEL_ERROR, "Error: "+m.Diagnostic.String()
		if m.Diagnostic.Severity == "warning" {
			e.Level, e.Text = provisionerpb.LogLevel_LOG_LEVEL_WARN, "Warning: "+m.Diagnostic.String()
		}
	case "version", "resource_drift", "refresh_start", "refresh_complete", "provision_start", "provision_complete":
		e.Level = provisionerpb.LogLevel_LOG_LEVEL_DEBUG
	case "apply_start", "apply_complete", "apply_errored":
		if m.Hook.Action == "read" { // a data source: nothing is changed
			e.Kind, e.Level = "", min(e.Level, provisionerpb.LogLevel_LOG_LEVEL_DEBUG)
			if m.Type == "apply_errored" {
				e.Level = levelOf(m.Level)
			}
		}
	case "outputs":
		e.Text = "" // a template's outputs are private, and may be secrets
	}
	if *m.Message == dumpMessage {
		e.Dump = m.State
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

// Output receives the lines of one Terraform command and remembers what matters in them. Its Write gets whole lines.
type Output struct {
	log *Log
	on  func(Event) // called for each event; may be nil

	mu     sync.Mutex
	errors []Diagnostic
}

// NewOutput returns an output that writes to a job's log, and calls on for each event unless it is nil.
func NewOutput(log *Log, on func(Event)) *Output { return &Output{log: log, on: on} }

// Write implements io.Writer. It never fails.
func (o *Output) Write(line []byte) (int, error) {
	e := parseLine(line)
	if e.Text != "" {
		o.log.write(e.Level, provisionerpb.LogSource_LOG_SOURCE_EXECUTOR, e.Text)
	}
	if e.Diagnostic != nil && e.Diagnostic.Severity != "warning" {
		o.mu.Lock()
		o.errors = append(o.errors, *e.Diagnostic)
		o.mu.Unlock()
	}
	if o.on != nil {
		o.on(e)
	}
	return len(line), nil
}

// Unsaved reports whether Terraform complained that it could not save its state.
func (o *Output) Unsaved() bool {
	for _, d := range o.Diagnostics() {
		if strings.HasPrefix(d.Summary, "Failed to") && strings.Contains(d.Summary, "state") {
			return true
		}
	}
	return false
}

// Diagnostics returns the errors so far.
func (o *Output) Diagnostics() []Diagnostic {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Diagnostic(nil), o.errors...)
}
