// Package e2e_test drives the built binary as its users do: real PostgreSQL, real Terraform, real WireGuard, stock OpenSSH,
// several processes. The scripts in testdata are the transcripts; the first word of a line is one of these commands:
//
//	server start|stop|kill [NAME=VALUE…] [ARGS…]  the server of this script, its own PostgreSQL and folders
//	coder ARGS…                     the command line as the first user
//	as NAME ARGS…                   the command line as another user, signed in by `member`
//	member NAME                     creates the user NAME and signs it in
//	serve TEXT                      answers HTTP with TEXT on 127.0.0.1:$SERVED, as a program in the workspace would
//	exits CODE NAME ARGS…           the command line as NAME (admin: the first user) ends with that exit code
//	request STATUS FILE METHOD PATH [BODY]  an HTTP request with the token in FILE (-: none); its answer is standard output
//	keep VARIABLE MEMBER            keeps a member of the JSON object that the command before printed in a variable
//	sql STATEMENT                   changes the server's database, for what no command does
//	retry SECONDS COMMAND…          repeats a command until it succeeds, for events that take some time
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/rogpeppe/go-internal/testscript"
)

const (
	password = "Correct-Horse-9-Battery"
	// settle bounds every wait, never a measurement.
	settle = testwait.Patience
)

// coder is the built program, and slim the one for laptops and workspaces.
var coder, slim string

func TestMain(m *testing.M) {
	built, err := filepath.Abs("../build/coder")
	if err == nil {
		_, err = os.Stat(built)
	}
	if err == nil {
		_, err = os.Stat(built + "-slim")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build/coder or build/coder-slim is missing: run `make build` first, or `make e2e`")
		os.Exit(1)
	}
	coder, slim = built, built+"-slim"
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)*3/2)); err != nil { // tests wait for processes half of their time
		panic(err)
	}
	status := m.Run() // reads the command line, where -parallel wins
	if dir := prepared.dir; dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			srv := newServer(env.WorkDir)
			env.Values["server"] = srv
			env.Values["provider"] = &scriptProvider{t: env.T().(testing.TB)}
			env.Defer(func() {
				srv.cleanup()
				if t, ok := env.T().(interface{ Failed() bool }); ok && t.Failed() {
					keepLogs("TestScripts/"+filepath.Base(env.WorkDir), srv.dir)
				}
			})
			for _, kv := range srv.env("admin") {
				key, value, _ := strings.Cut(kv, "=")
				env.Setenv(key, value)
			}
			env.Setenv("CODER", coder)
			env.Setenv("PORT", srv.port)
			env.Setenv("PASSWORD", password)
			templates, err := filepath.Abs("testdata/templates")
			if err != nil {
				return err
			}
			env.Setenv("TEMPLATES", templates)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"server":     cmdServer,
			"request":    cmdRequest,
			"keep":       cmdKeep,
			"coder":      func(ts *testscript.TestScript, neg bool, args []string) { runAs(ts, neg, "admin", args) },
			"as":         func(ts *testscript.TestScript, neg bool, args []string) { runAs(ts, neg, args[0], args[1:]) },
			"member":     cmdMember,
			"serve":      cmdServe,
			"exits":      cmdExits,
			"retry":      cmdRetry,
			"mailserver": cmdMailServer,
			"sql":        cmdSQL,
			"provider":   cmdProvider,
		},
	})
}

// server is one `coder server` process with folders of its own.
type server struct {
	dir   string
	port  string
	args  []string
	extra []string     // more environment; overrides env's own variables
	netns string       // network namespace to run the server in; empty for the test's own
	web   *http.Client // asks whether it is healthy
	base  string       // its access URL, when it is not plain HTTP on port
	// account is the account of the server and its provisioners, and program the copy of coder that they run; see preparePlain.
	account *syscall.Credential
	program string
	cmd     *exec.Cmd
	log     *os.File
	done    chan error
}

// newServer does not limit how many servers run at once; only the number of parallel tests does. With a limit, a test with parallel
// parts could deadlock: it keeps its server while they wait for tests that wait for a server.
func newServer(dir string) *server {
	return &server{dir: dir, program: coder, port: freePort(), web: &http.Client{Timeout: 5 * time.Second}}
}

// freePort returns a port for a program that starts later.
func freePort() string { return strconv.Itoa(testport.Free()) }

func (s *server) url() string {
	if s.base != "" {
		return s.base
	}
	return "http://127.0.0.1:" + s.port
}

