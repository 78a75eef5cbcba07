package result

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// Values of a plan, their marks and what of them is unknown have the same shape: objects, lists, and at the leaves
// values or true. A path leads to a place in it. Its steps are the names of attributes, keys of maps and indexes.

// holds reports whether true occurs anywhere in a value of a plan's marks or unknowns.
func holds(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case map[string]any:
		for _, inner := range v {
			if holds(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, holds)
	}
	return false
}

// marked returns the paths of the marks that are not among those before, sorted.
func marked(marks, before any, path []string) (paths [][]string) {
	if before == true {
		return nil
	}
	switch m := marks.(type) {
	case bool:
		if m {
			return [][]string{path}
		}
	case map[string]any:
		was, _ := before.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(m)) {
			paths = append(paths, marked(m[name], was[name], append(slices.Clip(path), name))...)
		}
	case []any:
		was, _ := before.([]any)
		for i, inner := range m {
			var innerBefore any
			if i < len(was) {
				innerBefore = was[i]
			}
			paths = append(paths, marked(inner, innerBefore, append(slices.Clip(path), strconv.Itoa(i)))...)
		}
	}
	return paths
}

// different returns the paths of what differs between two values, sorted. It follows objects, and lists with a single
// element, as those are that stand for a block. Null and an empty value are the same: providers turn one into the other
// as they like.
func different(before, after any, path []string) (paths [][]string) {
	if reflect.DeepEqual(before, after) || empty(before) && empty(after) {
		return nil
	}
	switch a := after.(type) {
	case map[string]any:
		b, ok := before.(map[string]any)
		if !ok {
			break
		}
		names := maps.Clone(a)
		maps.Copy(names, b)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			paths = append(paths, different(b[name], a[name], append(slices.Clip(path), name))...)
		}
		return paths
	case []any:
		if b, ok := before.([]any); ok && len(a) == 1 && len(b) == 1 {
			return different(b[0], a[0], append(slices.Clip(path), "0"))
		}
	}
	return [][]string{path}
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

const maxDifferences = 5 // that a sentence lists

// differences returns the end of a sentence about a change: which attributes would differ. It is "" if the change has
// none.
func differences(c *tfjson.Change) string {
	before, _ := c.Before.(map[string]any)
	after, _ := c.After.(map[string]any)
	if before == nil || after == nil {
		return ""
	}
	unknown, _ := c.AfterUnknown.(map[string]any)
	known := maps.Clone(before)
	maps.DeleteFunc(known, func(name string, _ any) bool { return holds(unknown[name]) })
	paths := different(known, after, nil)
	if len(paths) == 0 {
		paths = marked(c.AfterUnknown, nil, nil) // no value differs, but a provider or a function may give others
	}
	if len(paths) == 0 {
		return ""
	}
	texts := make([]string, 0, len(paths))
	for _, path := range paths[:min(len(paths), maxDifferences)] {
		texts = append(texts, pathText(path))
	}
	if more := len(paths) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return ": it would differ in " + strings.Join(texts, ", ")
}

// pathText writes a path as Terraform does.
func pathText(path []string) string {
	var out strings.Builder
	for i, s := range path {
		_, err := strconv.Atoi(s)
		switch {
		case err == nil:
			fmt.Fprintf(&out, "[%s]", s)
		case strings.ContainsFunc(s, func(r rune) bool {
			return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}):
			fmt.Fprintf(&out, "[%q]", s)
		case i > 0:
			out.WriteString("." + s)
		default:
			out.WriteString(s)
		}
	}
	return out.String()
}
