package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// maxFile is the greatest size of a file with settings or with a secret, in bytes.
const maxFile = 1 << 20

// loadFile sets the flags that have no stronger source from a YAML file.
func (s *Set) loadFile(name string) {
	file, err := os.Open(name)
	if err != nil {
		s.wrong = append(s.wrong, problem{"--" + configFlag, fmt.Sprintf("cannot read the file: %v", err)})
		return
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		s.wrong = append(s.wrong, problem{"--" + configFlag, fmt.Sprintf("cannot read the file: %v", err)})
		return
	}
	s.apply(name, text)
	if info, err := file.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 && s.holdsSecret() {
		s.warnings = append(s.warnings,
			fmt.Sprintf("other accounts can read %s, which contains secrets: run chmod 600 %s", name, shell.Word(name)))
	}
}

// holdsSecret reports whether the file sets a secret.
func (s *Set) holdsSecret() bool {
	for flag, key := range s.keys {
		if key.Secret && rank(s.cmd.Flags().Lookup(flag)) == 1 {
			return true
		}
	}
	for _, l := range s.lists {
		if slices.ContainsFunc(l.environ, func(one string) bool { return strings.Contains(one, "_"+flags.EnvWord(l.secret)+"=") }) {
			return true
		}
	}
	return false
}

// apply sets flags from the text of a file.
func (s *Set) apply(name string, text []byte) {
	if len(text) > maxFile {
		s.wrong = append(s.wrong, problem{name, fmt.Sprintf("the file is larger than %d bytes", maxFile)})
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return // only comments
	} else if err != nil {
		s.wrong = append(s.wrong, problem{name, "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
		return
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		s.wrong = append(s.wrong, problem{name, "must contain one YAML document"})
		return
	}
	r := reader{set: s, name: name, seen: map[string]int{}}
	if top := document.Content[0]; top.Kind == yaml.MappingNode {
		r.group("", top)
	} else if !isNull(top) {
		s.wrong = append(s.wrong, problem{name, "must contain keys and values, such as networking:"})
	}
}

// reader walks a file.
type reader struct {
	set  *Set
	name string
	seen map[string]int // lines by path
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	r.set.wrong = append(r.set.wrong, problem{r.at(n), fmt.Sprintf(format, args...)})
}

func (r *reader) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", r.name, n.Line) }

// group reads the keys below a path.
func (r *reader) group(path string, node *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			r.wrong(name, "a key must be a word")
			continue
		}
		full := strings.TrimPrefix(path+"."+name.Value, ".")
		if first, twice := r.seen[full]; twice {
			r.wrong(name, "%s is already set in line %d", full, first)
			continue
		}
		r.seen[full] = name.Line
		r.key(full, name, value)
	}
}

// key reads one key.
func (r *reader) key(path string, name, value *yaml.Node) {
	if value.Kind == yaml.AliasNode {
		r.wrong(value, "%s: aliases are not supported, repeat the value", path)
		return
	}
	if flag := r.set.flagAt(path); flag != nil {
		r.setFlag(path, flag, value)
		return
	}
	if l, ok := r.set.lists[path]; ok {
		r.list(path, l, value)
		return
	}
	if !r.set.isGroup(path) {
		if near := r.set.nearestKey(path); near != "" {
			r.wrong(name, "unknown key %s: did you mean %s?", path, near)
		} else {
			r.wrong(name, "unknown key %s", path)
		}
		return
	}
	switch {
	case isNull(value):
	case value.Kind == yaml.MappingNode:
		r.group(path, value)
	default:
		r.wrong(value, "%s is a group: put its keys below it", path)
	}
}

// setFlag sets a flag unless a stronger source has.
func (r *reader) setFlag(path string, flag *pflag.Flag, value *yaml.Node) {
	key := r.set.keys[flag.Name]
	if isNull(value) || flag.Changed {
		return
	}
	slice, isSlice := flag.Value.(pflag.SliceValue)
	switch {
	case value.Kind == yaml.ScalarNode:
		flags.SetSource(flag, r.at(value))
		if isSlice && value.Value == "" {
			r.replace(flag, slice, nil)
			return
		}
		r.set.put(flag, value.Value)
	case isSlice && value.Kind == yaml.SequenceNode:
		var values []string
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode || isNull(item) {
				r.wrong(item, "%s must be a list of texts", path)
				return
			}
			values = append(values, item.Value)
		}
		flags.SetSource(flag, r.at(value))
		r.replace(flag, slice, values)
	case key.JSON && (value.Kind == yaml.MappingNode || value.Kind == yaml.SequenceNode):
		text, err := toJSON(value)
		if err != nil {
			r.wrong(value, "%s: %v", path, err)
			return
		}
		flags.SetSource(flag, r.at(value))
		r.set.put(flag, text)
	case isSlice:
		r.wrong(value, "%s must be a list", path)
	default:
		r.wrong(value, "%s must be a single value", path)
	}
}

func (r *reader) replace(flag *pflag.Flag, slice pflag.SliceValue, values []string) {
	if err := slice.Replace(values); err != nil {
		r.set.reject(flag, strings.Join(values, ","), err)
	}
	flag.Changed = true
}

// toJSON returns a node without aliases as JSON.
func toJSON(node *yaml.Node) (string, error) {
	if hasAlias(node) {
		return "", errors.New("aliases are not supported, repeat the value")
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return "", errors.New("is not valid")
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "", errors.New("its keys must be texts")
	}
	return string(text), nil
}

func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// list reads a list of objects.
func (r *reader) list(path string, l *list, value *yaml.Node) {
	if isNull(value) {
		return
	}
	if value.Kind != yaml.SequenceNode {
		r.wrong(value, "%s must be a list", path)
		return
	}
	for i, item := range value.Content {
		if item.Kind != yaml.MappingNode {
			r.wrong(item, "%s must be a list of groups of keys", path)
			continue
		}
		for j := 0; j+1 < len(item.Content); j += 2 {
			r.field(path, l, i, item.Content[j], item.Content[j+1])
		}
	}
}

// field reads one key of an object in a list.
func (r *reader) field(path string, l *list, i int, name, value *yaml.Node) {
	if !slices.Contains(l.fields, name.Value) {
		r.wrong(name, "unknown key %s in %s: did you mean %s?", name.Value, path,
			nearest.Within(name.Value, l.fields, len(name.Value)+1))
		return
	}
	var text string
	switch {
	case isNull(value):
		return
	case value.Kind == yaml.ScalarNode:
		text = value.Value
	case value.Kind == yaml.SequenceNode && !hasAlias(value):
		var parts []string
		for _, part := range value.Content {
			parts = append(parts, part.Value)
		}
		text = strings.Join(parts, ",")
	default:
		r.wrong(value, "%s in %s must be a single value", name.Value, path)
		return
	}
	variable := fmt.Sprintf("%s%d_%s=%s", l.prefix, i, flags.EnvWord(name.Value), text)
	l.environ = append(l.environ, variable)
}

// flagAt returns the flag with a key, or nil.
func (s *Set) flagAt(path string) *pflag.Flag {
	for name, key := range s.keys {
		if key.Path == path {
			return s.cmd.Flags().Lookup(name)
		}
	}
	return nil
}

// isGroup reports whether keys exist below path.
func (s *Set) isGroup(path string) bool {
	for _, key := range s.keys {
		if strings.HasPrefix(key.Path, path+".") {
			return true
		}
	}
	return false
}
