package main

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// notes writes the changes since the tag before, by area: commit subjects are "area: change".
func (r *release) notes() error {
	own := "v" + r.version + "+codermesh"
	head, err := r.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if tagged, err := r.git("rev-parse", "--verify", "--quiet", own+"^{commit}"); err == nil && tagged != head {
		return fmt.Errorf("%s is already released, from another commit: raise the number in the file VERSION", own)
	}
	since := "the beginning"
	span := "HEAD"
	if tag, err := r.git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^"); err == nil {
		since, span = tag, tag+"..HEAD"
	}
	log, err := r.git("log", "--no-merges", "--reverse", "--format=%s", span)
	if err != nil {
		return err
	}
	return r.create("RELEASE_NOTES.md", func(w io.Writer) error {
		_, err := io.WriteString(w, changes(r.version, since, strings.Split(log, "\n")))
		return err
	})
}

// changes groups subjects by area, in the order in which the areas first appear.
func changes(version, since string, subjects []string) string {
	var areas []string
	by := map[string][]string{}
	for _, subject := range subjects {
		area, change, ok := strings.Cut(subject, ": ")
		if !ok {
			area, change = "other", subject
		}
		area, _, _ = strings.Cut(area, ",") // "coderd, e2e" belongs to coderd
		area, _, _ = strings.Cut(area, "/")
		if by[area] == nil {
			areas = append(areas, area)
		}
		by[area] = append(by[area], change)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# codermesh %s\n\nChanges since %s. Verify downloads with `sha256sum --check --ignore-missing %s`.\n", version, since, sumsName)
	for _, area := range areas {
		fmt.Fprintf(&text, "\n## %s\n\n", area)
		for _, change := range by[area] {
			fmt.Fprintf(&text, "- %s\n", change)
		}
	}
	return text.String()
}

func (r *release) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
