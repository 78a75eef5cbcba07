package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const password = "Correct-Horse-9-Battery"

// day measures one developer's day with a fresh server.
type day struct {
	dir, coder string
	runs       int // of each repeated measurement
	megabytes  int // of bulk transfers, MiB
	idle       int // workspaces of a laptop that is idle
	rows       []row

	listen     string // the server's address
	serverArgs []string
	port       string
	server     *exec.Cmd
}

func (d *day) add(r row) { d.rows = append(d.rows, r) }

// timed adds the median of n runs of f, in seconds.
func (d *day) timed(name, goal, yardstick string, n int, f func() error) error {
	return d.timedAfter(name, goal, yardstick, n, func() error { return nil }, f)
}

// timedAfter is timed with something to prepare before each run, whose time does not count.
func (d *day) timedAfter(name, goal, yardstick string, n int, prepare, f func() error) error {
	times := make([]float64, 0, n)
	for range n {
		if err := prepare(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		begin := time.Now()
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		times = append(times, time.Since(begin).Seconds())
	}
	slices.Sort(times)
	r := row{Name: name, Value: times[n/2], Unit: "s", Goal: goal, Yardstick: yardstick}
	if n > 1 {
		r.Min, r.Max = times[0], times[n-1]
	}
	d.add(r)
	return nil
}

func (d *day) env() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "USER=" + os.Getenv("USER"), "SHELL=/bin/sh",
		"CODER_CONFIG_DIR=" + filepath.Join(d.dir, "config"), "CODER_CACHE_DIRECTORY=" + filepath.Join(d.dir, "cache"),
		"CODER_HTTP_ADDRESS=" + d.listen + ":" + d.port, "CODER_ACCESS_URL=http://127.0.0.1:" + d.port,
		"TF_CLI_CONFIG_FILE=" + os.Getenv("TF_CLI_CONFIG_FILE"),
	}
}

func (d *day) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.coder, args...)
	cmd.Env = d.env()
	return cmd
}

