package e2e_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

const (
	machineID = "i-0123456789abcdef0"

	machineTemplate = `terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  auth = "aws-instance-identity"
}

resource "terraform_data" "machine" {
  input = coder_agent.main.init_script
}

resource "coder_agent_instance" "main" {
  agent_id    = coder_agent.main.id
  instance_id = "` + machineID + `"
}
`
)

// newAWS returns a metadata service as a machine of AWS has one, and the certificate of its region.
func newAWS(t *testing.T) (service *httptest.Server, certificate string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	region := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, region, region, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate = filepath.Join(t.TempDir(), "aws.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	document := fmt.Sprintf(`{"accountId":"123456789012","instanceId":%q,"pendingTime":"2026-01-01T00:00:00Z"}`, machineID)
	sum := sha256.Sum256([]byte(document))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	const session = "session"
	answers := map[string]string{
		"PUT /latest/api/token":                           session,
		"GET /latest/dynamic/instance-identity/document":  document,
		"GET /latest/dynamic/instance-identity/signature": base64.StdEncoding.EncodeToString(signature),
	}
	service = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, found := answers[r.Method+" "+r.URL.Path]
		switch {
		case !found:
			http.NotFound(w, r)
		case r.Method == http.MethodPut && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "",
			r.Method == http.MethodGet && r.Header.Get("X-aws-ec2-metadata-token") != session:
			http.Error(w, "version 1 is off", http.StatusUnauthorized)
		default:
			_, _ = io.WriteString(w, answer)
		}
	}))
	t.Cleanup(service.Close)
	return service, certificate
}

// cloudMachine is an agent's process on a machine of a cloud.
type cloudMachine struct {
	t   *testing.T
	cmd *exec.Cmd
	log string
	end func()
}

// boot starts the agent of the machine whose disk is a folder, as its start script would.
func (d *deployment) boot(metadata, disk string) *cloudMachine {
	d.t.Helper()
	home := filepath.Join(d.dir, disk)
	if err := os.MkdirAll(home, 0o700); err != nil {
		d.t.Fatal(err)
	}
	log, err := os.OpenFile(home+".log", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(context.Background())
	m := &cloudMachine{t: d.t, log: log.Name()}
	m.cmd = exec.CommandContext(ctx, coder, "agent", "--state-dir", filepath.Join(home, "state"))
	m.cmd.Env = append(d.env(disk), "HOME="+home, "CODER_AGENT_URL="+d.url()+"/", "CODER_AGENT_AUTH=aws-instance-identity", "AWS_EC2_METADATA_SERVICE_ENDPOINT="+metadata)
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = home, log, log
	m.cmd.Cancel = func() error { return m.cmd.Process.Signal(syscall.SIGTERM) }
	if err := m.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := false
	m.end = func() {
		if !ended {
			ended = true
			cancel()
			_ = m.cmd.Wait() // our signal ends it
		}
	}
	d.t.Cleanup(func() {
		m.end()
		if d.t.Failed() {
			d.t.Logf("log of %s:\n%s", disk, m.text())
		}
	})
	return m
}

func (m *cloudMachine) text() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		m.t.Error(err)
	}
	return string(text)
}

// says waits until the agent has logged something.
func (m *cloudMachine) says(want string) {
	m.t.Helper()
	testwait.Until(m.t, "the machine says "+want, func() error { return testwait.Contains(m.text(), want) })
}

// TestMachineOfACloud follows a machine that has no token through its workspace's life, beside a program that asks the cloud for the same document.
func TestMachineOfACloud(t *testing.T) {
	t.Parallel()
	aws, certificate := newAWS(t)
	d := startServer(t, "--aws-identity-ca-file", certificate)
	d.push("cloud", machineTemplate)
	vm := d.boot(aws.URL, "vm")
	vm.says("No running workspace has the machine " + machineID)
	d.coder("create", "dev", "-t", "cloud", "-y", "--no-wait")
	vm.says("the server has admitted this machine")
	works := func() {
		t.Helper()
		if out := d.coder("ssh", "dev", "--", "echo hello"); strings.TrimSpace(out) != "hello" {
			t.Errorf("got %q", out)
		}
	}
	works()
	thief := d.boot(aws.URL, "thief")
	thief.says("was admitted already since its workspace started")
	if out := d.coder("ssh", "dev", "--", "env"); strings.Contains(out, "CODER_AGENT_TOKEN=") {
		t.Error("there is a token in the environment")
	}
	d.refusesForgeries()

	// The machine restarts with its disk, and without a new admission.
	vm.end()
	vm = d.boot(aws.URL, "vm")
	testwait.Until(t, "the agent is back", d.agentIs("dev", "connected"))
	works()
	if strings.Contains(vm.text(), "admitted") {
		t.Errorf("the machine was admitted again:\n%s", vm.text())
	}

	// The workspace stops, and the machine waits for the next start.
	d.coder("stop", "dev", "-y")
	late := d.boot(aws.URL, "late")
	late.says("No running workspace has the machine")
	late.end()
	vm.end()
	thief.end() // the first one after a start is admitted
	d.coder("start", "dev", "-y", "--no-wait")
	vm = d.boot(aws.URL, "vm")
	vm.says("the server has refused the token of this machine")
	vm.says("the server has admitted this machine")
	works()
	if strings.Contains(thief.text(), "the server has admitted") {
		t.Errorf("the thief was admitted:\n%s", thief.text())
	}
}

// refusesForgeries checks that what no cloud has signed gets no token.
func (d *deployment) refusesForgeries() {
	d.t.Helper()
	for body, want := range map[string]int{
		`{"document":"{\"accountId\":\"123456789012\",\"instanceId\":\"` + machineID + `\",\"pendingTime\":\"2026-01-01T00:00:00Z\"}","signature":"AAAA"}`: http.StatusUnauthorized,
		`{"document":"{}","signature":"AAAA"}`: http.StatusBadRequest,
	} {
		resp, err := http.Post(d.url()+"/api/v2/workspaceagents/aws-instance-identity", "application/json", strings.NewReader(body))
		if err != nil {
			d.t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			d.t.Errorf("%s: %s", body, resp.Status)
		}
	}
}
