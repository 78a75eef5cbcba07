//go:build windows

package autostart

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/winetest"
)

// TestMain waits for the end of its input in the agent that TestUninstall starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// account is a user's account of a test. The task scheduler has a task of its own for it, and does not run it: that
// would start this test.
type account struct {
	Options
	asked []string
}

func newAccount(t *testing.T) *account {
	t.Helper()
	dir := winetest.TempDir(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a := &account{}
	a.Options = Options{
		Account: "ann", Folder: filepath.Join(dir, "a & b"), Program: program, URL: "https://coder.example.com", Token: "s3cret",
		run: func(ctx context.Context, name string, args ...string) error {
			a.asked = append(a.asked, args[0])
			if args[0] == "/Run" || args[0] == "/End" {
				return nil
			}
			for i, arg := range args {
				if arg == taskName {
					args[i] = "codermesh-agent-" + t.Name()
				}
			}
			return exec.CommandContext(ctx, name, args...).Run() // its output would be held open by Wine's services
		},
	}
	return a
}

func (a *account) wasAsked(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(a.asked, want) {
		t.Errorf("the task scheduler was asked %q, want %q", a.asked, want)
	}
	a.asked = nil
}

// TestInstall checks that the task scheduler takes the task, twice, what is left in the folder, and that nothing is
// left after Uninstall.
func TestInstall(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	for _, token := range []secret.Token{"first", "s3cret"} {
		a.Token = token
		if _, err := Install(t.Context(), a.Options); err != nil {
			t.Fatal(err)
		}
		a.wasAsked(t, "/Create", "/Run")
	}
	if text, err := os.ReadFile(a.tokenFile()); err != nil || string(text) != "s3cret\n" {
		t.Errorf("token: %q, %v", text, err)
	}
	if _, err := os.Stat(a.program()); err != nil {
		t.Error(err)
	}

	if err := Uninstall(t.Context(), a.Options); err != nil {
		t.Fatal(err)
	}
	a.wasAsked(t, "/End", "/Delete")
	if _, err := os.Lstat(a.Folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if err := unregister(t.Context(), a.Options); err == nil {
		t.Error("the task is left")
	}
	if err := Uninstall(t.Context(), a.Options); !errors.Is(err, ErrAbsent) {
		t.Errorf("the second time: %v", err)
	}
}

// TestUninstallRunning removes an agent whose program runs, as it does while stop scripts run.
func TestUninstallRunning(t *testing.T) {
	temp := winetest.TempDir(t)
	t.Setenv("TMP", temp)
	a := newAccount(t)
	if _, err := Install(t.Context(), a.Options); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(a.program(), a.arguments()...)
	input, err := agent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		input.Close()
		if err := agent.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Remove(a.program()); err == nil {
		t.Error("the system lets a program be removed that runs")
	}
	if err := Uninstall(t.Context(), a.Options); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(a.Folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "codermesh-agent-*.exe")); err != nil || len(left) != 1 {
		t.Errorf("the program is not among the temporary files: %q, %v", left, err)
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
