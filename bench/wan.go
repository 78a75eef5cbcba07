package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/bench/slowlink"
)

// wan simulates an internet with a laptop, a server and a workspace on three hosts: network namespaces connected to a
// core by wires with a delay. It needs root.
type wan struct {
	dir, coder string
	runs       int
	megabytes  int // of bulk transfers, MiB
	trip       time.Duration
	loss       float64 // per wire and direction; packets between two hosts pass two wires
	rows       []row

	made   []string // namespaces
	links  map[string]*slowlink.Link
	server *exec.Cmd
}

const (
	wanServer = "10.82.0.2"
	wanPort   = "7080"
)

var wanHosts = []string{"laptop", "server", "workspace"}

func (w *wan) ns(name string) string { return fmt.Sprintf("bench%d%s", os.Getpid(), name) }

func (w *wan) ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (w *wan) namespace(name string) error {
	if err := w.ip("netns", "add", w.ns(name)); err != nil {
		return err
	}
	w.made = append(w.made, w.ns(name))
	return errors.Join(w.ip("-n", w.ns(name), "link", "set", "lo", "up"),
		w.ip("netns", "exec", w.ns(name), "sysctl", "-qw", "net.ipv4.ip_forward=1"))
}

// build makes the hosts, each on a wire of its own to the core.
func (w *wan) build() error {
	w.links = map[string]*slowlink.Link{}
	if err := w.namespace("core"); err != nil {
		return err
	}
	for i, host := range wanHosts {
		if err := w.namespace(host); err != nil {
			return err
		}
		address, gateway := fmt.Sprintf("10.8%d.0.2", i+1), fmt.Sprintf("10.8%d.0.1", i+1)
		link, err := slowlink.Join(slowlink.End{Namespace: w.ns(host), Device: "eth0", Address: address + "/24"},
			slowlink.End{
				Namespace: w.ns("core"), Device: host, Address: gateway + "/24",
			}, slowlink.Options{Delay: w.trip / 4, Loss: w.loss})
		if err != nil {
			return err
		}
		w.links[host] = link
		if err := w.ip("-n", w.ns(host), "route", "add", "default", "via", gateway); err != nil {
			return err
		}
	}
	return nil
}

func (w *wan) close() error {
	var errs []error
	if w.server != nil {
		errs = append(errs, w.server.Process.Signal(os.Interrupt), w.server.Wait())
	}
	for _, link := range w.links {
		errs = append(errs, link.Close())
	}
	for _, name := range w.made {
		errs = append(errs, killAll(name), w.ip("netns", "del", name))
	}
	return errors.Join(errs...)
}

// killAll kills the processes that still run in one of our namespaces: agents outlive their server.
func killAll(namespace string) error {
	out, err := exec.Command("ip", "netns", "pids", namespace).Output()
	if err != nil {
		return fmt.Errorf("list processes of %s: %w", namespace, err)
	}
	for _, pid := range strings.Fields(string(out)) {
		_ = exec.Command("kill", "-9", pid).Run() // it may have ended
	}
	return nil
}

// in returns a command that runs on a host.
func (w *wan) in(ctx context.Context, host string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", w.ns(host)}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "USER=" + os.Getenv("USER"), "SHELL=/bin/sh",
		"CODER_CONFIG_DIR=" + filepath.Join(w.dir, "config"), "CODER_CACHE_DIRECTORY=" + filepath.Join(w.dir, "cache"),
		"CODER_HTTP_ADDRESS=0.0.0.0:" + wanPort, "CODER_ACCESS_URL=http://" + wanServer + ":" + wanPort,
	}
	return cmd
}

// do runs a command on a host, which must succeed, and returns how long it took.
func (w *wan) do(ctx context.Context, stdin io.Reader, host string, args ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := w.in(ctx, host, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s on %s: %w\n%s", strings.Join(args, " "), host, err, stderr.String())
	}
	return time.Since(begin), nil
}

const wanTemplate = `terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "process" {
  count = data.coder_workspace.me.start_count
  provisioner "local-exec" {
    command = "cd %[1]s; CODER_AGENT_TOKEN=${coder_agent.main.token} CODER_AGENT_URL=%[2]s setsid ip netns exec %[3]s %[4]s agent >agent.log 2>&1 </dev/null &"
  }
}
`

func (w *wan) setUp(ctx context.Context) error {
	log, err := os.Create(filepath.Join(w.dir, "server.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	w.server = w.in(context.WithoutCancel(ctx), "server", w.coder, "server", "--provisioner-isolation", "none")
	w.server.Stdout, w.server.Stderr = log, log
	if err := w.server.Start(); err != nil {
		return err
	}
	url := "http://" + wanServer + ":" + wanPort
	for exec.CommandContext(ctx, "ip", "netns", "exec", w.ns("server"), "curl", "-sfo", "/dev/null", url+"/healthz").Run() != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(20 * time.Millisecond)
	}
	template := filepath.Join(w.dir, "template")
	if err := os.Mkdir(template, 0o755); err != nil {
		return err
	}
	text := fmt.Appendf(nil, wanTemplate, w.dir, url, w.ns("workspace"), w.coder)
	if err := os.WriteFile(filepath.Join(template, "main.tf"), text, 0o644); err != nil {
		return err
	}
	code, err := os.ReadFile(filepath.Join(w.dir, "config", "setup-code"))
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"login", url, "--setup-code", string(code), "--first-user-username", "ada", "--first-user-email", "ada@example.com", "--first-user-password", password},
		{"templates", "push", "process", "-d", template, "-y"}, {"create", "w1", "-t", "process", "-y"}, {"ssh", "w1", "--", "true"},
	} {
		if _, err := w.do(ctx, nil, "server", append([]string{w.coder}, args...)...); err != nil {
			return err
		}
	}
	_, err = w.do(ctx, nil, "laptop", w.coder, "ssh", "w1", "--", "true")
	return err
}

