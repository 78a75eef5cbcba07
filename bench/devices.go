package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// phone is a machine with a stock WireGuard in a network namespace of its own: wireguard-go on a device of the
// kernel's.
type phone struct {
	*day
	ns        string
	near, far string    // addresses of the wire's ends, here and there
	config    string    // what coder devices add wrote
	region    *exec.Cmd // a region proxy to whose gateway the device connects; nil: the server's
	address   string    // of the workspace
	wireguard *exec.Cmd
}

// devices measures what a device with a stock WireGuard app gets, from the server and then from a region. It needs
// root, and the programs wg and dig.
func (d *day) devices(ctx context.Context) error {
	if err := d.device(ctx, false); err != nil {
		return err
	}
	return d.device(ctx, true)
}

func (d *day) device(ctx context.Context, atRegion bool) (err error) {
	p := &phone{day: d, ns: fmt.Sprintf("bench%dphone", os.Getpid()), near: "10.85.0.1", far: "10.85.0.2"}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.wire(); err != nil {
		return err
	}
	if atRegion {
		if err := p.startRegion(ctx); err != nil {
			return err
		}
	} else {
		d.serverArgs = []string{
			"--wireguard-address", ":51820", "--wireguard-access-address", net.JoinHostPort(p.near, "51820"),
		}
		if err := d.setUp(ctx); err != nil {
			return err
		}
	}
	if err := p.up(ctx); err != nil {
		return err
	}
	if err := p.rows(ctx); err != nil || atRegion {
		return err
	}
	return p.crowd(ctx)
}

// startRegion runs a region proxy beside the server.
func (p *phone) startRegion(ctx context.Context) error {
	token, err := p.do(ctx, "wsproxy", "create", "eu")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "region.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	const at = "127.0.0.1:51800"
	p.region = p.command(context.WithoutCancel(ctx), "wsproxy", "server", "--primary-access-url", "http://127.0.0.1:"+p.port,
		"--access-url", "http://"+at, "--http-address", at, "--stun-address", "off",
		"--wireguard-address", ":51821", "--wireguard-access-address", net.JoinHostPort(p.near, "51821"))
	p.region.Env = append(p.region.Env, "CODER_PROXY_SESSION_TOKEN="+strings.TrimSpace(token))
	p.region.Stdout, p.region.Stderr = log, log
	return p.region.Start()
}

// name names the rows.
func (p *phone) name() string {
	if p.region != nil {
		return "device at a region"
	}
	return "device"
}

