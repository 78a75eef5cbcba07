//go:build windows

package autostart

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func newAccount(t *testing.T) Options {
	t.Helper()
	dir := winetest.TempDir(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Account: "ann", Folder: filepath.Join(dir, "a & b"), Program: program, URL: "https://coder.example.com", Token: "s3cret",
	}
}

// TestInstall checks that the task scheduler takes the task, and what is left in the folder.
func TestInstall(t *testing.T) {
	t.Parallel()
	o := newAccount(t)
	var asked []string
	o.run = func(ctx context.Context, name string, args ...string) error {
		asked = append(asked, args[0])
		if args[0] == "/Run" { // the task would start this test
			return nil
		}
		for i, arg := range args {
			if arg == taskName {
				args[i] = "codermesh-agent-test"
			}
		}
		return exec.CommandContext(ctx, name, args...).Run() // its output would be held open by Wine's services
	}
	for range 2 {
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"/Create", "/Run", "/Create", "/Run"}; !slices.Equal(asked, want) {
		t.Errorf("the task scheduler was asked %q, want %q", asked, want)
	}
	if text, err := os.ReadFile(o.tokenFile()); err != nil || string(text) != "s3cret\n" {
		t.Errorf("token: %q, %v", text, err)
	}
	if _, err := os.Stat(o.program()); err != nil {
		t.Error(err)
	}
	if err := unregister(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// TestTask checks the description of the task: its quotes, and when it starts.
func TestTask(t *testing.T) {
	t.Parallel()
	o := Options{Folder: `C:\Users\Ann & Bob\agent`, URL: "https://coder.example.com/?a=<b>", Token: "s3cret"}
	for machine, want := range map[bool][]string{
		true:  {"<BootTrigger/>", "<LogonType>S4U</LogonType>"},
		false: {"<LogonTrigger><UserId>S-1-5-21-7</UserId></LogonTrigger>", "<LogonType>InteractiveToken</LogonType>"},
	} {
		encoded := task(o, "S-1-5-21-7", machine)
		if !bytes.HasPrefix(encoded, []byte{0xff, 0xfe}) {
			t.Fatalf("%x", encoded)
		}
		units := make([]uint16, len(encoded)/2-1)
		if _, err := binary.Decode(encoded[2:], binary.LittleEndian, units); err != nil {
			t.Fatal(err)
		}
		text := string(utf16.Decode(units))
		for _, part := range append(want, `<Command>C:\Users\Ann &amp; Bob\agent\coder.exe</Command>`,
			`--agent-url https://coder.example.com/?a=&lt;b&gt; --agent-token-file `+
				`&quot;C:\Users\Ann &amp; Bob\agent\token&quot;</Arguments>`) {
			if !strings.Contains(text, part) {
				t.Errorf("%s is missing in %s", part, text)
			}
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf("the task has the token: %s", text)
		}
	}
}
