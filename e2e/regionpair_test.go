package e2e_test

import (
	"bytes"
	"fmt"
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
	regionServes = `msg="connected to the servers"`
	regionWaits  = "one process serves a region, others wait until it leads to them"
)

// regionPair is a region that two processes serve, behind a load balancer that leads to the second one while the first
// one does not answer.
type regionPair struct {
	t    *testing.T
	at   string // its access URL
	logs [2]string
	run  [2]func() (kill func())
	kill [2]func()
}

// regionPair runs a region of two processes, on this machine, with the configuration of docs/regions.md.
func (d *deployment) regionPair(name, program string) *regionPair {
	d.t.Helper()
	port := freePort()
	p := &regionPair{t: d.t, at: "http://localhost:" + port}
	token := strings.TrimSpace(d.coder("wsproxy", "create", name))
	var servers []string
	for i := range p.run {
		at := "127.0.0.1:" + freePort()
		servers = append(servers, at)
		process := &regionProxy{d: d, at: p.at, token: token, log: fmt.Sprintf("%s-%d.log", name, i), args: []string{
			"wsproxy", "server", "--primary-access-url", d.url(), "--access-url", p.at, "--http-address", at,
			"--stun-address", "off", "--proxy-trusted-origins", "127.0.0.1/32",
		}}
		p.logs[i], p.run[i] = filepath.Join(d.dir, process.log), process.start
	}
	dir := filepath.Join(d.dir, name+"-"+program)
	config := documented(d.t, "regions", program, "127.0.0.1:"+port, "192.0.2.2", servers...)
	runFront(d.t, exec.Command(program, frontArgs(d.t, dir, program, config)...))
	p.begin()
	return p
}

// begin starts the first process, which serves the region, and then the second one, which waits.
func (p *regionPair) begin() {
	p.t.Helper()
	for i, says := range []string{regionServes, regionWaits} {
		p.kill[i] = p.run[i]()
		p.says(i, says, 1)
	}
}

// says waits until a process has logged a text n times.
func (p *regionPair) says(process int, text string, n int) {
	p.t.Helper()
	testwait.Until(p.t, fmt.Sprintf("process %d of the region logs %q", process, text), func() error {
		log, err := os.ReadFile(p.logs[process])
		got := bytes.Count(log, []byte(text))
		return testwait.Unless(err == nil && got >= n, "%d times, want %d; %v", got, n, err)
	})
}

// runFront runs a load balancer until the test ends.
func runFront(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // HAProxy reports the signal
		if t.Failed() {
			t.Logf("%s: %s", cmd.Path, &said)
		}
	})
}

// TestProcessOfRegionIsKilled kills the process of two that serves a region, behind HAProxy and behind nginx, while an
// app and a terminal are used there. Both go on at the other process, the terminal with its screen, and again when the
// first one is back.
func TestProcessOfRegionIsKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, "--provisioner-daemons=1")
	f.pushProcess()
	f.coder("create", "dev", "-t", "process", "-y")
	testwait.Until(t, "the agent is connected", f.agentIs("dev", "connected"))
	port := f.echoApp()
	for i, program := range []string{"haproxy", "nginx"} {
		name := fmt.Sprint("eu", i)
		p := f.regionPair(name, program)
		terminal, app := f.regionTerminalPage(p.at, "dev"), f.regionAppPage(p.at, "dev", port)
		app.what += " behind " + program
		during := func(what string, change func()) {
			t.Helper()
			changed := time.Now()
			change()
			terminal.lives(strings.ReplaceAll(what, " ", "-"))
			t.Logf("%s, %s: the terminal went on after %s", program, what, time.Since(changed))
			t.Logf("%s, %s: the app was silent for %s", program, what, app.lives(what))
		}
		during("the first process is killed", p.kill[0])
		p.says(1, regionServes, 1)
		testwait.Until(t, "the region is well", func() error {
			list := f.coder("wsproxy", "ls")
			return testwait.Unless(strings.Contains(lineOf(list, name), " ok"), "the regions:\n%s", list)
		})
		during("the first process is back", func() {
			p.kill[0] = p.run[0]()
			p.says(0, regionServes, 2)
		})
		app.end(false)
	}
}

// lineOf returns the line of a table that begins with a name.
func lineOf(table, name string) string {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == name {
			return line
		}
	}
	return ""
}