// env returns the whole environment of a process of the named user: it inherits only PATH.
func (s *server) env(user string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + filepath.Join(s.dir, "home-"+user),
		"CODER_CONFIG_DIR=" + filepath.Join(s.dir, "config-"+user),
		"CODER_CACHE_DIRECTORY=" + filepath.Join(s.dir, "cache"),
		"CODER_HTTP_ADDRESS=127.0.0.1:" + s.port,
		"CODER_ACCESS_URL=" + s.url(),
		"USER=root",
		"SHELL=/bin/sh",
		"LANG=C.UTF-8",
	}, s.extra...)
}

func (s *server) start() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "home-admin"), 0o700); err != nil {
		return err
	}
	if err := s.givePrepared(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s.log = log
	args := append([]string{s.program, "server"}, s.args...)
	if s.netns != "" {
		args = append([]string{"ip", "netns", "exec", s.netns}, args...)
	}
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Env, s.cmd.Dir = s.env("admin"), s.dir
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan error, 1)
	go func() { s.done <- s.cmd.Wait() }()
	for deadline := time.Now().Add(settle); ; {
		unhealthy := s.healthy()
		if unhealthy == nil {
			return nil
		}
		select {
		case err := <-s.done:
			s.cmd = nil
			return fmt.Errorf("server ended: %w\n%s", err, s.logText())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("server is not healthy after %s: %w\n%s", settle, unhealthy, s.logText())
		}
	}
}

// healthy checks that the server answers its liveness probe.
func (s *server) healthy() error {
	resp, err := s.web.Get(s.url() + "/healthz")
	if err != nil {
		return err
	}
	resp.Body.Close()
	return testwait.Unless(resp.StatusCode == http.StatusOK, "/healthz answers %s", resp.Status)
}

func (s *server) logText() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	if len(text) > 8000 {
		text = text[len(text)-8000:]
	}
	return string(text)
}

// end signals the server and waits for its end.
func (s *server) end(sig syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	defer s.log.Close()
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case err := <-s.done:
		s.cmd = nil
		if sig == syscall.SIGTERM && err != nil {
			return fmt.Errorf("server ended with %w\n%s", err, s.logText())
		}
		return nil
	case <-time.After(settle):
		return fmt.Errorf("server did not end within %s of %s\n%s", settle, sig, s.logText())
	}
}

// cleanup ends the server and every process related to it: agents outlive their server by design. It also removes their programs, in
// folders of their own below /tmp, and their workspaces' folders.
func (s *server) cleanup() {
	if err := s.end(syscall.SIGTERM); err != nil {
		fmt.Fprintln(os.Stderr, "e2e cleanup:", err)
	}
	groups := map[string]bool{}
	// A keeper starts its agent again in the moment before it ends too, so one look is not enough.
	for deadline := time.Now().Add(settle); ; time.Sleep(time.Millisecond) {
		var left []int
		s.eachProcess(func(p *os.Process, environ string) {
			left = append(left, p.Pid)
			for _, dir := range workspaceGroups(p.Pid) {
				groups[dir] = true
			}
			program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.Pid))
			if p.Kill() != nil {
				return // it has already exited
			}
			if err == nil && strings.HasPrefix(filepath.Base(filepath.Dir(program)), "coder.") {
				os.RemoveAll(filepath.Dir(program))
			}
			for variable := range strings.SplitSeq(environ, "\x00") {
				if home, ok := strings.CutPrefix(variable, "HOME="); ok && strings.Contains(home, "/codermesh/workspaces/") {
					os.RemoveAll(filepath.Dir(home))
				}
			}
		})
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "e2e cleanup: these processes do not end:", left)
			break
		}
	}
	for dir := range groups {
		if err := removeGroup(dir); err != nil {
			fmt.Fprintln(os.Stderr, "e2e cleanup:", err)
		}
	}
}

// workspaceGroups returns the folders of the control groups that a provisioner has made for a process' workspace.
func workspaceGroups(pid int) (dirs []string) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // it may have ended
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(filepath.Base(parts[2]), "codermesh-workspace-") {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") { // of version 1; version 2 has one group without
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", controller, parts[2]))
		}
	}
	return dirs
}

