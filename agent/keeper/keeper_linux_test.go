package keeper_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/keeper"
	"github.com/codermesh/codermesh/v2/agent/terminal"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const dirEnv = "KEEPER_TEST_DIR"

// TestMain runs the keeper, or its agent, in the processes that tests start.
func TestMain(m *testing.M) {
	dir := os.Getenv(dirEnv)
	switch {
	case dir == "":
		os.Exit(m.Run())
	case keeper.IsChild():
		os.Exit(agent(dir))
	}
	token, err := keeper.Token()
	if err == nil && token == "" {
		err = keeper.Scrub(secret.Token(os.Getenv("CODER_AGENT_TOKEN")))
	}
	code := 0
	if err == nil {
		code, err = keeper.Run(keeper.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Token: token})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 99
	}
	os.Exit(code)
}

// agent passes connections to the keeper, reports what it knows, and ends on signals.
func agent(dir string) int {
	child, err := keeper.Attach()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	stops := make(chan os.Signal, 1) // the test's way to stop the workspace
	signal.Notify(stops, syscall.SIGUSR2)
	socket := filepath.Join(dir, strconv.Itoa(os.Getpid())+".sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			held, err := child.Dial()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				conn.Close()
				continue
			}
			go netio.Pipe(conn, held)
		}
	}()
	token := child.Token().Reveal()
	if keeper.Returning() {
		token += "-returning"
	}
	fmt.Printf("agent %d %s %s\n", os.Getpid(), token, socket)
	select {
	case <-child.Lost():
		fmt.Println("lost")
		return 0
	case s := <-signals:
		if s == syscall.SIGUSR1 {
			return keeper.RestartCode
		}
		code, _ := strconv.Atoi(os.Getenv("KEEPER_TEST_CODE"))
		return code
	case <-stops:
		if err := child.SetToken("next"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return keeper.StoppedCode
	}
}

// kept is a keeper with its agent.
type kept struct {
	t   *testing.T
	cmd *exec.Cmd
	out io.Reader

	pid    int // of the agent
	socket string
}

func keep(t *testing.T, env ...string) *kept {
	t.Helper()
	dir, err := os.MkdirTemp("", "k") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &kept{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0])}
	k.cmd.Env = append(os.Environ(), append(env, dirEnv+"="+dir, "CODER_AGENT_TOKEN=s3cret", "GOTRACEBACK=none")...)
	k.cmd.Stderr = os.Stderr
	if k.out, err = k.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.cmd.Process.Kill(); _ = k.cmd.Wait() })
	k.next()
	return k
}

// next waits until the next agent runs.
func (k *kept) next() { k.nextWith("s3cret") }

func (k *kept) nextWith(want string) {
	k.t.Helper()
	var token string
	if _, err := fmt.Fscanf(k.out, "agent %d %s %s\n", &k.pid, &token, &k.socket); err != nil || token != want {
		k.t.Fatalf("no agent: token %q, want %q, %v", token, want, err)
	}
}

