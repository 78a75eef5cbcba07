package session_test

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
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/session"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/meshclient"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// patience bounds waits that a correct program never uses up.
const patience = testwait.Patience

// remote is the workspace's end of a session.
type remote struct {
	*sshmux.Channel
	command string            // "" for a shell
	env     map[string]string // as the client asked for it
	signals chan string
}

func (r *remote) exit(status uint32) {
	_, _ = r.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status})) // the client may have gone
	r.Close()
}

// world is a session with a workspace. The API shows the workspace as ws.
type world struct {
	*session.Session
	conn     net.Conn // to the workspace
	agent    *sshmux.Conn
	ws       sdk.Workspace
	out, err bytes.Buffer
}

// newWorld returns a session whose programs handle runs. The input is a user's.
func newWorld(t *testing.T, input string, handle func(*remote)) *world {
	t.Helper()
	w := &world{ws: sdk.Workspace{ID: uuid.New(), Name: "dev", OwnerName: "ann", LatestBuild: sdk.WorkspaceBuild{ID: uuid.New(), Transition: sdk.TransitionStart}}}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v2/workspaces/") { // there is no mesh
			http.NotFound(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(rw).Encode(w.ws); err != nil {
			t.Error(err)
		}
	}))
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(base, "ann", sdk.Options{})
	mesh := meshclient.Start(meshclient.Options{URL: base, HTTPClient: client.HTTP()})
	near, far := net.Pipe()
	w.conn, w.agent = near, sshmux.New(far, sshmux.Options{Server: true})
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(t, w.agent, handle)
	}()
	t.Cleanup(func() {
		near.Close()
		w.agent.Close()
		<-served
		mesh.Close()
		client.HTTP().CloseIdleConnections()
		api.Close()
	})
	w.Session = &session.Session{
		Target: &target.Target{Workspace: w.ws, Client: client, Mesh: mesh}, Logger: slog.New(slog.DiscardHandler),
		Streams: &tty.Streams{In: strings.NewReader(input), Out: &w.out, Err: &w.err},
	}
	return w
}

// serve runs the sessions of one connection.
func serve(t *testing.T, conn *sshmux.Conn, handle func(*remote)) {
	for incoming := range conn.Channels() {
		channel, err := incoming.Accept()
		if err != nil {
			return
		}
		r := &remote{Channel: channel, env: map[string]string{}, signals: make(chan string, 1)}
		for request := range channel.Requests() {
			var one struct{ Text string }
			var pair struct{ Name, Value string }
			switch request.Type {
			case "env":
				if err := ssh.Unmarshal(request.Payload, &pair); err != nil {
					t.Error(err)
				}
				r.env[pair.Name] = pair.Value
			case "signal":
				if err := ssh.Unmarshal(request.Payload, &one); err != nil {
					t.Error(err)
				}
				r.signals <- one.Text
			case "exec", "shell":
				if request.Type == "exec" {
					if err := ssh.Unmarshal(request.Payload, &one); err != nil {
						t.Error(err)
					}
					r.command = one.Text
				}
				go handle(r)
			}
			_ = request.Reply(request.Type == "exec" || request.Type == "shell") // the client may have gone
		}
	}
}

func (w *world) run(t *testing.T, opts session.Options, command ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return w.Run(ctx, w.conn, command, opts)
}

// TestRun checks that a command gets its words, environment and input, and that its output and status come back.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "some input", func(r *remote) {
		input, err := io.ReadAll(r)
		fmt.Fprintf(r, "%s with EDITOR=%s and %q, %v", r.command, r.env["EDITOR"], input, err)
		fmt.Fprint(r.Stderr(), "a warning")
		r.exit(7)
	})
	err := w.run(t, session.Options{Env: []string{"EDITOR=vi"}}, "make", "test")
	if ended, ok := errors.AsType[*exit.Error](err); !ok || ended.Code != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
	if got, want := w.out.String(), `make test with EDITOR=vi and "some input", <nil>`; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if got := w.err.String(); got != "a warning" {
		t.Errorf("errors %q", got)
	}
}