// do runs the command line and returns its standard output.
func (d *day) do(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := d.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("coder %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func (d *day) startServer(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(d.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	d.server = d.command(context.WithoutCancel(ctx), append([]string{"server"}, d.serverArgs...)...)
	d.server.Dir, d.server.Stdout, d.server.Stderr = d.dir, log, log
	if err := d.server.Start(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		resp, err := http.Get("http://127.0.0.1:" + d.port + "/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}

func (d *day) stopServer() error {
	if d.server == nil {
		return nil
	}
	if err := d.server.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := d.server.Wait()
	d.server = nil
	return err
}

func (d *day) measure(ctx context.Context, steps ...func(context.Context) error) (err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, d.port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	defer func() { err = errors.Join(err, d.stopServer()) }()

	info, err := os.Stat(d.coder)
	if err != nil {
		return err
	}
	d.add(row{Name: "full binary", Value: float64(info.Size()) / 1e6, Unit: "MB", Goal: "≤ 80"})
	if slim, err := os.Stat(filepath.Join(filepath.Dir(d.coder), "coder-slim")); err == nil {
		d.add(row{Name: "slim binary", Value: float64(slim.Size()) / 1e6, Unit: "MB", Goal: "≤ 25"})
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// login creates the first user.
func (d *day) login(ctx context.Context) error {
	_, err := d.do(ctx, "login", "http://127.0.0.1:"+d.port, "--first-user-username", "ada", "--first-user-email",
		"ada@example.com", "--first-user-password", password)
	return err
}

func (d *day) setUp(ctx context.Context) error {
	if err := d.timed("first server start", "", "", 1, func() error { return d.startServer(ctx) }); err != nil {
		return err
	}
	if err := d.login(ctx); err != nil {
		return err
	}
	template := filepath.Join(d.dir, "process")
	if _, err := d.do(ctx, "templates", "init", "--id", "process", template); err != nil {
		return err
	}
	if err := d.timed("template push", "", "", 1, func() error {
		_, err := d.do(ctx, "templates", "push", "process", "-d", template, "-y")
		return err
	}); err != nil {
		return err
	}
	terraform := d.terraformVersion(ctx)
	return d.timed("first create → prompt of ssh", "≤ 0.9 s", terraform, 1, func() error {
		if _, err := d.do(ctx, "create", "w1", "-t", "process", "-y"); err != nil {
			return err
		}
		_, err := d.do(ctx, "ssh", "w1", "--", "true")
		return err
	})
}

// terraformVersion measures the yardstick of builds: the time to start Terraform once and do nothing.
func (d *day) terraformVersion(ctx context.Context) string {
	for _, name := range []string{"terraform", "tofu"} {
		begin := time.Now()
		if exec.CommandContext(ctx, name, "version").Run() == nil {
			return fmt.Sprintf("`%s version` %.3f s", name, time.Since(begin).Seconds())
		}
	}
	return ""
}

func (d *day) sessions(ctx context.Context) error {
	if err := d.timed("ssh w1 -- true", "≤ 0.10 s, worst ≤ 0.5 s", d.openSSH(ctx), d.runs, func() error {
		_, err := d.do(ctx, "ssh", "w1", "--", "true")
		return err
	}); err != nil {
		return err
	}
	cmd := d.command(ctx, "ssh", "w1", "--", "true")
	if err := cmd.Run(); err != nil {
		return err
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	d.add(row{Name: "ssh client, peak resident", Value: float64(peak) / 1024, Unit: "MB", Goal: "≤ 45"})
	out, err := d.do(ctx, "speedtest", "w1")
	if err != nil {
		return err
	}
	if m := regexp.MustCompile(`([\d.]+)\s*([MG])bits?/sec`).FindAllStringSubmatch(out, -1); len(m) > 0 {
		rate, _ := strconv.ParseFloat(m[len(m)-1][1], 64)
		if m[len(m)-1][2] == "G" {
			rate *= 1000
		}
		d.add(row{Name: "speedtest", Value: rate, Unit: "Mbit/s", Goal: "≥ 2000", Yardstick: loopbackRate(ctx)})
	}
	return nil
}

func (d *day) bulk(ctx context.Context) error {
	proxy := []string{"-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ProxyCommand=" + d.coder + " ssh --stdio w1", "w1"}
	ssh := func(command string, stdin io.Reader) (float64, error) {
		cmd := exec.CommandContext(ctx, "ssh", append(slices.Clone(proxy), command)...)
		cmd.Env, cmd.Stdin = d.env(), stdin
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		begin := time.Now()
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("ssh %q: %w\n%s", command, err, stderr.String())
		}
		return float64(d.megabytes) / time.Since(begin).Seconds(), nil
	}
	down, err := ssh(fmt.Sprintf("dd if=/dev/zero bs=1M count=%d status=none", d.megabytes), nil)
	if err != nil {
		return err
	}
	d.add(row{Name: "OpenSSH + ProxyCommand, download", Value: down, Unit: "MB/s", Goal: "≥ 150"})
	up, err := ssh("cat >/dev/null", io.LimitReader(zeros{}, int64(d.megabytes)<<20))
	if err != nil {
		return err
	}
	d.add(row{Name: "OpenSSH + ProxyCommand, upload", Value: up, Unit: "MB/s", Goal: "≥ 150"})
	return nil
}

// zeros is a reader of endless zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func (d *day) memory(ctx context.Context) error {
	// By then the agent has freed the memory of ended sessions; an agent that is idle for longer does not shrink
	// further.
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, pid := range d.agents() {
		d.add(row{Name: "idle agent, resident", Value: resident(pid), Unit: "MB", Goal: "≤ 30"})
	}
	d.add(row{Name: "server, resident", Value: resident(d.server.Process.Pid), Unit: "MB", Goal: "≤ 90"})
	return nil
}

// agents lists the agent processes of this day's workspaces.
func (d *day) agents() (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range entries {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		line, _ := os.ReadFile(path)
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if args := strings.Split(string(line), "\x00"); len(args) > 1 && args[1] == "agent" &&
			strings.Contains(string(environ), "127.0.0.1:"+d.port) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// resident returns a process's VmRSS in MB.
func resident(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kb / 1024
}

func (d *day) stopAndStart(ctx context.Context) error {
	if err := d.timed("stop", "", "", 1, func() error { _, err := d.do(ctx, "stop", "w1", "-y"); return err }); err != nil {
		return err
	}
	if err := d.timed("start of a stopped workspace", "≤ 0.35 s", d.terraformVersion(ctx), 1, func() error {
		_, err := d.do(ctx, "start", "w1", "-y")
		return err
	}); err != nil {
		return err
	}
	_, err := d.do(ctx, "ssh", "w1", "--", "true")
	return err
}

// restart measures a new session after a server restart, and checks that an open one loses nothing.
func (d *day) restart(ctx context.Context) error {
	var out bytes.Buffer
	session := d.command(ctx, "ssh", "w1", "--", "for i in $(seq 1 150); do echo $i; sleep 0.1; done")
	session.Stdout = &out
	if err := session.Start(); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	if err := d.stopServer(); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	if err := d.timed("server start with data", "", "", 1, func() error { return d.startServer(ctx) }); err != nil {
		return err
	}
	if err := d.timed("new session after a server restart", "≤ 1 s", "", 1, func() error {
		for {
			if _, err := d.do(ctx, "ssh", "w1", "--", "true"); err == nil || ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}); err != nil {
		return err
	}
	if err := session.Wait(); err != nil {
		return fmt.Errorf("session across a server restart: %w", err)
	}
	lines := strings.Fields(out.String())
	d.add(row{Name: "lines of an open session across it", Value: float64(len(lines)), Unit: "of 150", Goal: "150"})
	return nil
}

func (d *day) fleet(ctx context.Context) error {
	const n = 10
	if err := d.timed("ten creates at once", "≤ 4 s", d.terraformVersion(ctx), 1, func() error {
		errs := make(chan error, n)
		for i := range n {
			go func() { _, err := d.do(ctx, "create", fmt.Sprintf("f%d", i), "-t", "process", "-y"); errs <- err }()
		}
		var all []error
		for range n {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	}); err != nil {
		return err
	}
	for i := range n {
		if _, err := d.do(ctx, "delete", fmt.Sprintf("f%d", i), "-y"); err != nil {
			return err
		}
	}
	_, err := d.do(ctx, "delete", "w1", "-y")
	return err
}
