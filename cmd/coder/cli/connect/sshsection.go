package connect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// These lines mark our section of OpenSSH's configuration. Other programs of this family use the same markers, and our
// section replaces theirs.
const (
	sectionStart = "# ------------START-CODER-----------"
	sectionEnd   = "# ------------END-CODER------------"
	sectionNote  = "# This section is written by `coder config-ssh`, which replaces it as a whole. Do not edit it.\n" +
		"# A ProxyCommand below ends SSH on this machine, with a host key of its own that it writes to UserKnownHostsFile."
	recordNote = "# It was written with these options, which --use-previous-options keeps:"
	recordMark = "#   --"
)

// findSection returns where the marked section begins and ends in text, including its last newline. start is -1 without
// a section.
func findSection(text string) (start, end int, err error) {
	start, end = -1, -1
	offset := 0
	for line := range strings.Lines(text) {
		switch strings.TrimRight(line, "\r\n") {
		case sectionStart:
			if start >= 0 {
				return 0, 0, errors.New("it contains the section's first line twice")
			}
			start = offset
		case sectionEnd:
			if start < 0 || end >= 0 {
				return 0, 0, errors.New("it contains the section's last line without its first")
			}
			end = offset + len(line)
		}
		offset += len(line)
	}
	if start >= 0 && end < 0 {
		return 0, 0, errors.New("it contains the section's first line without its last")
	}
	return start, end, nil
}

// recordFlags returns comments that name the flags that are set, for restoreFlags.
func recordFlags(f *pflag.FlagSet) (string, error) {
	var b strings.Builder
	for _, name := range recordedFlags {
		flag := f.Lookup(name)
		if !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if strings.ContainsAny(value, "\r\n") {
				return "", fault.New(fault.Invalid, "--%s %q spans lines", name, value)
			}
			b.WriteString(recordMark + name + "=" + value + "\n")
		}
	}
	if b.Len() == 0 {
		return "", nil
	}
	return recordNote + "\n" + b.String(), nil
}

// restoreFlags sets the flags that the section in text records, except those that are set already.
func restoreFlags(f *pflag.FlagSet, text string) error {
	start, end, err := findSection(text)
	if err != nil || start < 0 {
		return err
	}
	var open []string
	for _, name := range recordedFlags {
		if !f.Changed(name) {
			open = append(open, name)
		}
	}
	for line := range strings.Lines(text[start:end]) {
		record, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), recordMark)
		name, value, _ := strings.Cut(record, "=")
		if !ok || !slices.Contains(open, name) {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return fmt.Errorf("read %q: %w", record, err)
		}
	}
	return nil
}

// replaceSection replaces the section's body, or appends a section. An empty body removes the section. It leaves the
// rest of text alone.
func replaceSection(text, body string) (string, error) {
	start, end, err := findSection(text)
	if err != nil {
		return "", err
	}
	section := ""
	if body != "" {
		section = sectionStart + "\n" + sectionNote + "\n" + strings.TrimRight(body, "\n") + "\n" + sectionEnd + "\n"
	}
	if start >= 0 {
		return text[:start] + section + text[end:], nil
	}
	switch {
	case section == "" || text == "":
	case !strings.HasSuffix(text, "\n"):
		text += "\n\n"
	case !strings.HasSuffix(text, "\n\n"):
		text += "\n"
	}
	return text + section, nil
}

// sectionDiff shows the old section's lines and the new one's.
func sectionDiff(path, before, after string) string {
	var b strings.Builder
	b.WriteString("--- " + path + "\n+++ " + path + "\n")
	for _, side := range []struct{ mark, text string }{{"-", before}, {"+", after}} {
		start, end, err := findSection(side.text)
		if err != nil || start < 0 {
			continue
		}
		for line := range strings.Lines(side.text[start:end]) {
			b.WriteString(side.mark + strings.TrimRight(line, "\r\n") + "\n")
		}
	}
	return b.String()
}