// TestRunShell checks that a shell that ends well is no error.
func TestRunShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(r *remote) {
		fmt.Fprintf(r, "a shell %q", r.command)
		r.exit(0)
	})
	if err := w.run(t, session.Options{}); err != nil || w.out.String() != `a shell ""` {
		t.Errorf("got %v and %q", err, w.out.String())
	}
}

// TestRunLost checks that a session whose connection ends tells the user the reason that the server knows.
func TestRunLost(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, "", func(*remote) { w.agent.Close() })
	w.ws.LatestBuild.Transition, w.ws.LatestBuild.InitiatorName = sdk.TransitionStop, "bob"
	err := w.run(t, session.Options{}, "sleep", "60")
	if err == nil || !strings.Contains(err.Error(), "the workspace ann/dev was stopped by bob") {
		t.Errorf("got %v", err)
	}
}

// TestRunInterrupted checks that the end of the caller's context interrupts the remote command.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	signal := make(chan string, 1)
	w := newWorld(t, "", func(r *remote) {
		cancel()
		signal <- <-r.signals
	})
	if err := w.Run(ctx, w.conn, []string{"sleep", "60"}, session.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	select {
	case got := <-signal:
		if got != string(ssh.SIGINT) {
			t.Errorf("the command got SIG%s, want SIGINT", got)
		}
	case <-time.After(patience):
		t.Error("the command was not interrupted")
	}
}

// TestRunEarlyEnd checks that a session whose connection ends before the agent answers begins anew, unless something was sent that has an
// effect. Such an end never tells the user to restart the workspace.
func TestRunEarlyEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		input   io.Reader
		command []string
		again   bool
	}{
		"shell":             {input: blocked(t), again: true},
		"shell with input":  {input: strings.NewReader("make\n")},
		"command":           {input: blocked(t), command: []string{"make"}},
		"command and input": {input: strings.NewReader("make\n"), command: []string{"sh"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", func(r *remote) {
				fmt.Fprint(r, "hello")
				r.exit(0)
			})
			w.Streams.In = c.input
			near, far := net.Pipe()
			go func() { // a peer that cuts the connection once it has read everything that a session begins with
				buf := make([]byte, 1<<10)
				for got := ""; !strings.Contains(got, "shell") && !strings.Contains(got, "exec") || c.input != nil && !c.again && c.command == nil && !strings.Contains(got, "make"); {
					n, err := far.Read(buf)
					if err != nil {
						break
					}
					got += string(buf[:n])
				}
				far.Close()
			}()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			dialed := 0
			err := w.Run(ctx, near, c.command, session.Options{Redial: func(context.Context) (net.Conn, error) {
				dialed++
				return w.conn, nil
			}})
			if c.again {
				if err != nil || dialed != 1 || w.out.String() != "hello" {
					t.Errorf("got %v after %d more dials, output %q", err, dialed, w.out.String())
				}
				return
			}
			if dialed != 0 || !errors.Is(err, sshmux.ErrEarly) || errors.Is(err, sshmux.ErrVersion) {
				t.Errorf("got %v after %d more dials, want %v", err, dialed, sshmux.ErrEarly)
			}
			if hint, ok := exit.Hint(err); ok {
				t.Errorf("a cut connection suggests %q", hint)
			}
			if c.command != nil && !strings.Contains(fmt.Sprint(err), "The command may have started") {
				t.Errorf("got %v, which does not say that the command may have started", err)
			}
		})
	}
}

// TestRunVersion checks that a version that was read, and no other end, suggests a restart.
func TestRunVersion(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]session.Options{"plain": {}, "environment": {Env: []string{"A=1", "B=2", "C=3"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			near, far := net.Pipe()
			go func() {
				go io.Copy(io.Discard, far)
				io.WriteString(far, "SMX\x7f")
			}()
			t.Cleanup(func() { far.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := w.Run(ctx, near, []string{"true"}, options)
			if hint, _ := exit.Hint(err); !errors.Is(err, sshmux.ErrVersion) || !strings.Contains(hint, "coder restart ann/dev") {
				t.Errorf("got %v, hint %q", err, hint)
			}
		})
	}
}

// blocked returns an input that has nothing to read until the test ends.
func blocked(t *testing.T) io.Reader {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}