func (p *phone) run(args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// inside runs a program in the namespace.
func (p *phone) inside(args ...string) (string, error) {
	return p.run(append([]string{"ip", "netns", "exec", p.ns}, args...)...)
}

// wire makes the namespace, and a wire to it.
func (p *phone) wire() error {
	for _, args := range [][]string{
		{"netns", "add", p.ns},
		{"link", "add", "benchphone", "type", "veth", "peer", "name", "eth0", "netns", p.ns},
		{"addr", "add", p.near + "/24", "dev", "benchphone"},
		{"link", "set", "benchphone", "up"},
		{"-n", p.ns, "link", "set", "lo", "up"},
		{"-n", p.ns, "addr", "add", p.far + "/24", "dev", "eth0"},
		{"-n", p.ns, "link", "set", "eth0", "up"},
	} {
		if _, err := p.run(append([]string{"ip"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (p *phone) close() error {
	if p.wireguard != nil {
		_ = p.wireguard.Process.Signal(syscall.SIGTERM)
		_ = p.wireguard.Wait()
	}
	if p.region != nil {
		_ = p.region.Process.Signal(syscall.SIGTERM)
		_ = p.region.Wait()
	}
	_, gone := p.run("ip", "link", "del", "benchphone") // the kernel removes it with the namespace, but later
	_, err := p.run("ip", "netns", "del", p.ns)
	return errors.Join(gone, err)
}

// register adds the device, once the region is connected.
func (p *phone) register(ctx context.Context, file string) error {
	if p.region == nil {
		_, err := p.do(ctx, "devices", "add", "phone", "-o", file)
		return err
	}
	for {
		_, err := p.do(ctx, "devices", "add", "tablet", "--region", "eu", "-o", file)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if state, failed := os.ReadFile(filepath.Join(p.dir, "region.log")); failed == nil &&
			bytes.Contains(state, []byte("error:")) {
			return fmt.Errorf("%w\n%s", err, state)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// up registers the device, and does what wg-quick does with its configuration.
func (p *phone) up(ctx context.Context) error {
	file, program := filepath.Join(p.dir, p.name()+".conf"), filepath.Join(p.dir, "wireguard-go")
	if err := p.register(ctx, file); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	value := func(key string) string {
		if m := regexp.MustCompile(`(?m)^` + key + ` = (.*)$`).FindSubmatch(text); m != nil {
			return string(m[1])
		}
		return ""
	}
	p.config = filepath.Join(p.dir, "wg.conf")
	if err := os.WriteFile(p.config, regexp.MustCompile(`(?m)^(Address|DNS|MTU|PersistentKeepalive) = .*\n`).ReplaceAll(text, nil), 0o600); err != nil {
		return err
	}
	if _, err := p.run("go", "build", "-o", program, "golang.zx2c4.com/wireguard"); err != nil {
		return err
	}
	p.wireguard = exec.Command("ip", "netns", "exec", p.ns, "env", "WG_PROCESS_FOREGROUND=1", program, "-f", "wg0")
	if err := p.wireguard.Start(); err != nil {
		return err
	}
	for {
		if _, err := p.inside("wg", "show", "wg0"); err == nil {
			break
		} else if ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, args := range [][]string{
		{"addr", "add", value("Address"), "dev", "wg0"}, {"link", "set", "wg0", "mtu", value("MTU"), "up"}, {"route", "add", value("AllowedIPs"), "dev", "wg0"},
	} {
		if _, err := p.run(append([]string{"ip", "-n", p.ns}, args...)...); err != nil {
			return err
		}
	}
	if err := p.begin(); err != nil {
		return err
	}
	p.address, err = p.inside("dig", "+short", "AAAA", "w1.coder", "@"+value("DNS"))
	if err == nil && net.ParseIP(p.address) == nil {
		err = fmt.Errorf("w1.coder has the address %q", p.address)
	}
	return err
}

// begin makes the device forget its session, so that it begins another.
func (p *phone) begin() error {
	_, err := p.inside("wg", "setconf", "wg0", p.config)
	return err
}

// dial connects from the namespace to the workspace.
func (p *phone) dial(ctx context.Context, port string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		ns, failed := os.Open("/var/run/netns/" + p.ns)
		if failed == nil {
			failed = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if failed != nil {
			err = failed
			return
		}
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.address, port))
	}()
	<-done
	return conn, err
}

// byteBack sends one byte to an echo, and waits for it.
func byteBack(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func (p *phone) rows(ctx context.Context) error {
	ports := make([]string, 2)
	for i, serve := range []func(net.Listener){source, echo} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		go serve(l)
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
	}
	once := func() error {
		conn, err := p.dial(ctx, ports[1])
		if err != nil {
			return err
		}
		defer conn.Close()
		return byteBack(conn)
	}
	if err := p.timed(p.name()+", connection and byte", "", "", p.runs, once); err != nil {
		return err
	}
	// WireGuard answers 50 handshakes of a peer in a second at most.
	forget := func() error {
		defer time.Sleep(100 * time.Millisecond)
		return p.begin()
	}
	if err := p.timedAfter(p.name()+", handshake, connection and byte", "≤ 0.030 s", "", p.runs, forget, once); err != nil {
		return err
	}
	conn, err := p.dial(ctx, ports[0])
	if err != nil {
		return err
	}
	rate, err := drainConn(conn, bulkTime)
	if err != nil {
		return fmt.Errorf("stream to a device: %w", err)
	}
	p.add(row{
		Name: p.name() + ", one stream", Value: rate, Unit: "Mbit/s", Goal: "≥ 400", Yardstick: loopbackRate(ctx),
	})

	conn, err = p.dial(ctx, ports[1])
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := byteBack(conn); err != nil {
		return err
	}
	if err := p.timed(p.name()+", byte after another port of its own", "≤ 0.1 s", "with `wg set`", 5, func() error {
		_, err := p.inside("wg", "set", "wg0", "listen-port", "0")
		return errors.Join(err, byteBack(conn))
	}); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // the server has stored where the device is
	if err := p.server.Process.Kill(); err != nil {
		return err
	}
	_ = p.server.Wait()
	if err := p.startServer(ctx); err != nil {
		return err
	}
	return p.timed(p.name()+", byte after the server's restart", "≤ 1 s", "from the first 200 of /healthz", 1, func() error {
		for {
			// The agent may come back after its server does.
			if err := once(); err == nil || ctx.Err() != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}
