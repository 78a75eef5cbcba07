package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
)

// Write prints the settings as a file for --config. Settings that have their default are comments, and so are secrets,
// whose values are omitted.
func (s *Set) Write(w io.Writer) error {
	var out bytes.Buffer
	out.WriteString("# Settings of " + s.cmd.CommandPath() + ". Flags and environment variables override them.\n")
	byPath := map[string]*pflag.Flag{}
	for name, key := range s.keys {
		byPath[key.Path] = s.cmd.Flags().Lookup(name)
	}
	var open []string // groups
	for _, path := range slices.SortedFunc(maps.Keys(byPath), comparePaths) {
		groups := strings.Split(path, ".")
		last := groups[len(groups)-1]
		groups = groups[:len(groups)-1]
		common := 0
		for common < min(len(open), len(groups)) && open[common] == groups[common] {
			common++
		}
		for i := common; i < len(groups); i++ {
			fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", i), groups[i])
		}
		open = groups
		s.writeFlag(&out, strings.Repeat("  ", len(groups)), last, byPath[path])
	}
	for _, path := range slices.Sorted(maps.Keys(s.lists)) {
		l := s.lists[path]
		fmt.Fprintf(&out, "# a list of objects with the keys %s; the variables %sN_… override it\n",
			strings.Join(l.fields, ", "), l.prefix)
		writeList(&out, path, l)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// comparePaths orders the keys of a group before its groups, so that every group is written once.
func comparePaths(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		aLeaf, bLeaf := i == len(as)-1, i == len(bs)-1
		if aLeaf != bLeaf {
			if aLeaf {
				return -1
			}
			return 1
		}
		if c := strings.Compare(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return len(as) - len(bs)
}

func (s *Set) writeFlag(out *bytes.Buffer, indent, name string, flag *pflag.Flag) {
	usage, _, _ := strings.Cut(flag.Usage, " [$")
	fmt.Fprintf(out, "%s# %s [--%s, $%s]\n", indent, usage, flag.Name, strings.Join(flags.EnvNames(s.cmd, flag), ", $"))
	switch {
	case s.keys[flag.Name].Secret && flag.Changed:
		fmt.Fprintf(out, "%s# %s: (set; secrets are not printed)\n", indent, name)
	case s.keys[flag.Name].Secret:
		fmt.Fprintf(out, "%s# %s: \"\"\n", indent, name)
	case flag.Changed:
		fmt.Fprintf(out, "%s%s: %s\n", indent, name, literal(flag))
	default:
		fmt.Fprintf(out, "%s# %s: %s\n", indent, name, literal(flag))
	}
}

// writeList prints a list of the file without its secrets.
func writeList(out *bytes.Buffer, path string, l *list) {
	if len(l.environ) == 0 {
		fmt.Fprintf(out, "# %s: []\n", path)
		return
	}
	fmt.Fprintf(out, "%s:\n", path)
	number := ""
	for _, one := range l.environ {
		name, value, _ := strings.Cut(strings.TrimPrefix(one, l.prefix), "=")
		n, field, _ := strings.Cut(name, "_")
		if n != number {
			number = n
			out.WriteString("  -\n")
		}
		field = strings.ToLower(field)
		if field == l.secret {
			fmt.Fprintf(out, "    # %s: (set; secrets are not printed)\n", field)
			continue
		}
		fmt.Fprintf(out, "    %s: %s\n", field, quote(value))
	}
}

// literal returns the value of a flag as YAML.
func literal(flag *pflag.Flag) string {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		values := slice.GetSlice()
		if values == nil {
			values = []string{}
		}
		return quote(values)
	}
	switch flag.Value.Type() {
	case "bool", "int", "uint64", "float64", "duration":
		return flag.Value.String()
	}
	return quote(flag.Value.String())
}

// quote returns JSON, which is also YAML.
func quote(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // texts and lists of texts cannot fail
	}
	return strings.TrimSuffix(out.String(), "\n")
}
