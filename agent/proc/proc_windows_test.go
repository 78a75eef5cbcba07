package proc_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/winetest"
)

func TestEnvIgnoresCase(t *testing.T) {
	t.Parallel()
	env := proc.NewEnv([]string{"Path=a", "TEMP=t", `=C:=C:\x`})
	env.Set("PATH", env.Expand("$path;b"))
	env.Default("temp", "other")
	if diff := cmp.Diff([]string{"PATH=a;b", "TEMP=t"}, env.List()); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if !proc.Internal("coder_agent_token") || proc.AcceptEnv("Coder_Agent_Token", "x") {
		t.Error("another spelling of the agent's own variable is accepted")
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	user, env := proc.User{Home: `C:\Users\ann`}, proc.NewEnv([]string{`WORK=D:\w`})
	for in, want := range map[string]string{
		"": `C:\Users\ann`, "~": `C:\Users\ann`, "~/x": `C:\Users\ann\x`, `~\x`: `C:\Users\ann\x`, "x/../y": `C:\Users\ann\y`,
		`$WORK\a`: `D:\w\a`, "D:/a/b": `D:\a\b`,
	} {
		if got := user.Directory(in, env); got != want {
			t.Errorf("directory %q: got %q, want %q", in, got, want)
		}
	}
}

func TestCurrentUser(t *testing.T) {
	t.Parallel()
	u := proc.CurrentUser()
	if u.Name == "" || !filepath.IsAbs(u.Home) || !filepath.IsAbs(u.Shell) {
		t.Errorf("current user: %+v", u)
	}
}

// TestConsole talks with a shell on a pseudo console.
func TestConsole(t *testing.T) {
	t.Parallel()
	console, err := proc.NewConsole(123, 45)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	p, err := proc.Start(proc.Spec{Path: winetest.Shell(), Args: []string{winetest.Shell()}, Dir: winetest.TempDir(t), Env: os.Environ(), Console: console})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := io.WriteString(console.In, "echo typed-%OS%\r"); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	for buf := make([]byte, 4096); !strings.Contains(seen.String(), "typed-Windows_NT"); {
		n, err := console.Out.Read(buf)
		if err != nil {
			t.Fatalf("after %q: %v", seen.String(), err)
		}
		seen.Write(buf[:n])
	}
	if _, err := io.WriteString(console.In, "exit 5\r"); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 5 {
		t.Errorf("exit status %d, want 5", code)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		console.End()
	}()
	if _, err := io.Copy(io.Discard, console.Out); err != nil {
		t.Errorf("the rest of the output: %v", err)
	}
	<-ended
	if err := console.Resize(80, 24); !errors.Is(err, os.ErrClosed) {
		t.Errorf("resize after the end: %v", err)
	}
}

// TestConsoleHangsUp ends a shell that was not told to end.
func TestConsoleHangsUp(t *testing.T) {
	t.Parallel()
	console, err := proc.NewConsole(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start(proc.Spec{Path: winetest.Shell(), Args: []string{winetest.Shell()}, Dir: winetest.TempDir(t), Env: os.Environ(), Console: console})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	console.HangUp()
	console.Close()
	if err := p.Kill(137); err != nil {
		t.Error(err)
	}
	p.Wait()
}
