package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

// listeners maps each listening TCP address of this machine to the processes that hold it, as `ss -ltnp` prints them.
func listeners(t *testing.T) map[string][]int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ss", "-Hltnp").Output()
	if err != nil {
		t.Fatalf("ss: %v", err)
	}
	found := map[string][]int{}
	pids := regexp.MustCompile(`pid=(\d+)`)
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 4 {
			continue
		}
		for _, m := range pids.FindAllStringSubmatch(scan.Text(), -1) {
			pid, _ := strconv.Atoi(m[1])
			found[fields[3]] = append(found[fields[3]], pid)
		}
	}
	return found
}

// TestNoListenerServesRPC: no listener of a running server, provisioner or agent serves RPC, which exists only on mesh
// addresses, and these are not sockets of this machine.
func TestNoListenerServesRPC(t *testing.T) {
	t.Parallel()
	const psk = "a-pre-shared-key-for-this-test"
	d := deploy(t, "--provisioner-daemon-psk", psk)
	d.coder("create", "dev", "-t", "process", "-y")
	d.coder("ssh", "dev", "--", "true")

	provisioner := d.command(t.Context(), "provisionerd", "start", "--name", "outside", "--psk", psk)
	if err := provisioner.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { provisioner.Process.Kill(); provisioner.Wait() }()
	testwait.Until(t, "the external provisioner is online", func() error {
		var daemons []struct {
			Name   string `json:"name"`
			Status string `json:"status"`
		}
		d.get("/api/v2/organizations/default/provisionerdaemons", &daemons)
		for _, daemon := range daemons {
			if daemon.Name == "outside" && daemon.Status != "offline" {
				return nil
			}
		}
		return fmt.Errorf("provisioners: %+v", daemons)
	})

	agents := d.agents()
	if len(agents) != 1 {
		t.Fatalf("agents: got %v, want one", agents)
	}
	served := 0
	for addr, pids := range listeners(t) {
		switch {
		case slices.Contains(pids, agents[0]):
			t.Errorf("the agent listens on %s", addr)
		case slices.Contains(pids, provisioner.Process.Pid):
			t.Errorf("the provisioner listens on %s", addr)
		case slices.Contains(pids, d.cmd.Process.Pid):
			t.Logf("the server listens on %s", addr)
			served++
			for _, path := range []string{
				agentpbconnect.AgentServiceConnectProcedure, provisionerpbconnect.ProvisionerServiceSessionProcedure, provisionerpbconnect.ProvisionerServiceSourceProcedure,
			} {
				refused(t, addr, path)
			}
		}
	}
	if served == 0 {
		t.Error("ss shows no listener of the server")
	}
}

// refused fails the test unless an RPC request to addr, over HTTP/1.1 and over unencrypted HTTP/2, is answered as an unknown
// path, as a dashboard page, which does not accept POST, or not at all.
func refused(t *testing.T, addr, path string) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!http2)
		protocols.SetUnencryptedHTTP2(http2)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols, DisableKeepAlives: true}, Timeout: 5 * time.Second}
		resp, err := client.Post("http://"+addr+path, "application/proto", strings.NewReader(""))
		if err != nil {
			continue // does not even speak this protocol
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		page := resp.StatusCode == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "GET, HEAD"
		if resp.StatusCode != http.StatusNotFound && !page {
			t.Errorf("POST http://%s%s (http2 %v): got %s %q, want that there is nothing", addr, path, http2, resp.Status, body)
		}
	}
}
