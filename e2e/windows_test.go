//go:build wine

package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const windowsTemplate = `terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "main" {
  os   = "windows"
  arch = "amd64"
}

resource "coder_external_agent" "main" {
  agent_id = coder_agent.main.id
}
`

// TestWindowsAgent runs the agent for Windows in Wine, against a server on this machine. `make test-windows` prepares
// both.
func TestWindowsAgent(t *testing.T) {
	t.Parallel()
	program := absolute(t, "../build/windows/coder.exe")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run `make test-windows`, which builds it", err)
	}
	d := startServer(t)
	template := filepath.Join(d.dir, "windows")
	if err := os.Mkdir(template, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(template, "main.tf"), []byte(windowsTemplate), 0o644); err != nil {
		t.Fatal(err)
	}
	d.coder("templates", "push", "windows", "-d", template, "-y")
	_, stop := startWindows(t, d, program, "lab")
	defer stop()
	log, stop := startWindows(t, d, program, "relayed", "WINE_WITHOUT_UDP=1")
	defer stop()

	for _, workspace := range []string{"lab", "relayed"} {
		if out := d.coder("ssh", workspace, "--", "cmd /c ver"); !strings.Contains(out, "Microsoft Windows") {
			t.Errorf("%s: ver: %q", workspace, out)
		}
		if _, _, err := d.try("ssh", workspace, "--", "exit 7"); status(err) != 7 {
			t.Errorf("%s: exit 7: %v", workspace, err)
		}
	}
	testwait.Until(t, "the path is direct", func() error {
		return testwait.Contains(d.coder("ping", "lab", "-n", "1"), " p2p via ")
	})
	if out := d.coder("ping", "relayed", "-n", "2"); strings.Contains(out, "p2p") {
		t.Errorf("there is a direct path without UDP: %s", out)
	}
	const warning = "cannot open UDP sockets, all connections take the relay"
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), warning) {
		t.Errorf("the agent without UDP logs %s, %v", text, err)
	}
	t.Run("sftp", func(t *testing.T) { windowsFiles(t, d) })
	t.Run("forward", func(t *testing.T) { windowsForward(t, d) })
	t.Run("terminal", func(t *testing.T) { windowsTerminal(t, d) })
}

// startWindows makes a workspace and runs its agent in Wine. It returns the name of the agent's log, and what deletes
// the workspace.
func startWindows(t *testing.T, d *deployment, program, workspace string, env ...string) (logFile string, stop func()) {
	t.Helper()
	d.coder("create", workspace, "-t", "windows", "-y")
	var credentials struct {
		Token string `json:"agent_token"`
	}
	instructions := d.coder("external-workspaces", "agent-instructions", workspace, "-o", "json")
	if err := json.Unmarshal([]byte(instructions), &credentials); err != nil || credentials.Token == "" {
		t.Fatalf("%s: %v", instructions, err)
	}
	log, err := os.Create(filepath.Join(d.dir, workspace+"-agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	agent := exec.Command(absolute(t, "../scripts/wine/run"), program, "agent")
	agent.Env = append(os.Environ(), env...)
	agent.Env = append(agent.Env, "CODER_AGENT_URL="+d.url(), "CODER_AGENT_TOKEN="+credentials.Token, `SHELL=C:\console\cmd.exe`)
	agent.Dir, agent.Stdout, agent.Stderr = d.dir, log, log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	return log.Name(), func() {
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("log of the agent of %s: %s (%v)", workspace, text, err)
		}
		if _, stderr, err := d.try("delete", workspace, "-y"); err != nil {
			_ = agent.Process.Kill()
			t.Errorf("delete %s: %v\n%s", workspace, err, stderr)
		}
		testwait.For(t, "the agent ends with its workspace", ended)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// windowsFiles copies a file there and back, by the paths that Windows' drives have in sftp.
func windowsFiles(t *testing.T, d *deployment) {
	text := make([]byte, 300_000)
	if _, err := rand.Read(text); err != nil {
		t.Fatal(err)
	}
	sent, received := filepath.Join(d.dir, "sent"), filepath.Join(d.dir, "received")
	if err := os.WriteFile(sent, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sftp := exec.CommandContext(t.Context(), "sftp", "-F", "/dev/null", "-b", "-", "-o", "ProxyCommand="+slim+" ssh --stdio lab",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "lab")
	sftp.Env, sftp.Dir = d.env("admin"), d.dir
	sftp.Stdin = strings.NewReader(fmt.Sprintf("put %s %[3]s\nget %[3]s %[2]s\nrm %[3]s\n", sent, received, "/C:/windows-agent-test"))
	if out, err := sftp.CombinedOutput(); err != nil {
		t.Fatalf("sftp: %v\n%s", err, out)
	}
	if got, err := os.ReadFile(received); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes came back, %v; want the %d that were sent", len(got), err, len(text))
	}
}

// windowsForward opens a port of the agent's machine: Wine's loopback addresses are those of the system below it.
func windowsForward(t *testing.T, d *deployment) {
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "through Wine") }
	web := httptest.NewServer(http.HandlerFunc(answer))
	defer web.Close()
	_, port, _ := strings.Cut(web.Listener.Addr().String(), ":")
	local := freePort()
	forward := d.command(t.Context(), "port-forward", "lab", "--tcp", local+":"+port)
	var log bytes.Buffer
	forward.Stdout, forward.Stderr = &log, &log
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	testwait.Until(t, "the port answers", func() error {
		resp, err := http.Get("http://127.0.0.1:" + local)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		return testwait.Equal(string(text), "through Wine")
	})
}

// windowsTerminal types into cmd.exe on a pseudo console of the terminal's size. The console outlives a resize: Wine 8
// has none.
func windowsTerminal(t *testing.T, d *deployment) {
	c := newConsole(t, d.command(t.Context(), "ssh", "lab"))
	c.expect(`C:\users\`) // the prompt: until the session begins, this terminal ends lines with \n
	c.say(`C:\console\size.exe` + "\r")
	c.expect("size 30 90")
	if err := pty.Setsize(c.ptmx, &pty.Winsize{Rows: 41, Cols: 133}); err != nil {
		t.Fatal(err)
	}
	c.say("set /a 50+3\r")
	c.expect("53")
	c.say("exit 3\r")
	if err := c.cmd.Wait(); status(err) != 3 {
		t.Errorf("the shell ended with %v, want status 3", err)
	}
}