func (w *wan) measure(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.build(); err != nil {
		return err
	}
	if err := w.setUp(ctx); err != nil {
		return err
	}
	var times []float64
	for range w.runs {
		took, err := w.do(ctx, nil, "laptop", w.coder, "ssh", "w1", "--", "true")
		if err != nil {
			return err
		}
		times = append(times, took.Seconds()/w.trip.Seconds())
	}
	slices.Sort(times)
	exec := times[len(times)/2]
	w.rows = append(w.rows, row{
		Name: "ssh w1 -- true", Value: exec, Min: times[0], Max: times[len(times)-1], Unit: "round trips", Goal: "≤ 10",
	})
	goal := "≥ 300"
	if w.loss > 0 {
		goal = "≥ 20"
	}
	// Rates exclude the time to start a session.
	rate := func(took time.Duration) float64 {
		return float64(w.megabytes) * 8 * 1.048576 / (took.Seconds() - exec*w.trip.Seconds())
	}
	took, err := w.do(ctx, nil, "laptop", w.coder, "ssh", "w1", "--",
		fmt.Sprintf("dd if=/dev/zero bs=1M count=%d status=none", w.megabytes))
	if err != nil {
		return err
	}
	down, err := w.kernelTCP(ctx, "workspace", "laptop")
	if err != nil {
		return err
	}
	w.rows = append(w.rows, row{
		Name: "coder ssh, download", Value: rate(took), Unit: "Mbit/s", Goal: goal, Yardstick: down,
	})
	took, err = w.do(ctx, io.LimitReader(zeros{}, int64(w.megabytes)<<20), "laptop", "ssh", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ProxyCommand="+w.coder+" ssh --stdio w1", "w1", "cat >/dev/null")
	if err != nil {
		return err
	}
	up, err := w.kernelTCP(ctx, "laptop", "workspace")
	if err != nil {
		return err
	}
	w.rows = append(w.rows, row{
		Name: "OpenSSH + ProxyCommand, upload", Value: rate(took), Unit: "Mbit/s", Goal: goal, Yardstick: up,
	})
	return w.resume(ctx)
}

// kernelTCP measures one of the kernel's TCP connections on the same wires with as many bytes, including the time to
// connect.
func (w *wan) kernelTCP(ctx context.Context, from, to string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	index := slices.Index(wanHosts, from)
	source := w.in(ctx, from, self, "-source", fmt.Sprint(w.megabytes<<20))
	out, err := source.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := source.Start(); err != nil {
		return "", err
	}
	var port string
	if _, err := fmt.Fscan(out, &port); err != nil {
		return "", fmt.Errorf("start source: %w", err)
	}
	took, err := w.do(ctx, nil, to, self, "-drain", net.JoinHostPort(fmt.Sprintf("10.8%d.0.2", index+1), port))
	if err := errors.Join(err, source.Wait()); err != nil {
		return "", err
	}
	return fmt.Sprintf("kernel TCP %.0f Mbit/s", float64(w.megabytes)*8*1.048576/took.Seconds()), nil
}

// serveBytes is the source of kernelTCP: it prints its port, sends n bytes to the first connection, and exits.
func serveBytes(n int64) error {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.CopyN(conn, zeros{}, n)
	return err
}

// drainAll reads from addr to the end.
func drainAll(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.Copy(io.Discard, conn)
	return err
}

// resume measures how soon an open session continues after the laptop's wire was cut.
func (w *wan) resume(ctx context.Context) error {
	const outage = 30 * time.Second
	session := w.in(ctx, "laptop", w.coder, "ssh", "w1", "--", "for i in $(seq 1 1000); do echo $i; sleep 0.1; done")
	out, err := session.StdoutPipe()
	if err != nil {
		return err
	}
	if err := session.Start(); err != nil {
		return err
	}
	defer func() { _ = session.Process.Kill(); _ = session.Wait() }()
	arrived := make(chan time.Time, 1<<16)
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := out.Read(buf); err != nil {
				close(arrived)
				return
			}
			arrived <- time.Now()
		}
	}()
	time.Sleep(4 * time.Second)
	w.links["laptop"].Cut(true)
	time.Sleep(outage)
	back := time.Now()
	w.links["laptop"].Cut(false)
	limit := time.After(time.Minute)
	for {
		select {
		case at, ok := <-arrived:
			if !ok {
				return errors.New("the session did not survive the outage")
			}
			if at.After(back) {
				w.rows = append(w.rows, row{
					Name: "session resumes after 30 s without a link", Value: at.Sub(back).Seconds(), Unit: "s",
					Goal: "≤ 2 s",
				})
				return nil
			}
		case <-limit:
			return errors.New("the session was silent for a minute after the outage")
		}
	}
}
