package proc

import (
	"path/filepath"
	"slices"
	"strings"
)

// internal lists the agent's own variables, which no process that it starts may see. A trailing * matches any rest.
var internal = []string{
	"CODER_AGENT_TOKEN*", "CODER_AGENT_AUTH", "CODER_AGENT_CHILD*", "CODER_AGENT_STATE_DIR", "CODER_AGENT_PROGRAM_DIR",
	"CODER_AGENT_LOG_DIR",
	"CODER_PROVISIONER_*", "CODER_SESSION_TOKEN", "CODER_PG_*", "GOMEMLIMIT", "GOGC", "GODEBUG", "TS_DEBUG_*",
	"NOTIFY_SOCKET",
}

// Internal reports whether name is one of the agent's own variables.
func Internal(name string) bool {
	name = fold(name)
	return slices.ContainsFunc(internal, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return name == pattern
	})
}

// Scrub returns environ without the agent's own variables and without malformed entries.
func Scrub(environ []string) []string {
	out := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && !Internal(name) {
			out = append(out, kv)
		}
	}
	return out
}

const (
	maxEnvName  = 256
	maxEnvValue = 32 << 10 // bytes; Linux refuses an argument or variable above 128 KiB
)

// AcceptEnv reports whether a variable that a peer sent may be set: its name is a portable one (letters, digits and
// underscores, no leading digit) and not the agent's own, and both parts are of a sane size without NUL bytes.
func AcceptEnv(name, value string) bool {
	if name == "" || len(name) > maxEnvName || len(value) > maxEnvValue || Internal(name) {
		return false
	}
	return isName(name) && strings.IndexByte(value, 0) < 0
}

func isName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i], i == 0) {
			return false
		}
	}
	return s != ""
}

func isNameByte(c byte, first bool) bool {
	letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return letter || !first && '0' <= c && c <= '9'
}

// Env is an ordered set of variables: a later Set replaces an earlier one. Where the system ignores case in names, so
// does Env. The zero value is ready.
type Env struct {
	index map[string]int
	list  []string
}

// NewEnv returns an Env with the variables of environ. If a name occurs more than once, the last value counts.
func NewEnv(environ []string) *Env {
	e := &Env{index: make(map[string]int, len(environ)+32), list: make([]string, 0, len(environ)+32)}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			e.Set(name, value)
		}
	}
	return e
}

// Set gives name a value.
func (e *Env) Set(name, value string) {
	if e.index == nil {
		e.index = make(map[string]int)
	}
	kv, key := name+"="+value, fold(name)
	if i, ok := e.index[key]; ok {
		e.list[i] = kv
		return
	}
	e.index[key] = len(e.list)
	e.list = append(e.list, kv)
}

// Default sets name unless it has a non-empty value.
func (e *Env) Default(name, value string) {
	if v, ok := e.Get(name); !ok || v == "" {
		e.Set(name, value)
	}
}

// Get returns the value of name.
func (e *Env) Get(name string) (string, bool) {
	i, ok := e.index[fold(name)]
	if !ok {
		return "", false
	}
	return e.list[i][len(name)+1:], true
}

// List returns the environment in the form of os/exec. The caller may keep it.
func (e *Env) List() []string { return slices.Clone(e.list) }

// Expand replaces $NAME and ${NAME} of variables that are set, and leaves every other dollar sign alone: templates
// write "$HOME/bin:$PATH", but a password may contain a dollar sign.
func (e *Env) Expand(s string) string {
	if strings.IndexByte(s, '$') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		name, width := reference(s[i:])
		if value, ok := e.Get(name); width > 0 && ok {
			out.WriteString(value)
			i += width
			continue
		}
		out.WriteByte(s[i])
		i++
	}
	return out.String()
}

// unsetLists are the values of lists of folders that mean the same as an unset variable: the XDG Base Directory
// Specification's, and for man and info an empty element.
var unsetLists = map[string]string{"XDG_DATA_DIRS": "/usr/local/share:/usr/share", "XDG_CONFIG_DIRS": "/etc/xdg",
	"MANPATH": "", "INFOPATH": ""}

// ExpandList is Expand for the value of a variable that may be a list that contains the variable's value so far, as in
// "$PATH:/opt/bin". If the variable is not set, that part is what unset means, or is left out.
func (e *Env) ExpandList(name, value string) string {
	if set, _ := e.Get(name); set != "" {
		return e.Expand(value)
	}
	const separator = string(filepath.ListSeparator)
	parts := strings.Split(value, separator)
	own := func(part string) bool { return part == "$"+name || part == "${"+name+"}" }
	if len(parts) == 1 || !slices.ContainsFunc(parts, own) {
		return e.Expand(value)
	}
	kept := make([]string, 0, len(parts))
	for _, part := range parts {
		unset, known := unsetLists[name]
		switch {
		case !own(part):
			kept = append(kept, e.Expand(part))
		case known:
			kept = append(kept, unset)
		}
	}
	return strings.Join(kept, separator)
}

// reference parses a $NAME or ${NAME} at the start of s; width is 0 if there is none.
func reference(s string) (name string, width int) {
	if s[0] != '$' {
		return "", 0
	}
	if strings.HasPrefix(s, "${") {
		end := strings.IndexByte(s, '}')
		if end < 0 || !isName(s[2:end]) {
			return "", 0
		}
		return s[2:end], end + 1
	}
	end := 1
	for end < len(s) && isNameByte(s[end], end == 1) {
		end++
	}
	if end == 1 {
		return "", 0
	}
	return s[1:end], end
}
