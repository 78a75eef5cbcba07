package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
)

// TestManualPages checks that each command that help shows has a page, that groff reads them without a complaint, and that they are the same each time.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	pages := func() (string, map[string]string) {
		root := cli.New(append(provisionerCmds(), serverCmd(), docsCmd())...)
		folder := filepath.Join(t.TempDir(), "man1")
		if err := writeManual(root, folder); err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		var read func(cmd *cobra.Command)
		read = func(cmd *cobra.Command) {
			name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Error(err)
			}
			texts[name] = string(text)
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() {
					read(sub)
				}
			}
		}
		read(root)
		return folder, texts
	}
	folder, first := pages()
	_, second := pages()
	for name, text := range first {
		if text != second[name] {
			t.Errorf("%s differs the second time", name)
		}
	}
	for _, part := range []string{"coder-ssh - ", `--disable-direct-connections`, "Nov 2023", "coder-config-ssh"} {
		if !strings.Contains(strings.ReplaceAll(strings.Join([]string{first["coder-ssh.1"], first["coder.1"]}, "\n"), `\-`, "-"), part) {
			t.Errorf("the pages of coder and coder ssh have no %q", part)
		}
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `for page in "$1"/*; do groff -K utf8 -man -Tutf8 -ww -z "$page" || exit; done`, "sh", folder).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%.2000s", err, out)
	}
	if hint, ok := exit.Hint(writeManual(cli.New(), "/proc/none")); !ok || !strings.Contains(hint, "coder docs gen-man") {
		t.Errorf("a folder that cannot be written suggests %q", hint)
	}
}
