package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// paramikoClient is what a program that uses paramiko does with a workspace. It forwards the agent of its environment.
const paramikoClient = `import sys, paramiko
key, proxy, command = sys.argv[1:4]
t = paramiko.Transport(paramiko.ProxyCommand(proxy))
t.start_client(timeout=60)
assert t.get_remote_server_key().get_base64() == key, "another host key"
t.auth_none("ada")
if command == "sftp":
    sftp = t.open_sftp_client()
    sftp.put(sys.argv[4], "paramiko-up")
    sftp.rename("paramiko-up", "paramiko-moved")
    sftp.symlink("paramiko-moved", "paramiko-link")
    assert sftp.readlink("paramiko-link") == "paramiko-moved"
    sftp.get("paramiko-link", sys.argv[5])
    sys.exit(0)
c = t.open_session()
if command == "early":
    c.exec_command("echo $$ >pid-paramiko; exec yes")
    assert c.recv(2) == b"y\n"
    c.close()
    c = t.open_session()
    c.exec_command("while kill -0 $(cat pid-paramiko) 2>/dev/null; do sleep 0.05; done; echo ended")
else:
    forwarded = paramiko.agent.AgentRequestHandler(c)
    c.exec_command(command)
c.shutdown_write()
out, err = c.makefile("rb").read(), c.makefile_stderr("rb").read()
sys.stdout.buffer.write(out)
sys.stderr.buffer.write(err)
status = c.recv_exit_status()
t.close()
sys.exit(status)
`

// other is an SSH client that is not OpenSSH's.
type other struct {
	exec  []string // and the command to run
	agent []string // the same with the user's agent forwarded
}

// others returns the other clients, which reach the workspace through coder ssh --stdio and know the host key.
func (s *shell) others(t *testing.T) (map[string]other, ssh.PublicKey) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "known_hosts")
	if _, stderr, err := output(s.client(t.Context(), "ssh", "-o", "UserKnownHostsFile="+file, "-o", "KnownHostsCommand=none", "-o", "StrictHostKeyChecking=accept-new", "coder.dev", "true")); err != nil {
		t.Fatalf("ssh: %v\n%s", err, stderr)
	}
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, _, key, _, _, err := ssh.ParseKnownHosts(known)
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(s.dir, "client.py")
	if err := os.WriteFile(python, []byte(paramikoClient), 0o600); err != nil {
		t.Fatal(err)
	}
	// dbclient knows hosts from a file in the home folder only.
	home := filepath.Join(s.dir, "home-dropbear")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if err := os.WriteFile(filepath.Join(home, ".ssh", "known_hosts"), []byte("dev "+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := coder + " ssh --stdio dev"
	dropbear := []string{"env", "HOME=" + home, "dbclient", "-T", "-J", proxy}
	plink := []string{"plink", "-batch", "-ssh", "-T", "-proxycmd", proxy, "-hostkey", ssh.FingerprintSHA256(key)}
	paramiko := []string{"/usr/bin/python3", python, strings.Fields(text)[1], proxy}
	return map[string]other{
		"plink":    {append(slices.Clone(plink), "ada@dev"), append(slices.Clone(plink), "-A", "ada@dev")},
		"paramiko": {paramiko, paramiko},
		"dbclient": {append(slices.Clone(dropbear), "ada@dev"), append(slices.Clone(dropbear), "-A", "ada@dev")},
	}, key
}

func (s *shell) other(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.Dir = s.env("admin"), s.dir
	return cmd
}

// size returns how many bytes a client writes into a file. Dropbear 2022.83 never leaves, with OpenSSH's server either, if the pipe that it
// writes to is full when the server closes the session.
func (s *shell) size(t *testing.T, args ...string) (size int64, stderr string, err error) {
	t.Helper()
	out, createErr := os.Create(filepath.Join(t.TempDir(), "out"))
	if createErr != nil {
		t.Fatal(createErr)
	}
	defer out.Close()
	var errs bytes.Buffer
	cmd := s.other(t, args...)
	cmd.Stdout, cmd.Stderr = out, &errs
	err = cmd.Run()
	info, statErr := out.Stat()
	if statErr != nil {
		t.Fatal(statErr)
	}
	return info.Size(), errs.String(), err
}

// sshOthers does with PuTTY, paramiko and Dropbear what is done with OpenSSH: run programs that succeed, fail and are killed, give them input,
// forward the agent, and copy files.
func sshOthers(t *testing.T, s *shell) {
	clients, hostKey := s.others(t)
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "laptop key", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(command string) (string, string, error) {
				return output(s.other(t, append(slices.Clone(client.exec), command)...))
			}
			if out, stderr, err := run("echo out $CODER_WORKSPACE_NAME; echo err >&2; exit 7"); out != "out dev\n" || !strings.Contains(stderr, "err") || status(err) != 7 {
				t.Errorf("a command: got %q (%v)\n%s", out, err, stderr)
			}
			if size, stderr, err := s.size(t, append(slices.Clone(client.exec), "head -c 3000000 /dev/zero")...); size != 3_000_000 || err != nil {
				t.Errorf("much output: got %d bytes (%v)\n%s", size, err, stderr)
			}
			if _, _, err := run("kill -KILL $$"); err == nil {
				t.Error("a killed command succeeds")
			}
			agent := append([]string{"ssh-agent", "sh", "-c", `ssh-add -q "$0" && "$@" "ssh-add -l"`, key}, client.agent...)
			if out, stderr, err := output(s.other(t, agent...)); err != nil || !strings.Contains(out, "laptop key") {
				t.Errorf("the user's agent: got %q (%v)\n%s", out, err, stderr)
			}
		})
	}
	t.Run("early end", func(t *testing.T) {
		t.Parallel()
		if out, stderr, err := output(s.other(t, append(slices.Clone(clients["paramiko"].exec), "early")...)); out != "ended\n" || err != nil {
			t.Errorf("paramiko: the program: %q (%v)\n%s", out, err, stderr)
		}
	})
	t.Run("sftp", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		content := strings.Repeat("a line of a file\n", 100_000)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		same := func(name string) {
			t.Helper()
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
				t.Errorf("%s: %d bytes came back, %v", name, len(got), err)
			}
		}
		psftp := s.other(t, "psftp", "-batch", "-proxycmd", coder+" ssh --stdio dev", "-hostkey", ssh.FingerprintSHA256(hostKey), "-b", "/dev/stdin", "ada@dev")
		psftp.Stdin = strings.NewReader("put " + file + " psftp-up\nmv psftp-up psftp-moved\nls\nget psftp-moved " + filepath.Join(dir, "psftp") + "\nrm psftp-moved\n")
		if out, stderr, err := output(psftp); err != nil || !strings.Contains(out, "psftp-moved") {
			t.Errorf("psftp: %v\n%s%s", err, out, stderr)
		}
		same("psftp")
		if _, stderr, err := output(s.other(t, append(slices.Clone(clients["paramiko"].exec), "sftp", file, filepath.Join(dir, "paramiko"))...)); err != nil {
			t.Errorf("paramiko: %v\n%s", err, stderr)
		}
		same("paramiko")
	})
	t.Run("terminal", func(t *testing.T) {
		t.Parallel()
		plink := clients["plink"].exec
		i := slices.Index(plink, "-T")
		c := newConsole(t, s.other(t, slices.Replace(slices.Clone(plink), i, i+1, "-t")...))
		c.say("tty >/dev/null && echo on a termi''nal; exit 3\r")
		c.expect("on a terminal")
		if err := c.cmd.Wait(); status(err) != 3 {
			t.Errorf("plink ended with %v, want status 3", err)
		}
	})
}
