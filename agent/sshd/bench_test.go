//go:build linux

package sshd_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
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
