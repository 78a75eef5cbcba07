package sshd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

const (
	x11Base = 6000 // TCP port of display 0
	// As with sshd, lower displays are left to real X servers.
	x11First, x11Displays = 10, 1000
	maxX11Cookie          = 256 // hex digits
	xauthTimeout          = 10 * time.Second
)

// x11Request is the data of x11-req: RFC 4254, section 6.3.1.
type x11Request struct {
	Single   bool
	Protocol string
	Cookie   string // hex
	Screen   uint32
}

// parseX11 parses a request. Protocol and cookie become part of xauth commands, so it accepts only the characters of
// cookies.
func parseX11(payload []byte) (x11Request, bool) {
	var req x11Request
	if gossh.Unmarshal(payload, &req) != nil || req.Screen > 255 {
		return req, false
	}
	if req.Protocol == "" || len(req.Protocol) > 64 || req.Cookie == "" || len(req.Cookie) > maxX11Cookie ||
		len(req.Cookie)%2 != 0 {
		return req, false
	}
	const digits = "0123456789"
	ok := strings.Trim(req.Protocol, digits+"-ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && req.Protocol[0] != '-' &&
		strings.Trim(req.Cookie, digits+"abcdefABCDEF") == ""
	return req, ok
}

// x11Forward is a display in the workspace that leads to the client's X server. It listens on loopback. Programs must
// present the cookie, which the client checks and replaces with the real one.
type x11Forward struct {
	req      x11Request
	display  int
	listener net.Listener
	once     sync.Once
}

// forwardX11 opens a display for the session.
func (s *session) forwardX11(payload []byte) bool {
	req, ok := parseX11(payload)
	if !ok || s.isStarted() || s.x11 != nil {
		return false
	}
	x, err := newX11Forward(s.conn, req)
	if err != nil {
		s.log.Warn("cannot forward x11", "err", err)
		return false
	}
	s.x11 = x
	return true
}

func newX11Forward(c *conn, req x11Request) (*x11Forward, error) {
	x := &x11Forward{req: req}
	if err := x.listen(); err != nil {
		return nil, err
	}
	ok := c.begin(func() {
		c.acceptForwarded(x.listener, func(local net.Conn) {
			if req.Single {
				x.close()
			}
			origin := local.RemoteAddr().(*net.TCPAddr)
			c.open("x11", gossh.Marshal(struct {
				Origin     string
				OriginPort uint32
			}{origin.IP.String(), uint32(origin.Port)}), local)
		})
	})
	if !ok {
		x.close()
		return nil, net.ErrClosed
	}
	return x, nil
}

func (x *x11Forward) listen() (err error) {
	for x.display = x11First; x.display < x11First+x11Displays; x.display++ {
		x.listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(x11Base+x.display)))
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("find a free display: %w", err)
}

func (x *x11Forward) close() { x.once.Do(func() { x.listener.Close() }) }

// prepareX11 passes the display and its cookie to the session's programs. Without xauth it shows the user why there is
// no display.
func (s *session) prepareX11(env *proc.Env) {
	x := s.x11
	if err := x.authorize(s.conn.server.run, env); err != nil {
		s.log.Warn("cannot forward x11", "err", err)
		// fails only if the client is gone
		_, _ = fmt.Fprintf(s.channel.Stderr(), "codermesh agent: X11 is not forwarded: %v\r\n", err)
		x.close()
		return
	}
	env.Set("DISPLAY", fmt.Sprintf("localhost:%d.%d", x.display, x.req.Screen))
}

// authorize stores the cookie where X clients look for it. The cookie is never in a command line.
func (x *x11Forward) authorize(ctx context.Context, env *proc.Env) error {
	search, _ := env.Get("PATH")
	path, err := lookPath("xauth", search)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, xauthTimeout)
	defer cancel()
	name := fmt.Sprintf("unix:%d.%d", x.display, x.req.Screen) // how X clients write localhost
	cmd := exec.CommandContext(ctx, path, "-q", "-")
	cmd.Env = env.List()
	cmd.Stdin = strings.NewReader(fmt.Sprintf("remove %s\nadd %s %s %s\n", name, name, x.req.Protocol, x.req.Cookie))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run xauth: %w: %.200s", err, out.String())
	}
	return nil
}

var errNoXauth = errors.New("xauth is not installed in the workspace")

// lookPath finds a program in the workspace's search path, which is not the agent's.
func lookPath(name, search string) (string, error) {
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); filepath.IsAbs(path) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errNoXauth
}
