package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// shell is a deployment with the workspace dev and OpenSSH configured for it.
type shell struct {
	*deployment
	config string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	s := &shell{d, filepath.Join(d.dir, "ssh_config")}
	d.coder("config-ssh", "-y", "--ssh-config-file", s.config, "--hostname-suffix", "coder")
	return s
}

// client returns a command that runs one of OpenSSH's programs without prompts.
func (s *shell) client(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append([]string{"-F", s.config, "-o", "BatchMode=yes"}, args...)...)
	cmd.Env, cmd.Dir = s.env("admin"), s.dir
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// ssh runs a command in the workspace.
func (s *shell) ssh(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, err := output(s.client(t.Context(), "ssh", append([]string{"coder.dev"}, args...)...))
	if err != nil {
		t.Fatalf("ssh %v: %v\n%s%s", args, err, out, stderr)
	}
	return out
}

func output(cmd *exec.Cmd) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func status(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// TestSSHConformance does what people do over SSH, with their clients and with ours, in one workspace.
func TestSSHConformance(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	for name, test := range map[string]func(*testing.T, *shell){
		"names": sshNames, "status": sshStatus, "early end": sshEarlyEnd, "environment": sshEnvironment, "terminal": sshTerminal, "escape": sshEscape, "reconnect": sshReconnect,
		"rsync": sshRsync, "git": sshGit, "git key": sshGitKey, "forwards": sshForwards, "agent": sshAgent, "x11": sshX11,
		"host key": sshHostKey, "IDE": sshIDE, "our forwards": ourForwards, "other clients": sshOthers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

func sshNames(t *testing.T, s *shell) {
	for _, host := range []string{"coder.dev", "dev.coder", "coder.ada--dev", "coder.dev.main", "ada--dev--main.coder"} {
		if out, stderr, err := output(s.client(t.Context(), "ssh", host, "echo $CODER_WORKSPACE_NAME")); err != nil || out != "dev\n" {
			t.Errorf("ssh %s: got %q (%v), %s", host, out, err, stderr)
		}
	}
}

func sshStatus(t *testing.T, s *shell) {
	for _, code := range []int{0, 1, 2, 126, 127, 128, 254, 255} {
		command := "exit " + strconv.Itoa(code)
		if _, _, err := output(s.client(t.Context(), "ssh", "coder.dev", command)); status(err) != code {
			t.Errorf("ssh %s: status %d", command, status(err))
		}
		if _, _, err := s.try("ssh", "dev", "--", command); status(err) != code {
			t.Errorf("coder ssh %s: status %d", command, status(err))
		}
	}
	for signal, code := range map[string]int{"KILL": 137, "TERM": 143, "HUP": 129, "SEGV": 139} {
		command := "kill -" + signal + " $$; sleep 10"
		if _, _, err := output(s.client(t.Context(), "ssh", "coder.dev", command)); status(err) != code {
			t.Errorf("ssh %s: status %d, want %d", command, status(err), code)
		}
		if _, _, err := s.try("ssh", "dev", "--", command); status(err) != code {
			t.Errorf("coder ssh %s: status %d, want %d", command, status(err), code)
		}
	}
}

// sshEarlyEnd ends the reader of a program's output, as "| head -1" does. The clients then end, and the program does.
func sshEarlyEnd(t *testing.T, s *shell) {
	ours := exec.CommandContext(t.Context(), coder, "ssh", "dev", "--", "yes")
	ours.Env, ours.Dir = s.env("admin"), s.dir
	for name, cmd := range map[string]*exec.Cmd{
		"ssh":       s.client(t.Context(), "ssh", "coder.dev", "yes; echo ended $? >ended-ssh"),
		"coder ssh": ours,
	} {
		in, inErr := cmd.StdinPipe() // OpenSSH would leave once its input ends
		out, outErr := cmd.StdoutPipe()
		if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "y\n" {
			t.Errorf("%s: got %q, %v", name, line, err)
		}
		out.Close()
		_ = cmd.Wait() // its status depends on the moment
		in.Close()
	}
	if out, stderr, err := output(s.client(t.Context(), "ssh", "coder.dev", "cat ended-ssh")); out != "ended 141\n" {
		t.Errorf("the program ended with %q, %v\n%s", out, err, stderr)
	}
}

func sshEnvironment(t *testing.T, s *shell) {
	const show = `printf '%s|' "$FOO" "$CODER" "$CODER_WORKSPACE_NAME" "$CODER_WORKSPACE_OWNER_NAME" "$CODER_AGENT_TOKEN" "$CODER_SESSION_TOKEN"; [ "$PWD" = "$HOME" ] && echo home`
	const want = "a b|true|dev|ada|||home\n"
	out, stderr, err := output(s.client(t.Context(), "ssh", "-o", `SetEnv=FOO="a b"`, "coder.dev", show))
	if err != nil || out != want {
		t.Errorf("ssh SetEnv: got %q (%v), want %q\n%s", out, err, want, stderr)
	}
	if out, stderr, err := s.try("ssh", "-e", "FOO=a b", "dev", "--", show); err != nil || out != want {
		t.Errorf("coder ssh -e: got %q (%v), want %q\n%s", out, err, want, stderr)
	}
}

// console is a program on a terminal of its own.
type console struct {
	t    *testing.T
	cmd  *exec.Cmd
	ptmx *os.File
	out  *bufio.Reader
	seen strings.Builder // since the last text that was expected
	all  strings.Builder
}

func newConsole(t *testing.T, cmd *exec.Cmd) *console {
	t.Helper()
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	ptmx, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 90})
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, cmd: cmd, ptmx: ptmx, out: bufio.NewReader(ptmx)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended, as it should have
		_ = cmd.Wait()
		ptmx.Close()
	})
	return c
}

