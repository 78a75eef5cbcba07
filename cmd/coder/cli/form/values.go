package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseValues reads a file of names and values: a JSON object, or the flat part of YAML, which is what such files hold:
//
//	region: eu-west-1     # a comment
//	size: "4"
//	tools: ["git", "vim"]
//	groups:
//	  - admin
//	  - ops
//
// Lists become JSON text, numbers and booleans their own text.
func ParseValues(data []byte) (map[string]string, error) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		return parseJSONValues([]byte(text))
	}
	values := map[string]string{}
	var list string // name of the list being read
	var items []string
	endList := func() {
		if list != "" {
			values[list] = listText(items)
		}
		list, items = "", nil
	}
	n := 0
	for raw := range strings.Lines(text) {
		n++
		line := strings.TrimRight(raw, " \t\r\n")
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") || trimmed == "---" {
			continue
		}
		if item, ok := listItem(trimmed); ok && list != "" {
			value, err := scalar(item)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			items = append(items, value)
			continue
		}
		endList()
		if line != trimmed {
			return nil, fmt.Errorf("line %d: only names with plain values and lists are understood", n)
		}
		name, rest, ok := strings.Cut(line, ":")
		if name = unquoteName(name); !ok || name == "" || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			return nil, fmt.Errorf("line %d: want name: value", n)
		}
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		rest = strings.TrimSpace(rest)
		if rest == "" || strings.HasPrefix(rest, "#") {
			list = name
			values[name] = "" // an empty value unless items follow
			continue
		}
		value, err := scalar(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		values[name] = value
	}
	endList()
	return values, nil
}

func listText(items []string) string {
	if items == nil {
		return ""
	}
	text, _ := json.Marshal(items) // strings always encode
	return string(text)
}

func listItem(trimmed string) (string, bool) {
	if trimmed == "-" {
		return "", true
	}
	item, ok := strings.CutPrefix(trimmed, "- ")
	return strings.TrimSpace(item), ok
}

func unquoteName(name string) string {
	name = strings.TrimSpace(name)
	if len(name) >= 2 && (name[0] == '"' || name[0] == '\'') && name[len(name)-1] == name[0] {
		return name[1 : len(name)-1]
	}
	return name
}

// scalar reads one value of a line.
func scalar(text string) (string, error) {
	switch {
	case text == "":
		return "", nil
	case text[0] == '"':
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", errors.New("the quoted text does not end")
		}
		if err := onlyComment(text[len(quoted):]); err != nil {
			return "", err
		}
		return strconv.Unquote(quoted)
	case text[0] == '\'':
		return singleQuoted(text)
	case text[0] == '[':
		var items []any
		d := json.NewDecoder(strings.NewReader(text))
		if err := d.Decode(&items); err != nil {
			return "", errors.New(`a list on one line is JSON: ["a", "b"]`)
		}
		return jsonText(items)
	case strings.ContainsRune("{|>&*!%@`", rune(text[0])):
		return "", fmt.Errorf("a value that begins with %q must be quoted", text[0])
	}
	if i := strings.Index(text, " #"); i >= 0 {
		text = strings.TrimRight(text[:i], " \t")
	}
	return text, nil
}

// singleQuoted reads '…', where two quotes stand for one.
func singleQuoted(text string) (string, error) {
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] != '\'' {
			out.WriteByte(text[i])
			continue
		}
		if i+1 < len(text) && text[i+1] == '\'' {
			out.WriteByte('\'')
			i++
			continue
		}
		return out.String(), onlyComment(text[i+1:])
	}
	return "", errors.New("the quoted text does not end")
}

func onlyComment(rest string) error {
	if rest = strings.TrimSpace(rest); rest != "" && rest[0] != '#' {
		return fmt.Errorf("%q follows the quoted text", rest)
	}
	return nil
}

func parseJSONValues(data []byte) (map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("read JSON object: %w", err)
	}
	values := make(map[string]string, len(raw))
	for name, value := range raw {
		text, err := jsonValue(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = text
	}
	return values, nil
}

// jsonValue is a string without its quotes, and everything else as it is written.
func jsonValue(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var out bytes.Buffer // and not decoded: numbers keep all their digits
	err := json.Compact(&out, raw)
	return out.String(), err
}

func jsonText(v any) (string, error) {
	out, err := json.Marshal(v)
	return string(out), err
}
