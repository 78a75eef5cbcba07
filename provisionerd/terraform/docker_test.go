package terraform_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// startDocker starts a Docker engine of the test's own and returns its socket. It runs no containers, so it needs no network.
func startDocker(t *testing.T) (socket string) {
	t.Helper()
	program, err := exec.LookPath("dockerd")
	if err != nil {
		t.Fatalf("%v: run scripts/test-prerequisites", err)
	}
	dir, err := os.MkdirTemp("/tmp", "cmdocker") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "docker.sock")
	cmd := exec.Command(program, "--host=unix://"+socket, "--data-root="+dir+"/data", "--exec-root="+dir+"/exec", "--pidfile="+dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--storage-driver=vfs")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop dockerd: %v", err)
		}
		<-ended // it ends its containerd first
		log.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	testwait.Until(t, "dockerd answers", func() error {
		resp, err := client.Get("http://docker/_ping")
		if err == nil {
			resp.Body.Close()
			return nil
		}
		text, _ := os.ReadFile(log.Name())
		select {
		case <-ended:
			t.Fatalf("dockerd ended:\n%s", text)
		default:
		}
		return fmt.Errorf("%w\n%s", err, text)
	})
	return socket
}

// mirrorProvider writes a CLI configuration whose mirror has providers, such as example/docker or hashicorp/aws@6.25.0: the test's own program,
// which is the coder provider or a stand-in.
func mirrorProvider(t *testing.T, sources ...string) (config string) {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "cmmirror")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	// Layout: <mirror>/<host>/<namespace>/<type>/<version>/<os>_<arch>/terraform-provider-<type>_v<version>
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "program")
	if out, err := exec.CommandContext(t.Context(), "cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("copy provider: %v\n%s", err, out)
	}
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		for _, source := range sources {
			source, version, given := strings.Cut(source, "@")
			if !given {
				version = "1.2.3"
			}
			dir := filepath.Join(base, "mirror", registry, source, version, runtime.GOOS+"_"+runtime.GOARCH)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(program, filepath.Join(dir, pluginMark+filepath.Base(source)+"_v"+version)); err != nil {
				t.Fatal(err)
			}
		}
	}
	config = filepath.Join(base, "terraformrc")
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", filepath.Join(base, "mirror"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil { // an operator's configuration may hold credentials
		t.Fatal(err)
	}
	return config
}

// TestDocker checks that a job whose template uses a provider named docker talks to a real Docker engine, with its own account and in its
// sandbox. A job of another template on the same provisioner does not reach it.
func TestDocker(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a Docker engine, and give its socket to jobs with accounts of their own")
	}
	socket := startDocker(t)
	t.Setenv("TF_CLI_CONFIG_FILE", mirrorProvider(t, "example/docker"))
	e := newExecutor(t, func(o *terraform.Options) { o.DockerSocket = socket })
	if !strings.Contains(e.Isolation(), "an account per job") {
		t.Fatalf("isolation is %s", e.Isolation())
	}
	const script = `
[ "$(id -u)" != 0 ] && grep -q 'NoNewPrivs:.1' /proc/self/status && echo "CONFINED"
curl -sS --max-time 10 --unix-socket "$SOCKET" http://docker/version && echo && echo "REACHED <version>"
curl -sS --max-time 10 --unix-socket "$SOCKET" http://docker/containers/json && echo && echo "REACHED <containers>"
echo END
`
	for name, c := range map[string]struct {
		providers string
		reaches   bool
	}{
		"a provider named docker":            {`docker = { source = "example/docker" }`, true},
		"a provider named docker, otherwise": {`engine = { source = "example/docker" }`, true},
		"no such provider":                   {``, false},
	} {
		template := map[string]string{"script.sh": script, "main.tf": fmt.Sprintf(`
terraform {
  required_providers {
    coder = { source = "coder/coder" }
    %s
  }
}
resource "terraform_data" "docker" {
  provisioner "local-exec" {
    command     = "bash ./script.sh"
    environment = { SOCKET = %q }
  }
}
`, c.providers, socket)}
		j := newTrial(t, template)
		result := j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})
		log := j.sink.text()
		if result.GetError() != "" || !strings.Contains(log, "CONFINED") || !strings.Contains(log, "END") {
			t.Errorf("%s: %s\n%s", name, result.GetError(), log)
			continue
		}
		version := strings.Contains(log, `"ApiVersion"`) && strings.Contains(log, "REACHED <version>")
		if containers := strings.Contains(log, "REACHED <containers>"); version != c.reaches || containers != c.reaches {
			t.Errorf("%s: reaches version %v and containers %v, want %v\n%s", name, version, containers, c.reaches, log)
		}
	}
}