func (c *console) say(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.ptmx, text); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads until text has arrived.
func (c *console) expect(text string) {
	c.t.Helper()
	// A terminal does not support deadlines, but it ends with its program.
	defer time.AfterFunc(settle, func() { _ = c.cmd.Process.Kill() }).Stop()
	for !strings.Contains(c.seen.String(), text) {
		b, err := c.out.ReadByte()
		if err != nil {
			c.t.Fatalf("wait for %q: %v; got %q", text, err, c.seen.String())
		}
		c.seen.WriteByte(b)
		c.all.WriteByte(b)
	}
	c.seen.Reset()
}

// terminals returns both commands that start a shell on a terminal.
func (s *shell) terminals(ctx context.Context) map[string]*exec.Cmd {
	return map[string]*exec.Cmd{"ssh": s.client(ctx, "ssh", "-t", "coder.dev"), "coder ssh": s.command(ctx, "ssh", "dev")}
}

// sshTerminal checks that a login shell on a terminal of the right size, type and home receives resizes and Ctrl-C.
func sshTerminal(t *testing.T, s *shell) {
	for name, cmd := range s.terminals(t.Context()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t, cmd)
			c.say("stty size; echo $TERM, $(shopt -p login_shell), $([ $PWD = $HOME ] && echo at home)\r")
			c.expect("30 90")
			c.expect("xterm-256color, shopt -s login_shell, at home")
			if err := pty.Setsize(c.ptmx, &pty.Winsize{Rows: 41, Cols: 133}); err != nil {
				t.Fatal(err)
			}
			c.say("until [ \"$(stty size)\" = '41 133' ]; do sleep 0.02; done; echo resi''zed\r")
			c.expect("resized")
			c.say("sh -c 'trap \"echo inter\\rupted; exit\" INT; echo rea\\dy; while :; do sleep 0.05; done'\r")
			c.expect("ready")
			c.say("\x03")
			c.expect("interrupted")
			c.say("exit 3\r")
			if err := c.cmd.Wait(); status(err) != 3 {
				t.Errorf("the shell ended with %v, want status 3", err)
			}
		})
	}
}

// sshEscape checks that "~." leaves a session that does not answer.
func sshEscape(t *testing.T, s *shell) {
	for name, cmd := range s.terminals(t.Context()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newConsole(t, cmd)
			c.say("stty -isig; echo rea''dy; exec sleep 1000\r")
			c.expect("ready")
			c.say("\r~.")
			if err := c.cmd.Wait(); status(err) != 255 {
				t.Errorf("ended with %v, want status 255", err)
			}
		})
	}
}

// sshReconnect: a named shell continues after its user leaves it with "~."; the name brings it back with its output.
func sshReconnect(t *testing.T, s *shell) {
	c := newConsole(t, s.command(t.Context(), "ssh", "--reconnect", "work", "dev"))
	c.say("stty size; kept=this-very-shell; echo rea''dy\r")
	c.expect("30 90")
	c.expect("ready")
	c.say("\r~.")
	c.expect("The terminal keeps running. Reattach: coder ssh --reconnect work dev")
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("left with %v, want no error", err)
	}
	other := newConsole(t, s.command(t.Context(), "ssh", "--reconnect", "other", "dev"))
	other.say("echo \"other: '$kept'\"; exit 4\r")
	other.expect("other: ''")
	if err := other.cmd.Wait(); status(err) != 4 {
		t.Errorf("ended with %v, want status 4", err)
	}
	c = newConsole(t, s.command(t.Context(), "ssh", "--reconnect", "work", "dev"))
	c.expect("ready")
	c.say("echo back: $kept; exit\r")
	c.expect("back: this-very-shell")
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("ended with %v, want no error", err)
	}
}

