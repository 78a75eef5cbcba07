package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// bulkTime is how long a measurement of a stream takes.
const bulkTime = 5 * time.Second

// loopbackRate measures the yardstick of streams: the rate of plain TCP on this machine's loopback in the same minute.
func loopbackRate(ctx context.Context) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	go source(l)
	rate, err := drain(ctx, l.Addr().String(), time.Second)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("loopback TCP %.0f Mbit/s", rate)
}

// source writes zeros to each connection, until l is closed or the other end disconnects.
func source(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, 128<<10)
			for {
				if _, err := conn.Write(buf); err != nil {
					return
				}
			}
		}()
	}
}

// drain reads from addr for the given time and returns Mbit/s.
func drain(ctx context.Context, addr string, long time.Duration) (float64, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	return drainConn(conn, long)
}

// drainConn is drain for a connection, which it closes.
func drainConn(conn net.Conn, long time.Duration) (float64, error) {
	defer conn.Close()
	begin, total := time.Now(), 0
	buf := make([]byte, 256<<10)
	for time.Since(begin) < long {
		n, err := conn.Read(buf)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return float64(total) * 8 / 1e6 / time.Since(begin).Seconds(), nil
}

// echo sends every byte back.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
	}
}

// roundTrips measures one-byte round trips to addr, in milliseconds: p50 and p99.
func roundTrips(ctx context.Context, addr string, n int) (p50, p99 float64, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	times := make([]float64, n)
	var b [1]byte
	for i := range times {
		begin := time.Now()
		if _, err := conn.Write(b[:]); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return 0, 0, err
		}
		times[i] = time.Since(begin).Seconds() * 1e3
	}
	times = times[min(n/6, 100):] // the first ones find the path
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], nil
}

// forward measures a stream and round trips through `coder port-forward`, and the same over loopback.
func (d *day) forward(ctx context.Context) error {
	bulk, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer bulk.Close()
	go source(bulk)
	small, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer small.Close()
	go echo(small)
	bulkAddr, close1, err := d.forwarded(ctx, bulk)
	if err != nil {
		return err
	}
	defer close1()
	smallAddr, close2, err := d.forwarded(ctx, small)
	if err != nil {
		return err
	}
	defer close2()
	rate, err := drain(ctx, bulkAddr, bulkTime)
	if err != nil {
		return fmt.Errorf("stream through a forward: %w", err)
	}
	d.add(row{
		Name: "port-forward, one stream", Value: rate, Unit: "Mbit/s", Goal: "≥ 1500", Yardstick: loopbackRate(ctx),
	})
	plain50, plain99, err := roundTrips(ctx, small.Addr().String(), 2000)
	if err != nil {
		return err
	}
	p50, p99, err := roundTrips(ctx, smallAddr, 2000)
	if err != nil {
		return fmt.Errorf("round trips through a forward: %w", err)
	}
	yardstick := fmt.Sprintf("loopback TCP %.3f / %.3f ms", plain50, plain99)
	d.add(row{Name: "one byte through a forward, p50", Value: p50, Unit: "ms", Goal: "≤ 0.25", Yardstick: yardstick})
	d.add(row{Name: "one byte through a forward, p99", Value: p99, Unit: "ms", Goal: "≤ 0.45", Yardstick: yardstick})
	return nil
}

// forwarded starts a port-forward to l and returns its local address once it accepts connections.
func (d *day) forwarded(ctx context.Context, l net.Listener) (addr string, stop func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	addr = free.Addr().String()
	free.Close()
	_, local, _ := net.SplitHostPort(addr)
	_, remote, _ := net.SplitHostPort(l.Addr().String())
	cmd := d.command(ctx, "port-forward", "w1", "--tcp", local+":"+remote)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }
	for range 500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return addr, stop, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("port-forward to %s does not listen", remote)
}

// openSSH measures the yardstick of sessions: the same command through a stock sshd on loopback, if this machine has
// one.
func (d *day) openSSH(ctx context.Context) string {
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		return "no sshd on this machine"
	}
	dir := filepath.Join(d.dir, "sshd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err.Error()
	}
	for _, key := range []string{"host", "user"} {
		if err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).Run(); err != nil {
			return "ssh-keygen: " + err.Error()
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err.Error()
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	_ = os.MkdirAll("/run/sshd", 0o755) // sshd's own requirement; an error shows below
	server := exec.CommandContext(ctx, sshd, "-D", "-f", "/dev/null", "-h", filepath.Join(dir, "host"), "-o", "ListenAddress=127.0.0.1:"+port,
		"-o", "AuthorizedKeysFile="+filepath.Join(dir,
			"user.pub"), "-o", "StrictModes=no", "-o", "PidFile=none", "-o", "PermitRootLogin=yes")
	if err := server.Start(); err != nil {
		return err.Error()
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	times := make([]float64, 0, d.runs)
	for tries := 0; len(times) < d.runs && tries < d.runs+100; tries++ {
		begin := time.Now()
		err := exec.CommandContext(ctx, "ssh", "-F", "/dev/null", "-i", filepath.Join(dir, "user"), "-p", port, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
			"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "127.0.0.1", "true").Run()
		if err != nil {
			time.Sleep(20 * time.Millisecond) // not listening yet
			continue
		}
		times = append(times, time.Since(begin).Seconds())
	}
	if len(times) == 0 {
		return "sshd does not answer"
	}
	slices.Sort(times)
	return fmt.Sprintf("OpenSSH over loopback %.3f s", times[len(times)/2])
}