// removeGroup ends what is left of a workspace, and removes its control group: killed processes stay in it for a moment.
func removeGroup(dir string) error {
	for deadline := time.Now().Add(settle); ; time.Sleep(time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for line := range strings.Lines(string(procs)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// processes returns the processes of eachProcess, with their environment.
func (s *server) processes() map[int]string {
	found := map[int]string{}
	s.eachProcess(func(p *os.Process, environ string) { found[p.Pid] = environ })
	return found
}

// eachProcess visits the processes whose environment or arguments name the server's folder or addresses: agents, scripts that
// still fetch one, programs that sessions started, and whatever the command line left. What it passes is a handle, which stays
// that process's: the kernel gives a number to another process soon after its process has ended.
func (s *server) eachProcess(visit func(p *os.Process, environ string)) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid) // before its environment is read
		if err != nil {
			continue // it has ended meanwhile
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		args, argsErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		all := string(environ) + string(args)
		if err == nil && argsErr == nil && (strings.Contains(all, s.dir+"/") || strings.Contains(all, "127.0.0.1:"+s.port) || strings.Contains(all, s.url()+"/")) {
			visit(p, string(environ))
		}
		_ = p.Release() // cannot fail
	}
}

func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	srv := ts.Value("server").(*server)
	if len(args) == 0 {
		ts.Fatalf("usage: server start|stop|kill [args]")
	}
	var err error
	switch args[0] {
	case "start":
		rest := args[1:]
		for srv.extra = nil; len(rest) > 0 && !strings.HasPrefix(rest[0], "-"); rest = rest[1:] {
			srv.extra = append(srv.extra, rest[0])
		}
		srv.args = rest
		err = srv.start()
	case "stop":
		err = srv.end(syscall.SIGTERM)
	case "kill":
		err = srv.end(syscall.SIGKILL)
	default:
		ts.Fatalf("unknown: server %s", args[0])
	}
	if (err != nil) != neg {
		ts.Fatalf("server %s: %v", args[0], err)
	}
	if err != nil {
		ts.Logf("%v", err)
	}
}

// programFor returns the program that runs a command: the one that laptops download, unless only the whole one has the command. It starts in half
// the time, and the tests start it some thousand times.
func programFor(args []string) string {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return coder
	}
	switch args[0] {
	case "server", "provisioner", "provisionerd", "reset-password", "help", "version", "completion":
		return coder
	}
	if slices.Contains(args, "--help") || len(args) > 1 && args[0] == "templates" && args[1] == "migrate" {
		return coder
	}
	return slim
}

// runAs runs the command line as a user, without a terminal on its standard input.
func runAs(ts *testscript.TestScript, neg bool, user string, args []string) {
	srv := ts.Value("server").(*server)
	for _, kv := range srv.env(user) {
		key, value, _ := strings.Cut(kv, "=")
		ts.Setenv(key, value)
	}
	err := ts.Exec(programFor(args), args...)
	if (err != nil) != neg {
		ts.Fatalf("%s: coder %s: %v\n\nserver's log:\n%s", user, strings.Join(args, " "), err, srv.logText())
	}
}

// cmdExits runs the command line as a user and compares its exit code. Its output is the script's, as with coder and as.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: exits CODE NAME ARGS…")
	}
	srv := ts.Value("server").(*server)
	for _, kv := range srv.env(args[1]) {
		key, value, _ := strings.Cut(kv, "=")
		ts.Setenv(key, value)
	}
	err := ts.Exec(programFor(args[2:]), args[2:]...)
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("coder %s: %v", strings.Join(args[2:], " "), err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("coder %s: exit code %d, want %s", strings.Join(args[2:], " "), code, args[0])
	}
}

func cmdMember(ts *testscript.TestScript, _ bool, args []string) {
	name := args[0]
	runAs(ts, false, "admin", []string{"users", "create", "--username", name, "--email", name + "@example.com", "--password", password})
	srv := ts.Value("server").(*server)
	token, err := signIn(srv.url(), name+"@example.com")
	ts.Check(err)
	runAs(ts, false, name, []string{"login", srv.url(), "--token", token})
}

// cmdSQL changes the server's database.
func cmdSQL(ts *testscript.TestScript, _ bool, args []string) {
	address, err := embedded.RunningURL(filepath.Join(ts.Value("server").(*server).dir, "config-admin"))
	ts.Check(err)
	db, err := database.Open(context.Background(), address, slog.New(slog.DiscardHandler))
	ts.Check(err)
	defer db.Close()
	_, err = db.Pool.Exec(context.Background(), args[0])
	ts.Check(err)
}

func cmdServe(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, strings.Join(args, " ")) })}
	go srv.Serve(l) // ends with Close
	ts.Defer(func() { srv.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	ts.Setenv("SERVED", port)
	ts.Setenv("FORWARDED", freePort())
}

// cmdRetry repeats a command of the script until it succeeds.
func cmdRetry(ts *testscript.TestScript, neg bool, args []string) {
	var seconds int
	if _, err := fmt.Sscan(args[0], &seconds); err != nil || len(args) < 2 {
		ts.Fatalf("usage: retry SECONDS COMMAND…")
	}
	srv := ts.Value("server").(*server)
	name, rest := args[1], args[2:]
	if name == "coder" {
		name = coder
	}
	for deadline := time.Now().Add(time.Duration(seconds) * time.Second); ; {
		err := ts.Exec(name, rest...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still after %d s: %s: %v\n%s", seconds, strings.Join(args[1:], " "), err, srv.logText())
		}
		time.Sleep(100 * time.Millisecond)
	}
}
