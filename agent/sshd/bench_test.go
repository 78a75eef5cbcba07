//go:build linux

package sshd_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// BenchmarkExec runs one command on an open connection.
func BenchmarkExec(b *testing.B) {
	client := start(b, nil).dial(b)
	for b.Loop() {
		session, err := client.NewSession()
		if err != nil {
			b.Fatal(err)
		}
		if err := session.Run("true"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnect opens a connection and runs one command. The client is not OpenSSH's, which on a kernel TCP connection
// waits for two delayed acknowledgements that do not exist behind a ProxyCommand.
func BenchmarkConnect(b *testing.B) {
	h := start(b, nil)
	for b.Loop() {
		client := h.dial(b)
		session, err := client.NewSession()
		if err != nil {
			b.Fatal(err)
		}
		if err := session.Run("true"); err != nil {
			b.Fatal(err)
		}
		client.Close()
	}
}

const bulk = 256 << 20

// BenchmarkDownload moves bytes from the workspace to an OpenSSH client.
func BenchmarkDownload(b *testing.B) {
	h := start(b, nil)
	b.SetBytes(bulk)
	for b.Loop() {
		if err := h.ssh(b.Context(), nil, "head -c 268435456 /dev/zero").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUpload moves bytes from an OpenSSH client to the workspace.
func BenchmarkUpload(b *testing.B) {
	h := start(b, nil)
	b.SetBytes(bulk)
	for b.Loop() {
		cmd := h.ssh(b.Context(), nil, "cat >/dev/null")
		cmd.Stdin = io.LimitReader(zeros{}, bulk)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// BenchmarkSFTP moves a file of 1 GiB with OpenSSH's sftp, to the workspace and from it.
func BenchmarkSFTP(b *testing.B) {
	h := start(b, nil)
	file := filepath.Join(h.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Truncate(file, 1<<30); err != nil {
		b.Fatal(err)
	}
	for _, command := range []string{"put", "get"} {
		b.Run(command, func(b *testing.B) {
			b.SetBytes(1 << 30)
			for b.Loop() {
				cmd := exec.CommandContext(b.Context(), "sftp", append(h.options(), "-b", "-", "127.0.0.1")...)
				cmd.Stdin = strings.NewReader(command + " " + file + " /dev/null\n")
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}
