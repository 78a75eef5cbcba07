package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/embedded"
)

const (
	password  = "Correct-Horse-9-Battery"
	psk       = "pre-shared-key-of-this-run"
	setupCode = "setup-code-of-this-run"
	stateKey  = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	answer    = "an app's answer"
	slow      = 3 * time.Minute // a command that takes longer has failed
)

// deployment is two servers with one database, a balancer, a provisioner, and workspaces on this machine.
type deployment struct {
	dir, coder string
	keep       bool
	front      net.Listener // the balancer
	back       []string     // addresses of servers
	postgres   *embedded.Server
	website    *httptest.Server // behind the workspaces' apps
	started    []*exec.Cmd
	token      string
	residents  []string  // workspaces that stay
	processes  []process // that are watched
}

// process is one whose use of resources is sampled.
type process struct {
	name  string
	pid   int
	pprof string // the address that serves profiles; empty if none does
}

// open starts everything, and creates the workspaces that stay. The caller closes it.
func open(ctx context.Context, coder string, keep bool) (_ *deployment, err error) {
	d := &deployment{keep: keep, residents: []string{"stay0", "stay1"}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.coder, err = filepath.Abs(coder); err != nil {
		return nil, err
	}
	if d.dir, err = os.MkdirTemp("", "soak-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(d.dir, 0o755); err != nil { // workspaces have accounts of their own
		return nil, err
	}
	database := embedded.Options{Dir: filepath.Join(d.dir, "database"), Logger: slog.New(slog.DiscardHandler)}
	if d.postgres, err = embedded.Start(ctx, database); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	d.website = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, answer) // a request that has ended needs none
	}))
	if d.front, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	for i := range 2 {
		if err := d.startServer(ctx, fmt.Sprint("server ", i)); err != nil {
			return nil, err
		}
	}
	go d.balance()
	if err := d.fill(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// free returns an address at which nothing listens.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (d *deployment) url() string { return "http://" + d.front.Addr().String() }

// start starts the program in a folder of its own.
func (d *deployment) start(ctx context.Context, name string, extra []string, args ...string) (*exec.Cmd, error) {
	dir := filepath.Join(d.dir, strings.ReplaceAll(name, " ", ""))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := exec.CommandContext(context.WithoutCancel(ctx), d.coder, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, log, log, append(d.env(dir), extra...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.started = append(d.started, cmd)
	return cmd, nil
}

func (d *deployment) env(dir string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
		"CODER_CONFIG_DIR=" + filepath.Join(dir, "config"), "CODER_CACHE_DIRECTORY=" + filepath.Join(dir, "cache"),
		"CODER_URL=" + d.url(), "CODER_PROVISIONER_DAEMON_PSK=" + psk, "CODER_SETUP_CODE=" + setupCode,
	}
	for _, name := range []string{"TF_CLI_CONFIG_FILE", "CODER_TERRAFORM_BINARY"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (d *deployment) startServer(ctx context.Context, name string) error {
	at, err := free()
	if err != nil {
		return err
	}
	pprof, err := free()
	if err != nil {
		return err
	}
	cmd, err := d.start(ctx, name, []string{
		"CODER_HTTP_ADDRESS=" + at, "CODER_REPLICA_URL=http://" + at, "CODER_ACCESS_URL=" + d.url(),
		"CODER_PG_CONNECTION_URL=" + d.postgres.URL(), "CODER_STATE_ENCRYPTION_KEY=" + stateKey,
		"CODER_STUN_ADDRESS=off", "CODER_PROVISIONER_DAEMONS=0", "CODER_API_RATE_LIMIT=0",
		"CODER_PPROF_ENABLE=true", "CODER_PPROF_ADDRESS=" + pprof,
		"GODEBUG=memprofilerate=8192", // small growth is the question: by default, heap profiles see one allocation in 512 kB
	}, "server")
	if err != nil {
		return err
	}
	d.back = append(d.back, at)
	d.processes = append(d.processes, process{name, cmd.Process.Pid, pprof})
	return until(ctx, "start a server", func() (bool, error) {
		resp, err := http.Get("http://" + at + "/healthz")
		if errors.Is(err, syscall.ECONNREFUSED) {
			return false, nil // it does not listen yet
		}
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
}

// balance leads connections to the servers in turns, until the listener is closed.
func (d *deployment) balance() {
	var turn atomic.Uint64
	for {
		in, err := d.front.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", d.back[turn.Add(1)%uint64(len(d.back))])
			if err != nil {
				return
			}
			defer out.Close()
			var one sync.WaitGroup
			one.Go(func() { _, _ = io.Copy(out, in); _ = out.(*net.TCPConn).CloseWrite() })
			_, _ = io.Copy(in, out)
			_ = in.(*net.TCPConn).CloseWrite()
			one.Wait()
		}()
	}
}

// fill creates the first user, the template and the workspaces that stay.
func (d *deployment) fill(ctx context.Context) error {
	if err := d.command(ctx, "login", d.url(), "--first-user-username", "ada",
		"--first-user-email", "ada@example.com", "--first-user-password", password); err != nil {
		return err
	}
	token, err := d.output(ctx, "login", "token")
	if err != nil {
		return err
	}
	d.token = strings.TrimSpace(token)
	if _, err := d.start(ctx, "provisioner", nil, "provisioner", "start", "--name", "soak"); err != nil {
		return err
	}
	d.processes = append(d.processes, process{name: "provisioner", pid: d.started[len(d.started)-1].Process.Pid})
	template := filepath.Join(d.dir, "template")
	if err := d.command(ctx, "templates", "init", "--id", "process", template); err != nil {
		return err
	}
	app := fmt.Sprintf(`resource "coder_app" "web" {
  agent_id = coder_agent.main.id
  slug     = "web"
  url      = %q
}
`, d.website.URL)
	if err := os.WriteFile(filepath.Join(template, "app.tf"), []byte(app), 0o644); err != nil {
		return err
	}
	if err := d.command(ctx, "templates", "push", "soak", "-d", template, "-y"); err != nil {
		return err
	}
	for _, name := range d.residents {
		if err := d.command(ctx, "create", name, "-t", "soak", "-y"); err != nil {
			return err
		}
	}
	d.processes = append(d.processes, d.agents()...)
	return nil
}

// agents returns the agents that run now.
func (d *deployment) agents() (found []process) {
	d.eachProcess(func(p *os.Process) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid))
		if words := strings.Split(string(line), "\x00"); err == nil && len(words) > 1 && words[1] == "agent" {
			found = append(found, process{name: fmt.Sprint("agent ", len(found)), pid: p.Pid})
		}
	})
	return found
}

// eachProcess visits the processes whose environment names the address of this deployment: agents, what they started,
// and commands. What it passes is a handle, which stays that process's: the kernel gives a number to another process
// soon after its process has ended.
func (d *deployment) eachProcess(visit func(*os.Process)) {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := os.FindProcess(pid) // before its environment is read
		if err != nil {
			continue // it has ended meanwhile
		}
		if env, err := os.ReadFile(filepath.Join(name, "environ")); err == nil && mentions(env, d.url()) {
			visit(p)
		}
		_ = p.Release() // cannot fail
	}
}

// mentions reports whether an environment has a URL that ends in a port, and not only that of a port with more digits.
func mentions(env []byte, url string) bool {
	for {
		_, rest, found := bytes.Cut(env, []byte(url))
		if !found {
			return false
		}
		if len(rest) == 0 || rest[0] < '0' || rest[0] > '9' {
			return true
		}
		env = rest
	}
}

// endLeft ends the processes of workspaces that could not be deleted: agents outlive their server by design. A keeper
// starts its agent again in the moment before it ends too, so one look is not enough. It returns how many it ended.
func (d *deployment) endLeft(ctx context.Context) (ended int, err error) {
	err = until(ctx, "end the workspaces that are left", func() (bool, error) {
		left := 0
		d.eachProcess(func(p *os.Process) {
			if left++; p.Kill() == nil { // the others have ended meanwhile
				ended++
			}
		})
		return left == 0, nil
	})
	return ended, err
}

// output runs a command and returns what it prints.
func (d *deployment) output(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.coder, args...)
	cmd.Env = d.env(filepath.Join(d.dir, "ada"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("coder %s: %w: %s", args[0], err, text[max(0, len(text)-300):])
	}
	return stdout.String(), nil
}

func (d *deployment) command(ctx context.Context, args ...string) error {
	_, err := d.output(ctx, args...)
	return err
}

// app asks a workspace's app through the servers.
func (d *deployment) app(ctx context.Context, workspace string) error {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url()+"/@ada/"+workspace+"/apps/web/", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Coder-Session-Token", d.token)
	return expect(browser, r)
}

// browser finds the hosts of apps, which are below localhost, on this machine. Browsers do so; not every resolver does.
var browser = &http.Client{Transport: &http.Transport{
	DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err == nil && strings.HasSuffix(host, ".localhost") {
			addr = net.JoinHostPort("localhost", port)
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	},
}}

func expect(c *http.Client, r *http.Request) error {
	resp, err := c.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && string(text) != answer {
		err = fmt.Errorf("%s: %.100s", resp.Status, text)
	}
	return err
}

// forward makes requests through coder port-forward.
func (d *deployment) forward(ctx context.Context, workspace string) error {
	ctx, cancel := context.WithTimeout(ctx, slow)
	defer cancel()
	at, err := free()
	if err != nil {
		return err
	}
	_, far, _ := net.SplitHostPort(d.website.Listener.Addr().String())
	_, near, _ := net.SplitHostPort(at)
	cmd := exec.CommandContext(ctx, d.coder, "port-forward", workspace, "--tcp", near+":"+far)
	cmd.Env = d.env(filepath.Join(d.dir, "ada"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	asked := until(ctx, "reach the port", func() (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at, nil)
		if err != nil {
			return false, err
		}
		return expect(c, r) == nil, nil
	})
	stopped := cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // it says that it was interrupted
	if err := errors.Join(asked, stopped); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil
}

// deleteAll deletes the workspaces that stay, and those whose users the end of the run has interrupted.
func (d *deployment) deleteAll(ctx context.Context) error {
	text, err := d.output(ctx, "list", "--output", "json")
	if err != nil {
		return err
	}
	var list []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return fmt.Errorf("decode the list of workspaces: %w", err)
	}
	var errs []error
	for _, ws := range list {
		errs = append(errs, d.command(ctx, "delete", ws.Name, "-y"))
	}
	return errors.Join(errs...)
}

// close ends everything that was started.
func (d *deployment) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	var errs []error
	if d.token != "" {
		errs = append(errs, d.deleteAll(ctx))
	}
	for i := len(d.started) - 1; i >= 0; i-- {
		if err := d.started[i].Process.Signal(syscall.SIGTERM); err != nil {
			errs = append(errs, err)
		}
	}
	for _, cmd := range d.started {
		_ = cmd.Wait() // a provisioner says that it was stopped
	}
	if d.front != nil {
		ended, err := d.endLeft(context.Background())
		if ended > 0 {
			fmt.Fprintf(os.Stderr, "ended %d processes of workspaces that were left\n", ended)
		}
		errs = append(errs, err, d.front.Close())
	}
	if d.website != nil {
		d.website.Close()
	}
	if d.postgres != nil {
		errs = append(errs, d.postgres.Stop(ctx))
	}
	if d.keep {
		fmt.Fprintln(os.Stderr, "kept", d.dir)
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}

// until asks done every tenth of a second until it is true.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, slow, fmt.Errorf("%s: not within %s", what, slow))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
