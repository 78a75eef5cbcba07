package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// idleTime is how long an idle laptop is watched.
const idleTime = time.Minute

// laptop is a machine in a network namespace of its own that coder connect connects.
type laptop struct {
	*phone
	token string
	slim  string // the program of laptops
	at    string // the interface that it uses
}

// connect measures what coder connect gives to the programs of a laptop. It needs root, and the program dig.
func (d *day) connect(ctx context.Context) (err error) {
	l := &laptop{
		phone: &phone{day: d, ns: fmt.Sprintf("bench%dlaptop", os.Getpid()), near: "10.85.0.1", far: "10.85.0.2"},
		slim:  filepath.Join(filepath.Dir(d.coder), "coder-slim"),
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := errors.Join(l.wire(), l.secondWire()); err != nil {
		return err
	}
	defer func() {
		_, gone := l.run("ip", "link", "del", "benchphone2")
		err = errors.Join(err, gone)
	}()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	token, err := d.do(ctx, "tokens", "create", "--name", "laptop")
	if err != nil {
		return err
	}
	l.token = strings.TrimSpace(token)
	for i := range d.idle - 1 {
		if _, err := d.do(ctx, "create", fmt.Sprintf("idle%d", i), "-t", "process", "-y"); err != nil {
			return err
		}
	}
	for _, path := range []struct {
		name string
		goal string // of a byte after the laptop has moved
		args []string
	}{
		{"direct", "≤ 0.5 s", nil}, {"relayed", "≤ 0.8 s", []string{"--disable-direct-connections"}},
	} {
		if err := l.session(ctx, path.name, path.goal, path.args); err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
	}
	return nil
}

// coderConnect runs a command of coder connect on the laptop.
func (l *laptop) coderConnect(args ...string) (string, error) {
	return l.inside(append([]string{
		"env", "CODER_URL=http://" + net.JoinHostPort(l.near, l.port), "CODER_SESSION_TOKEN=" + l.token, "CODER_CONNECT_RUN_DIR=" + filepath.Join(l.dir, "connect"),
		l.slim, "connect",
	}, args...)...)
}

// session connects the laptop, measures, and disconnects it.
func (l *laptop) session(ctx context.Context, path, moved string, args []string) (err error) {
	ports := make([]string, 2)
	for i, serve := range []func(net.Listener){source, echo} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		go serve(listener)
		_, ports[i], _ = net.SplitHostPort(listener.Addr().String())
	}
	if _, err := l.coderConnect(append([]string{"up", "--user", "root"}, args...)...); err != nil {
		return err
	}
	defer func() {
		_, down := l.coderConnect("down")
		err = errors.Join(err, down)
	}()
	if l.address, err = l.inside("dig", "+short", "AAAA", "w1.coder"); err != nil {
		return err
	}
	if err := l.timed("connect, "+path+", connection and byte", "", "", l.runs, func() error {
		conn, err := l.dial(ctx, ports[1])
		if err != nil {
			return err
		}
		defer conn.Close()
		return byteBack(conn)
	}); err != nil {
		return err
	}
	conn, err := l.dial(ctx, ports[0])
	if err != nil {
		return err
	}
	rate, err := drainConn(conn, bulkTime)
	if err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	goal := ""
	if path == "direct" {
		goal = "≥ 1500"
	}
	l.add(row{Name: "connect, " + path + ", one stream", Value: rate, Unit: "Mbit/s", Goal: goal, Yardstick: loopbackRate(ctx)})
	if path == "direct" {
		if err := l.idles(ctx); err != nil {
			return err
		}
	}
	return l.moves(ctx, path, moved, ports[1])
}

// secondWire makes another way to the laptop, and takes it to be a machine with a default route.
func (l *laptop) secondWire() error {
	for _, args := range [][]string{
		{"link", "add", "benchphone2", "type", "veth", "peer", "name", "eth1", "netns", l.ns},
		{"addr", "add", "10.86.0.1/24", "dev", "benchphone2"},
		{"link", "set", "benchphone2", "up"},
		{"-n", l.ns, "addr", "add", "10.86.0.2/24", "dev", "eth1"},
		{"-n", l.ns, "route", "add", "default", "via", l.near, "dev", "eth0"},
	} {
		if _, err := l.run(append([]string{"ip"}, args...)...); err != nil {
			return err
		}
	}
	l.at = "eth0"
	return nil
}

// move takes the laptop to its other network.
func (l *laptop) move() error {
	from, to, gateway := l.at, "eth1", "10.86.0.1"
	if from == to {
		to, gateway = "eth0", l.near
	}
	l.at = to
	for _, args := range [][]string{
		{"link", "set", to, "up"}, {"route", "replace", "default", "via", gateway, "dev", to}, {"link", "set", from, "down"},
	} {
		if _, err := l.run(append([]string{"ip", "-n", l.ns}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// moves takes the laptop to another network and back while a connection is open.
func (l *laptop) moves(ctx context.Context, path, goal, port string) error {
	conn, err := l.dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := byteBack(conn); err != nil {
		return err
	}
	return l.timed("connect, "+path+", byte after a move to another network", goal, "with `ip`", 5, func() error {
		return errors.Join(l.move(), byteBack(conn))
	})
}

// idles measures what coder connect takes while no program uses it.
func (l *laptop) idles(ctx context.Context) error {
	text, err := l.coderConnect("status", "-o", "json")
	if err != nil {
		return err
	}
	var status struct {
		Keeper     int `json:"keeper_pid"`
		Workspaces []json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return err
	}
	children, err := l.run("pgrep", "--parent", strconv.Itoa(status.Keeper))
	if err != nil {
		return err
	}
	server, err := strconv.Atoi(children)
	if err != nil {
		return fmt.Errorf("the keeper's children are %q", children)
	}
	packets := func() float64 {
		text, _ := os.ReadFile("/sys/class/net/benchphone/statistics/rx_packets") // it has not moved yet
		n, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		return n
	}
	if err := wait(ctx, idleTime/2); err != nil { // what is left of the stream ends
		return err
	}
	before, sent := processorTime(server), packets()
	if err := wait(ctx, idleTime); err != nil {
		return err
	}
	of := fmt.Sprintf("%d workspaces", len(status.Workspaces))
	l.add(row{Name: "connect, idle", Value: (processorTime(server) - before).Seconds() / idleTime.Seconds() * 100, Unit: "% of a core", Goal: "≤ 0.5", Yardstick: of})
	l.add(row{Name: "connect, idle, packets from the laptop", Value: packets() - sent, Unit: "per minute", Yardstick: of})
	l.add(row{Name: "connect, resident after the stream", Value: resident(server), Unit: "MB", Goal: "≤ 30"})
	l.add(row{Name: "connect, the part with root's rights, resident", Value: resident(status.Keeper), Unit: "MB"})
	return nil
}

func wait(ctx context.Context, long time.Duration) error {
	select {
	case <-time.After(long):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// processorTime returns what a process has used, in steps of 10 ms (proc_pid_stat(5)).
func processorTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