func sshRsync(t *testing.T, s *shell) {
	dir := t.TempDir()
	from, back := filepath.Join(dir, "from"), filepath.Join(dir, "back")
	for name, size := range map[string]int{"a": 0, "deep/er/b": 3 << 20, "with space": 17} {
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(size), 0, 255}, size/3+1), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("deep/er/b", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	shell := "ssh -F " + s.config + " -o BatchMode=yes"
	remote := "coder.dev:" + strings.ReplaceAll(t.Name(), "/", "-") + "/" // others may sync to the same home folder at the same time
	for _, way := range [][2]string{{from + "/", remote}, {remote, back + "/"}} {
		cmd := exec.CommandContext(t.Context(), "rsync", "-rlptz", "--delete", "-e", shell, way[0], way[1])
		cmd.Env = s.env("admin")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("rsync %v: %v\n%s", way, err, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "diff", "-r", from, back).CombinedOutput(); err != nil {
		t.Errorf("what came back differs: %v\n%s", err, out)
	}
}

// sshGit checks that Git clones a repository in the workspace and pushes to it over SSH.
func sshGit(t *testing.T, s *shell) {
	s.ssh(t, "git init -q --bare -b main project.git")
	clone := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(s.env("admin"), "GIT_SSH_COMMAND=ssh -F "+s.config+" -o BatchMode=yes", "GIT_AUTHOR_NAME=ada", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=ada", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("clone", "-q", "coder.dev:project.git", clone)
	if err := os.WriteFile(filepath.Join(clone, "file"), []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("-C", clone, "add", "file")
	git("-C", clone, "commit", "-q", "-m", "first")
	git("-C", clone, "push", "-q", "origin", "HEAD:main")
	if got, want := s.ssh(t, "git -C project.git rev-parse main"), git("-C", clone, "rev-parse", "HEAD"); got != want {
		t.Errorf("the workspace has %s, want %s", got, want)
	}
}

// sshGitKey checks that Git in the workspace signs in at a git host with its owner's key, which is not in any of the workspace's
// files.
func sshGitKey(t *testing.T, s *shell) {
	var key sdk.GitSSHKey
	s.get("/api/v2/users/me/gitsshkey", &key)
	host := gitHost(t, key.PublicKey)
	command := `GIT_SSH_COMMAND="$GIT_SSH_COMMAND -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null" git ls-remote ssh://git@` + host + `/project.git`
	if out := s.ssh(t, command); !strings.Contains(out, "refs/heads/main") {
		t.Errorf("ls-remote: got %q", out)
	}
	// With a forwarded agent, both its keys and the owner's are available.
	agent := exec.CommandContext(t.Context(), "ssh-agent", "ssh", "-A", "-F", s.config, "-o", "BatchMode=yes", "coder.dev", command)
	agent.Env = s.env("admin")
	if out, stderr, err := output(agent); err != nil || !strings.Contains(out, "refs/heads/main") {
		t.Errorf("ls-remote with a forwarded agent: got %q (%v)\n%s", out, err, stderr)
	}
	stranger := gitHost(t, s.ssh(t, "ssh-keygen -q -t ed25519 -N '' -f other >/dev/null && cat other.pub"))
	_, stderr, err := output(s.client(t.Context(), "ssh", "coder.dev", strings.ReplaceAll(command, host, stranger)))
	if err == nil || !strings.Contains(stderr, key.PublicKey) {
		t.Errorf("a host that does not know the key: %v, %q; want an error that shows the key", err, stderr)
	}
}

// gitHost runs a git host that accepts one key and has one branch.
func gitHost(t *testing.T, authorized string) (addr string) {
	t.Helper()
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(authorized))
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), want.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(newSigner(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveSSH(l, config, func(channel ssh.Channel, _ string) {
		const ref = "0123456789012345678901234567890123456789 refs/heads/main\x00\n"
		_, _ = fmt.Fprintf(channel, "%04x%s0000", len(ref)+4, ref)
		_, _ = io.CopyN(io.Discard, channel, 4) // the client's flush
	})
	return l.Addr().String()
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// serveSSH calls run for every command that a client of l requests, until l is closed.
func serveSSH(l net.Listener, config *ssh.ServerConfig, run func(channel ssh.Channel, command string)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return // refused, or the client left
			}
			go ssh.DiscardRequests(requests)
			for newChannel := range channels {
				channel, requests, err := newChannel.Accept()
				if err != nil {
					return
				}
				for req := range requests {
					_ = req.Reply(req.Type == "exec" || req.Type == "env", nil)
					if req.Type != "exec" {
						continue
					}
					var payload struct{ Command string }
					_ = ssh.Unmarshal(req.Payload, &payload)
					run(channel, payload.Command)
					_, _ = channel.SendRequest("exit-status", false, make([]byte, 4))
					channel.Close()
				}
			}
		}()
	}
}

// sshIDE does what IDEs do: it uses our program as the ProxyCommand of its own configuration.
func sshIDE(t *testing.T, s *shell) {
	facts := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", fmt.Sprintf("ProxyCommand=%s --global-config %s ssh --stdio --usage-app=vscode --network-info-dir %s --network-info-interval 100ms --log-dir %s -v --disable-direct-connections --ssh-host-prefix coder-vscode.host-- %%h",
			coder, filepath.Join(s.dir, "config-admin"), facts, facts), "coder-vscode.host--ada--dev.main", "cat")
	cmd.Env = s.env("admin")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the network's facts are written", func() error {
		var seen []string
		files, _ := filepath.Glob(filepath.Join(facts, "[0-9]*.json"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			var info struct {
				P2P     bool               `json:"p2p"`
				Home    string             `json:"preferred_derp"`
				Latency map[string]float64 `json:"derp_latency"`
			}
			if err != nil || json.Unmarshal(text, &info) != nil {
				seen = append(seen, fmt.Sprintf("%s (%v)", text, err))
				continue
			}
			// Toolbox looks up the latency of the relay that is named, and fails without it.
			if info.P2P || info.Latency[info.Home] <= 0 {
				t.Errorf("network information: %s, want a relayed path and the latency of its relay", text)
			}
			return nil
		}
		return fmt.Errorf("files: %q", seen)
	})
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("ssh: %v", err)
	}
	if logs, _ := filepath.Glob(filepath.Join(facts, "*.log")); len(logs) == 0 {
		t.Error("no log was written")
	}
}

