package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/coderd/database/dbtest"
)

// TestServerRefusesToStart: a server with settings that cannot work says what to do in one sentence, ends with 1, and loses nothing.
func TestServerRefusesToStart(t *testing.T) {
	t.Parallel()
	d := prepare(t, "--provisioner-daemons=0", "--stun-address=off")
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	write := func(name, text string) string {
		path := filepath.Join(d.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	garbage := write("garbage.pem", "garbage")
	badKey := filepath.Dir(write("badkey/state-encryption.key", "short"))
	noFolder := filepath.Dir(write("nofolder/postgres", "a file"))
	unknown := write("unknown.yaml", "networking:\n  accesURL: https://coder.example.com\n")
	other := filepath.Join(d.dir, "other")
	for name, tt := range map[string]struct {
		args []string
		want []string // parts of the message
	}{
		"taken HTTP address":      {[]string{"--http-address", taken.Addr().String(), "--global-config", other}, []string{"is used by another program", "choose another address with --http-address"}},
		"taken metrics address":   {[]string{"--prometheus-enable", "--prometheus-address", taken.Addr().String(), "--global-config", other}, []string{"is used by another program", "choose another address with --prometheus-address"}},
		"certificate without key": {[]string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", garbage, "--global-config", other}, []string{"1 --tls-cert-file need as many --tls-key-file, not 0"}},
		"bad certificate":         {[]string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", garbage, "--tls-key-file", garbage, "--global-config", other}, []string{"cannot use the certificate", "garbage.pem"}},
		"missing certificate":     {[]string{"--tls-address", "127.0.0.1:0", "--tls-cert-file", "none.pem", "--tls-key-file", "none.pem", "--global-config", other}, []string{"none.pem: no such file"}},
		"wrong access URL":        {[]string{"--access-url", "coder.example.com", "--global-config", other}, []string{"must start with http:// or https://", "https://coder.example.com"}},
		"wrong PostgreSQL URL":    {[]string{"--postgres-url", "mysql://coder@127.0.0.1/coder", "--global-config", other}, []string{"must look like postgres://"}},
		"bad key":                 {[]string{"--global-config", badKey}, []string{"state-encryption.key", "openssl rand -base64 32"}},
		"file for a folder":       {[]string{"--global-config", noFolder}, []string{"nofolder/postgres cannot be used", "make it writable, or choose another with --global-config"}},
		"read-only folder":        {[]string{"--global-config", "/proc/codermesh"}, []string{"cannot be used", "choose another with --global-config"}},
		"same folder":             {nil, []string{"another server, process", "--global-config"}},
		"old PostgreSQL":          {[]string{"--postgres-url", dbtest.OldPostgres(t), "--global-config", other}, []string{"PostgreSQL 9.6 is not supported: version 13 or newer is required", "upgrade it"}},
		"unknown key":             {[]string{"--config", unknown, "--global-config", other}, []string{"unknown.yaml:2: unknown key networking.accesURL: did you mean networking.accessURL?"}},
		"missing file":            {[]string{"--config", "none.yaml", "--global-config", other}, []string{"--config: cannot read the file: open none.yaml"}},
		"several mistakes":        {[]string{"--session-duration=x", "--provisioner-daemons=-1", "--tls-min-version=tls10", "--tls-enable", "--replica-url=x", "--global-config", other}, []string{"4 settings cannot be used", "--session-duration:", "--provisioner-daemons cannot be -1", "--tls-min-version cannot be", "replica URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, d, tt.args, tt.want...)
		})
	}
	if !d.healthy() {
		t.Errorf("the server that was running is not healthy\n%s", d.logText())
	}
}

// wantRefusal starts another server, and checks that it ends with one sentence and a hint that contain these parts.
func wantRefusal(t *testing.T, d *deployment, args []string, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	defer cancel()
	cmd := exec.CommandContext(ctx, coder, append([]string{"server", "--http-address=127.0.0.1:0", "--provisioner-daemons=0", "--stun-address=off"}, args...)...)
	cmd.Env, cmd.Dir = append(d.env("admin"), "CODER_ACCESS_URL="), d.dir
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("got %v, want exit code 1\n%s", err, out.String())
	}
	_, message, found := strings.Cut("\n"+out.String(), "\nerror: ")
	if lines := strings.Split(strings.TrimSpace(message), "\n"); !found || len(lines) != 2 || !strings.HasPrefix(lines[1], "Try: ") {
		t.Errorf("got %q, want one sentence and a hint", out.String())
	}
	for _, part := range want {
		if !strings.Contains(strings.ToLower(message), strings.ToLower(part)) {
			t.Errorf("got %q, want %q in it", message, part)
		}
	}
}

// TestServerRefusesDisks checks a server whose configuration folder is on a disk that is full or read-only.
func TestServerRefusesDisks(t *testing.T) {
	t.Parallel()
	asRoot(t)
	d := prepare(t)
	for name, tt := range map[string]struct {
		options string
		flags   uintptr
		want    []string
	}{
		"full":      {"size=8m,mode=755", 0, []string{"the disk that holds", "is full"}},
		"read-only": {"size=8m,mode=755", syscall.MS_RDONLY, []string{"cannot be used", "read-only file system", "choose another with --global-config"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := filepath.Join(d.dir, name)
			if err := os.Mkdir(config, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("e2e", config, "tmpfs", tt.flags, tt.options); errors.Is(err, syscall.EPERM) {
				t.Skip("this machine does not let root mount")
			} else if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := syscall.Unmount(config, syscall.MNT_DETACH); err != nil {
					t.Errorf("unmount: %v", err)
				}
			}()
			wantRefusal(t, d, []string{"--global-config", config}, tt.want...)
		})
	}
}
