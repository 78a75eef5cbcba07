package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestServerWithoutLinks runs the third of three servers in a network of its own. The others cannot reach it at its
// replica URL, but sessions through it work while it reaches them, direct and relayed. Once it cannot either, load balancers avoid it, it
// serves what it can, and a command that waits for a workspace says which servers cannot reach each other and goes on
// as soon as they do.
func TestServerWithoutLinks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	f := prepareFleet(t, 2, "--provisioner-daemons=1")
	near := l.near()
	for _, s := range f.servers {
		s.extra = append(s.extra, "CODER_HTTP_ADDRESS=0.0.0.0:"+s.port,
			"CODER_REPLICA_URL=http://"+net.JoinHostPort(near, s.port))
	}
	f.begin()
	f.front.pin("127.0.0.1:" + f.servers[0].port) // the agent's server
	f.pushProcess()
	f.coder("create", "dev", "-t", "process", "-y")
	testwait.Until(t, "the agent is connected", f.agentIs("dev", "connected"))

	alone := aloneServer(t, l, f)
	alone.coder("login", alone.url(), "--token", f.token)
	alone.reaches(t)

	var ports []string
	for _, s := range f.servers {
		ports = append(ports, s.port)
	}
	l.in("srv", "nft", fmt.Sprintf(`add table ip cut
add chain ip cut out { type filter hook output priority 0; }
add rule ip cut out tcp dport { %s } reject with tcp reset`, strings.Join(ports, ", ")))
	cut := time.Now()
	client, agent := alone.client(), uuid.MustParse(f.workspace("dev").agentID())
	testwait.Until(t, "the links end", func() error {
		c, err := client.AgentConnection(t.Context(), agent)
		return testwait.Unless(err == nil && c.UnreachableServer != uuid.Nil, "%+v, %v", c, err)
	})
	list, err := client.Replicas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, r := range list {
		ids[r.RelayAddress] = r.ID.String()[:8]
	}
	waiting, out, said := alone.waits(t)
	testwait.Until(t, "the command says which servers cannot reach each other", func() error {
		const reason = "the server %s, which answers this command, cannot reach the server %s, which the agent is connected to"
		return testwait.Contains(said(), fmt.Sprintf(reason,
			ids["http://127.0.0.1:1"], ids["http://"+net.JoinHostPort(near, f.servers[0].port)]))
	})
	t.Logf("a session that waits says why after %s", time.Since(cut))
	testwait.Until(t, "load balancers avoid the server", func() error {
		status, text := alone.status("/healthz")
		avoided := status == http.StatusServiceUnavailable && strings.Contains(text, "cut off")
		return testwait.Unless(avoided, "%d %s", status, text)
	})
	t.Logf("/healthz answers 503 after %s", time.Since(cut))
	for i, s := range f.servers {
		if err := s.healthy(); err != nil {
			t.Errorf("server %d, which has a link: %v", i, err)
		}
	}
	if out := alone.coder("list"); !strings.Contains(out, "dev") {
		t.Errorf("a list from the server without links: %q", out)
	}

	l.in("srv", "nft", "delete table ip cut")
	back := time.Now()
	if err := waiting.Wait(); err != nil || out.String() != "linked again\n" {
		t.Errorf("the session that waited: %v, %q\n%s", err, out.String(), said())
	}
	t.Logf("the session goes on after %s", time.Since(back))
	testwait.Until(t, "load balancers use the server", alone.healthy)
}

// aloneServer starts a server of a fleet in a network of its own. The others cannot reach it at its replica URL.
func aloneServer(t *testing.T, l *lab, f *fleet) *deployment {
	t.Helper()
	alone := &deployment{server: newServer(filepath.Join(f.dir, "alone")), t: t, token: f.token}
	alone.netns, alone.base = l.ns("srv"), "http://"+net.JoinHostPort(l.server, alone.port)
	alone.args = f.servers[0].args
	alone.extra = append(slices.Clone(f.servers[0].extra), "CODER_HTTP_ADDRESS=0.0.0.0:"+alone.port,
		"CODER_REPLICA_URL=http://127.0.0.1:1")
	t.Cleanup(func() {
		if err := alone.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of the server in its own network:\n%s", alone.logText())
		}
	})
	if err := alone.start(); err != nil {
		t.Fatal(err)
	}
	return alone
}

// reaches uses a workspace through a server that the others cannot reach, directly and relayed.
func (d *deployment) reaches(t *testing.T) {
	t.Helper()
	began := time.Now()
	if out := d.coder("ssh", "dev", "--", "echo linked"); out != "linked\n" {
		t.Errorf("a session through a server that the others cannot reach: got %q", out)
	}
	t.Logf("a session through a server that the others cannot reach: %s", time.Since(began))
	began = time.Now()
	if out := d.coder("ssh", "--disable-direct-connections", "dev", "--", "echo relayed"); out != "relayed\n" {
		t.Errorf("a relayed session through a server that the others cannot reach: got %q", out)
	}
	t.Logf("a relayed session through a server that the others cannot reach: %s", time.Since(began))
}

// waits runs a command whose session cannot be opened yet. It returns the command, its output, and what tells what it has said so far.
func (d *deployment) waits(t *testing.T) (waiting *exec.Cmd, out *strings.Builder, said func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
	t.Cleanup(cancel)
	waiting = d.command(ctx, "ssh", "dev", "--", "echo linked again")
	notes, err := os.Create(filepath.Join(d.dir, "notes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { notes.Close() })
	out = new(strings.Builder)
	waiting.Stdout, waiting.Stderr = out, notes
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	return waiting, out, func() string {
		text, err := os.ReadFile(notes.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}
