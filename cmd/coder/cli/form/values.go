package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ParseValues reads a file of names and values: a JSON object, or YAML:
//
//	region: eu-west-1     # a comment
//	size: "4"
//	tools: [git, vim]
//	groups:
//	  - admin
//	  - ops
//
// Numbers and booleans become their text as it is written, null the empty text. Lists and objects become JSON: in those
// of YAML, everything except null becomes a string, which Terraform converts to the types of its variables. Aliases are
// rejected: they could make a small file large.
func ParseValues(data []byte) (map[string]string, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return parseJSONValues(data)
	}
	values := map[string]string{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return values, nil
	}
	if err != nil {
		return nil, yamlError(err)
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		return nil, lineError(&next, "it must hold one document")
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlError(err)
	}
	root := document.Content[0]
	if root.ShortTag() == "!!null" && root.Value == "" {
		return values, nil // the file holds only comments
	}
	if root.Kind != yaml.MappingNode {
		return nil, lineError(root, "it must hold names with values, as in region: eu-west-1")
	}
	err = eachPair(root, func(name string, node *yaml.Node) error {
		value, err := yamlValue(node)
		if err != nil {
			return err
		}
		switch value := value.(type) {
		case nil:
			values[name] = ""
		case string:
			values[name] = value
		default:
			text, err := json.Marshal(value)
			if err != nil {
				return lineError(node, "%w", err)
			}
			values[name] = string(text)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// eachPair calls do with the names and values of a mapping, in order.
func eachPair(mapping *yaml.Node, do func(name string, value *yaml.Node) error) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		name, value := mapping.Content[i], mapping.Content[i+1]
		switch {
		case name.Kind == yaml.AliasNode:
			return lineError(name, "aliases are not read")
		case name.Kind != yaml.ScalarNode || name.ShortTag() == "!!merge":
			return lineError(name, "a name must be plain text")
		case seen[name.Value]:
			return lineError(name, "%q is there twice", name.Value)
		}
		seen[name.Value] = true
		if err := do(name.Value, value); err != nil {
			return err
		}
	}
	return nil
}

// yamlValue returns nil, a string, or a list or object of such values.
func yamlValue(node *yaml.Node) (any, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		switch tag := node.ShortTag(); tag {
		case "!!null":
			return nil, nil
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
			return node.Value, nil
		default:
			return nil, lineError(node, "a value of the type %s is not read", tag)
		}
	case yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for _, item := range node.Content {
			value, err := yamlValue(item)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	case yaml.MappingNode:
		object := map[string]any{}
		err := eachPair(node, func(name string, item *yaml.Node) (err error) {
			object[name], err = yamlValue(item)
			return err
		})
		return object, err
	}
	return nil, lineError(node, "aliases are not read")
}

func lineError(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %w", node.Line, fmt.Errorf(format, args...))
}

// yamlError returns the parser's error without the parser's name, and with the line, which the parser omits for the
// first line.
func yamlError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if !strings.HasPrefix(text, "line ") {
		text = "line 1: " + text
	}
	return errors.New(text)
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

// jsonValue returns a string without its quotes, and everything else as written.
func jsonValue(raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var out bytes.Buffer // not decoded, so that numbers keep all their digits
	err := json.Compact(&out, raw)
	return out.String(), err
}
