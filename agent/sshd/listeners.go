package sshd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	gossh "golang.org/x/crypto/ssh"
)

// tcpForward is the data of tcpip-forward: RFC 4254, section 7.1.
type tcpForward struct {
	Host string
	Port uint32
}

// forwardedTCP is the data of forwarded-tcpip: RFC 4254, section 7.2.
type forwardedTCP struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

// unixForward and forwardedUnix follow OpenSSH's PROTOCOL file, section 2.4.
type unixForward struct{ Path string }

type forwardedUnix struct{ Path, Reserved string }

// forwardTCP listens in the workspace for the client. As with GatewayPorts=clientspecified, the client names the
// interface; "localhost" means loopback only.
func (c *conn) forwardTCP(payload []byte) (bool, []byte) {
	var req tcpForward
	if gossh.Unmarshal(payload, &req) != nil || req.Port > 65535 {
		return false, nil
	}
	host := req.Host
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "*":
		host = ""
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(req.Port))))
	if err != nil {
		c.server.log.Info("remote forward refused", "addr", req.Host, "err", err)
		return false, nil
	}
	port := uint32(l.Addr().(*net.TCPAddr).Port)
	key := tcpKey(req.Host, port)
	ok := c.listen(key, l, func(local net.Conn) {
		origin := local.RemoteAddr().(*net.TCPAddr)
		c.open("forwarded-tcpip", gossh.Marshal(forwardedTCP{req.Host, port, origin.IP.String(), uint32(origin.Port)}),
			local)
	})
	if !ok || req.Port != 0 {
		return ok, nil
	}
	return true, gossh.Marshal(struct{ Port uint32 }{port})
}

func (c *conn) cancelForwardTCP(payload []byte) (bool, []byte) {
	var req tcpForward
	if gossh.Unmarshal(payload, &req) != nil {
		return false, nil
	}
	return c.cancel(tcpKey(req.Host, req.Port)), nil
}

func tcpKey(host string, port uint32) string { return fmt.Sprintf("tcp %s %d", host, port) }

func (c *conn) forwardUnix(payload []byte) (bool, []byte) {
	var req unixForward
	if gossh.Unmarshal(payload, &req) != nil {
		return false, nil
	}
	l, err := listenUnix(req.Path)
	if err != nil {
		c.server.log.Info("remote forward refused", "path", req.Path, "err", err)
		return false, nil
	}
	return c.listen(unixKey(req.Path), l, func(local net.Conn) {
		c.open("forwarded-streamlocal@openssh.com", gossh.Marshal(forwardedUnix{Path: req.Path}), local)
	}), nil
}

func (c *conn) cancelForwardUnix(payload []byte) (bool, []byte) {
	var req unixForward
	if gossh.Unmarshal(payload, &req) != nil {
		return false, nil
	}
	return c.cancel(unixKey(req.Path)), nil
}

func unixKey(path string) string { return "unix " + path }

// listenUnix listens on a socket that only the account can use. It replaces a stale socket, on which no process
// listens.
func listenUnix(path string) (net.Listener, error) {
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(context.Background(), "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode().Type() != os.ModeSocket {
		return nil, err
	}
	if conn, dialErr := net.Dial("unix", path); dialErr == nil {
		conn.Close()
		return nil, err
	}
	if rmErr := os.Remove(path); rmErr != nil {
		return nil, rmErr
	}
	return config.Listen(context.Background(), "unix", path)
}

// listen keeps a listener for the life of the connection. If it cannot, it closes l.
func (c *conn) listen(key string, l net.Listener, serve func(net.Conn)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || len(c.listeners) >= maxListeners || c.listeners[key] != nil {
		l.Close()
		return false
	}
	c.listeners[key] = l
	c.wg.Go(func() { c.acceptForwarded(l, serve) })
	return true
}

func (c *conn) cancel(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.listeners[key]
	if !ok {
		return false
	}
	delete(c.listeners, key)
	l.Close()
	return true
}
