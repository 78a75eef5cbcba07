package testport_test

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testport"
)

// The child process of TestOthersAreLeft prints the ports that it gets.
const child = "TESTPORT_CHILD"

// many are so many ports that two processes that do not reserve theirs choose some in common: a dozen on average. Other tests on this machine need
// some, too, and get none of these until both processes have ended.
const many = 400

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		for range many {
			os.Stdout.WriteString(strconv.Itoa(testport.Free()) + "\n")
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // keeps them until the parent closes its end
		return
	}
	os.Exit(m.Run())
}

// TestOthersAreLeft: neither a port that has a listener, nor one that another process has got, is given.
func TestOthersAreLeft(t *testing.T) {
	t.Parallel()
	given := map[int]string{}
	l, err := net.Listen("tcp", testport.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	given[l.Addr().(*net.TCPAddr).Port] = "a listener"
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), child+"=yes")
	other.Stderr = t.Output()
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait() //nolint:errcheck // it ends when its input does
	defer stdin.Close()
	var text strings.Builder
	for buffer := make([]byte, 1<<16); strings.Count(text.String(), "\n") < many; {
		n, err := stdout.Read(buffer)
		if err != nil {
			t.Fatalf("the other process: %v after %q", err, text.String())
		}
		text.Write(buffer[:n])
	}
	for line := range strings.Lines(text.String()) {
		port, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if by := given[port]; by != "" {
			t.Errorf("the other process got %d, which belongs to %s", port, by)
		}
		given[port] = "the other process"
	}
	for range many {
		port := testport.Free()
		if by := given[port]; by != "" {
			t.Errorf("got %d, which belongs to %s", port, by)
		}
		given[port] = "this process"
	}
}

// TestDashboardSharesReservations: the dashboard's tests reserve ports by the same addresses, and get none that was given here.
func TestDashboardSharesReservations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../site/e2e/server.ts")
	if err != nil {
		t.Fatal(err)
	}
	_, expression, _ := strings.Cut(string(text), "lockAddress = (port: number) => ")
	expression, _, _ = strings.Cut(expression, ";\n")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("requires node, with which the dashboard's tests run")
	}
	port := testport.Free()
	script := "const port = " + strconv.Itoa(port) + "; const l = require('net').createServer();" +
		"l.once('error', (e) => { console.log(e.code); process.exit(); });" +
		"l.listen({ path: " + expression + " }, () => { console.log('reserved'); process.exit(); });"
	out, err := exec.CommandContext(t.Context(), node, "-e", script).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "EADDRINUSE" {
		t.Errorf("the dashboard's tests reserve a port that is taken: %s, %v, by %s", got, err, expression)
	}
}

// TestListenersAreSeen: a port is not free while a program listens at it, at whichever address.
func TestListenersAreSeen(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "[::1]", "0.0.0.0", "[::]", "127.0.0.2"} {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if testport.IsFree(port) {
			t.Errorf("a port with a listener at %s is free", host)
		}
		l.Close()
	}
	if !testport.IsFree(testport.Free()) {
		t.Error("a free port is not")
	}
}

// TestBesideNewProcesses: a port that was given can be listened at, although other goroutines start processes, which have
// all that is open here until they execute their programs.
func TestBesideNewProcesses(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	var starting sync.WaitGroup
	defer starting.Wait()
	defer close(ended)
	for range 2 {
		starting.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := exec.CommandContext(t.Context(), "/bin/true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 50 { // others on this machine need ports, too
		l, err := net.Listen("tcp", testport.Addr())
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// TestRange: ports in a row can be listened at, and are not among those that the system gives to connections.
func TestRange(t *testing.T) {
	t.Parallel()
	base := testport.Range(3)
	for port := base; port < base+3; port++ {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if chosen := l.Addr().(*net.TCPAddr).Port; chosen <= base+3 {
		t.Errorf("the system chose %d, below %d", chosen, base)
	}
}