// terminal types something into a shell, and waits until the shell shows a text.
func (k *kept) terminal(id uuid.UUID, typed, want string) {
	k.t.Helper()
	conn, err := net.Dial("unix", k.socket)
	if err != nil {
		k.t.Fatal(err)
	}
	defer conn.Close()
	err = ptywire.WriteJSON(conn, ptywire.Open, terminal.Start{
		Request: ptywire.Request{ID: id}, Path: "/bin/sh", Args: []string{"sh"}, Env: []string{"PS1=", "PATH=" + os.Getenv("PATH")}, Directory: "/",
	})
	if err == nil {
		err = ptywire.Message{Data: typed}.Forward(conn)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	var shown []byte
	for !strings.Contains(string(shown), want) {
		kind, payload, err := ptywire.Read(conn)
		if err != nil || kind != ptywire.Output {
			k.t.Fatalf("wait for %q: %c %s, %v; shown %q", want, kind, payload, err, shown)
		}
		shown = append(shown, payload...)
	}
}

func (k *kept) ends(want int) {
	k.t.Helper()
	err := k.cmd.Wait()
	if got := k.cmd.ProcessState.ExitCode(); got != want {
		k.t.Errorf("the keeper ended with %d (%v), want %d", got, err, want)
	}
}

// TestWorkspaceStops checks that a stop ends every terminal, and that another agent then waits, with the token that it was given, until a signal
// ends it.
func TestWorkspaceStops(t *testing.T) {
	t.Parallel()
	k := keep(t)
	id := uuid.New()
	k.terminal(id, "x=mine; echo $((1+1))\n", "2\r\n")
	for range 2 {
		if err := syscall.Kill(k.pid, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		k.nextWith("next-returning")
		k.terminal(id, "echo [$x] $((1+2)); x=mine\n", "[] 3\r\n")
	}
	if err := k.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.ends(0)
}

// TestShellsOutliveTheAgent: the agent is killed and restarted, and the shell survives. The shell ends with the workspace.
func TestShellsOutliveTheAgent(t *testing.T) {
	t.Parallel()
	k := keep(t)
	id := uuid.New()
	k.terminal(id, "x=mine; echo shell $$ $((1+1))\n", " 2\r\n")
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGUSR1, syscall.SIGABRT} {
		before := k.pid
		target := before
		if sig == syscall.SIGUSR1 {
			target = k.cmd.Process.Pid // people see the keeper's process, so they signal it
		}
		if err := syscall.Kill(target, sig); err != nil {
			t.Fatal(err)
		}
		k.next()
		if k.pid == before {
			t.Fatal("the agent is the same")
		}
		k.terminal(id, fmt.Sprintf("echo $x $((%d+40))\n", i), fmt.Sprintf("mine %d\r\n", i+40))
	}
	// No process of the workspace sees the token, and no environment contains it.
	for _, pid := range []int{k.pid, k.cmd.Process.Pid} {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || bytes.Contains(environ, []byte("s3cret")) {
			t.Errorf("environment of %d has the token, or cannot be read: %v", pid, err)
		}
	}
	if err := syscall.Kill(k.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	k.ends(0)
}

func TestEnds(t *testing.T) {
	t.Parallel()
	k := keep(t, "KEEPER_TEST_CODE=7")
	if err := syscall.Kill(k.pid, syscall.SIGTERM); err != nil { // the agent ends by choice, as after a refusal
		t.Fatal(err)
	}
	k.ends(7)

	k = keep(t) // the keeper is lost, and the agent notices
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var word string
	if _, err := fmt.Fscanln(k.out, &word); err != nil || word != "lost" {
		t.Errorf("the agent said %q, %v", word, err)
	}
}

// TestOrphans checks that the keeper reaps orphans, so that none stays a zombie.
func TestOrphans(t *testing.T) {
	t.Parallel()
	k := keep(t)
	file := filepath.Join(t.TempDir(), "pid")
	k.terminal(uuid.New(), "(sh -c 'echo $$ >"+file+"' &); while [ ! -s "+file+" ]; do :; done; while [ -d /proc/$(cat "+file+") ]; do :; done; echo bur''ied\n", "buried")
}

// TestFirstProcess checks that a keeper also works as the first process of a PID namespace.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), dirEnv+"="+dir, "CODER_AGENT_TOKEN=s3cret", "KEEPER_TEST_CODE=3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("no PID namespace here: %v", err)
	}
	var pid int
	var token, socket string
	if _, err := fmt.Fscanf(out, "agent %d %s %s\n", &pid, &token, &socket); err != nil || pid == 1 {
		t.Fatalf("agent %d, %v", pid, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("status %d, want 3", got)
	}
}

// TestVictims checks that when memory runs out, the kernel kills the user's programs first, if the agent may change the scores.
func TestVictims(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("lowering a score needs root")
	}
	k := keep(t)
	score := func(pid int) int {
		t.Helper()
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	own := score(os.Getpid())
	file := filepath.Join(t.TempDir(), "score")
	deadline := time.Now().Add(time.Minute)
	for {
		k.terminal(uuid.New(), "cat /proc/$$/oom_score_adj >"+file+"; echo do''ne\n", "done")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var shell int
		if err := json.Unmarshal(bytes.TrimSpace(data), &shell); err != nil {
			t.Fatal(err)
		}
		if shell == min(own+100, 1000) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the shell's score is %d, want %d", shell, own+100)
		}
	}
	for _, pid := range []int{k.pid, k.cmd.Process.Pid} {
		if got := score(pid); got > -800 && got != own {
			t.Errorf("score of %d: %d, want -800 or, without the privilege, %d", pid, got, own)
		}
	}
}
