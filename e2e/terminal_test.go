package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// browser simulates a page that shows a terminal.
type browser struct {
	t     *testing.T
	ws    *websock.Conn
	shown []byte
}

// open requests a terminal as a browser does, and repeats the request while the agent is away.
func (d *deployment) open(agent, terminal uuid.UUID) *browser {
	d.t.Helper()
	target, err := url.Parse(d.url() + "/api/v2/workspaceagents/" + agent.String() + "/pty?height=30&width=90&reconnect=" + terminal.String())
	if err != nil {
		d.t.Fatal(err)
	}
	b := &browser{t: d.t}
	testwait.Until(d.t, "the terminal is open", func() error {
		b.ws, err = websock.Dial(d.t.Context(), target, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {d.token}}, ReadLimit: 1 << 20})
		return err
	})
	d.t.Cleanup(func() { b.ws.CloseNow() })
	return b
}

func (b *browser) types(text string) {
	b.t.Helper()
	if err := b.ws.WriteBinary(b.t.Context(), fmt.Appendf(nil, `{"data":%q}`, text)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) sees(text string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), settle)
	defer cancel()
	for !bytes.Contains(b.shown, []byte(text)) {
		data, err := b.ws.ReadAny(ctx)
		if err != nil {
			b.t.Fatalf("wait for %q: %v; shown %q", text, err, b.shown)
		}
		b.shown = append(b.shown, data...)
	}
}

// lost waits until the browser learns that the terminal's connection has ended.
func (b *browser) lost() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), settle)
	defer cancel()
	for {
		if _, err := b.ws.ReadAny(ctx); err != nil {
			if ctx.Err() != nil {
				b.t.Fatal("the browser never hears that the terminal is lost")
			}
			return
		}
	}
}

// TestTerminalOutlivesEverything checks that a shell survives when the page is reloaded, the agent is killed, or the server is killed.
func TestTerminalOutlivesEverything(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	agent := uuid.MustParse(d.workspace("dev").agentID())
	terminal := uuid.New()
	page := d.open(agent, terminal)
	page.types("kept=this-very-shell; stty size; env | grep -c TOKEN=.\r")
	page.sees("30 90")
	page.sees("\n0\r")
	page.ws.CloseNow()
	still := func(what string) *browser {
		t.Helper()
		page := d.open(agent, terminal)
		page.types("echo \"" + what + " $kept\"\r")
		page.sees(what + " this-very-shell")
		return page
	}
	page = still("reloaded")
	agents := d.agents()
	if len(agents) != 1 {
		t.Fatalf("agents: %v, want one", agents)
	}
	signal(t, agents[0], syscall.SIGKILL)
	killed := time.Now()
	page.lost()
	page = still("agent-killed")
	t.Logf("the terminal worked again %s after its agent was killed", time.Since(killed).Round(10*time.Millisecond))
	if err := d.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	page.lost()
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	page = still("server-killed")

	// Both pages show the same shell, and so does the command line.
	second := still("second-page")
	page.sees("second-page this-very-shell")
	second.types("exit 3\r")
	_, stderr, err := d.try("exp", "rpty", "dev", "exit 4")
	if err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("exp rpty: %v, want exit status 4\n%s", err, stderr)
	}
	testwait.Until(t, "the shell has ended", func() error {
		shown, err := page.ws.ReadAny(t.Context())
		closed, ok := errors.AsType[*websock.CloseError](err)
		if ok && (closed.Status != websock.StatusNormal || !strings.Contains(closed.Reason, "exit status 3")) {
			t.Errorf("end of the terminal: %v", closed)
		}
		return testwait.Unless(err != nil, "the terminal still shows %q", shown)
	})

	// Another user cannot even learn that the agent exists.
	stranger := d.member("eve")
	target, err := url.Parse(d.url() + "/api/v2/workspaceagents/" + agent.String() + "/pty?reconnect=" + terminal.String())
	if err != nil {
		t.Fatal(err)
	}
	if ws, err := websock.Dial(t.Context(), target, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {stranger}}}); err == nil {
		ws.CloseNow()
		t.Error("a stranger opened a terminal")
	}

	// A stopped workspace has no shell left.
	last := d.open(agent, uuid.New())
	last.types("echo $$ >$HOME/pid; echo wri''tten\r")
	last.sees("written")
	d.coder("stop", "dev", "-y")
	last.lost()
	testwait.Until(t, "no agent is left", d.runsAgents(0))
}

// TestInsideAWorkspace checks that programs of a workspace have the command line, the agent's socket, and ports that users can see.
func TestInsideAWorkspace(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	for _, run := range []struct{ command, want string }{
		{"coder stat cpu", " cores"},
		{"coder stat mem --host -o json", `"unit": "B"`},
		{"coder exp sync want ide clone && coder exp sync status ide", "waits for clone"},
		{"coder exp sync complete clone && coder exp sync start ide && coder exp sync status ide", "ide: started"},
		{"coder exp sync list", "clone: complete\nide: started"},
		{"coder exp sync list -o json", `"name": "ide"`},
	} {
		if out := d.coder("ssh", "dev", "--", run.command); !strings.Contains(out, run.want) {
			t.Errorf("%s: %q, want %q", run.command, out, run.want)
		}
	}
	// The agent that replaces a killed one knows the declared units.
	signal(t, d.agents()[0], syscall.SIGKILL)
	testwait.Until(t, "the next agent is there", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		out, stderr, err := output(d.command(ctx, "ssh", "dev", "--", "coder exp sync status ide"))
		return testwait.Unless(err == nil && strings.Contains(out, "ide: started"), "%s%s (%v)", out, stderr, err)
	})
	agent := d.workspace("dev").agentID()
	var ports sdk.ListeningPorts
	d.get("/api/v2/workspaceagents/"+agent+"/listening-ports", &ports)
	found := false
	for _, p := range ports.Ports {
		found = found || strings.HasSuffix(d.url(), fmt.Sprint(":", p.Port))
	}
	// The workspace shares the server's network. It lists the server's port only if it also shares its account.
	account, _, err := output(d.command(t.Context(), "ssh", "dev", "--", "id -u"))
	if same := strings.TrimSpace(account) == strconv.Itoa(os.Getuid()); err != nil || found != same {
		t.Errorf("as account %q (%v), the server's own port is listed: %v, in %v", account, err, found, ports.Ports)
	}
}