// sshHostKey checks that the host key is this machine's, one for all workspaces, and verified without a prompt.
func sshHostKey(t *testing.T, s *shell) {
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "/dev/null") || !strings.Contains(string(text), "StrictHostKeyChecking yes") {
		t.Errorf("the configuration checks no keys:\n%s", text)
	}
	s.coder("create", "rebuilt", "-t", "process", "-y")
	key := func(host string) string {
		t.Helper()
		_, stderr, err := output(s.client(t.Context(), "ssh", "-v", "-o", "LogLevel=VERBOSE", host, "true"))
		if err != nil {
			t.Fatalf("ssh: %v\n%s", err, stderr)
		}
		for line := range strings.Lines(stderr) {
			if _, fingerprint, ok := strings.Cut(line, "Server host key: ssh-ed25519 "); ok {
				return strings.TrimSpace(fingerprint)
			}
		}
		t.Fatalf("ssh does not say which key it saw:\n%s", stderr)
		return ""
	}
	// In earlier releases, the workspace had a key of its own.
	dir := filepath.Join(s.dir, "config-admin")
	known := filepath.Join(dir, "ssh_known_hosts")
	old := "coder.rebuilt,[coder.rebuilt]:* " + string(ssh.MarshalAuthorizedKey(newSigner(t).PublicKey()))
	f, err := os.OpenFile(known, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(old); err != nil {
		t.Fatal(err)
	}
	f.Close()
	before := key("coder.rebuilt")
	// Nothing in the workspace determines the key.
	s.coder("ssh", "rebuilt", "--", "rm -rf ~/.local ~/.cache")
	s.coder("restart", "rebuilt", "-y")
	if after := key("coder.rebuilt"); after != before {
		t.Errorf("after a rebuild the key is %s, before it was %s", after, before)
	}
	if other := key("coder.dev"); other != before {
		t.Errorf("the workspace dev has the key %s, rebuilt has %s; want this machine's", other, before)
	}
	if info, err := os.Stat(filepath.Join(dir, "ssh_host_ed25519_key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v; want mode 0600", info, err)
	}
}
