package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// notes writes what users notice, from the changelog, and the commits since the tag before, by area: their subjects are
// "area: change".
func (r *release) notes() error {
	own := "v" + r.version // Go ignores a tag with build metadata
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
	text, err := os.ReadFile(filepath.Join(r.root, changelogName))
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	summary := section(string(text), r.version)
	if summary == "" {
		return fmt.Errorf("%s tells users nothing about %s: write the section \"## %[2]s\"", changelogName, r.version)
	}
	return r.create("RELEASE_NOTES.md", func(w io.Writer) error {
		_, err := fmt.Fprintf(w,
			"# codermesh %s\n\n%s\n\nVerify downloads with `sha256sum --check --ignore-missing %s`.\n\n## Commits "+
				"since %s\n%s",
			r.version, summary, sumsName, since, changes(strings.Split(log, "\n")))
		return err
	})
}

// changelogName is the file with what users notice, a section for each release.
const changelogName = "CHANGELOG.md"

// section returns the text below a version's heading, without blank lines around it; "" if there is none.
func section(changelog, version string) string {
	_, after, _ := strings.Cut("\n"+changelog, "\n## "+version+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return strings.TrimSpace(text)
}

// changes groups subjects by area, in the order in which the areas first appear.
func changes(subjects []string) string {
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
	for _, area := range areas {
		fmt.Fprintf(&text, "\n### %s\n\n", area)
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
