package agents_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/pkg/sftp"

	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/sshmux"
)

// filesWorld is a server with a workspace of ann's, whose agent serves files below home.
type filesWorld struct {
	*world
	agent uuid.UUID
	home  string
	url   *url.URL
	stop  func() // stops the service
}

// withFiles starts a server, and what serves files of a workspace.
func withFiles(t *testing.T) *filesWorld {
	t.Helper()
	home := t.TempDir()
	w := filesAt(t, serveChannels(t, func(channel *sshmux.Channel) {
		server, err := sftp.NewServer(channel, sftp.WithServerWorkingDirectory(home))
		if err == nil {
			_ = server.Serve()
		}
	}))
	w.home = home
	return w
}

// serveChannels accepts SSH channels, as an agent does, and serves each with serve. It returns the address.
func serveChannels(t *testing.T, serve func(*sshmux.Channel)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				mux := sshmux.New(raw, sshmux.Options{Server: true})
				defer mux.Close()
				for opened := range mux.Channels() {
					channel, err := opened.Accept()
					if err != nil {
						return
					}
					running.Go(func() {
						for req := range channel.Requests() {
							_ = req.Reply(true)
						}
					})
					serve(channel)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String()
}

// filesAt starts a server whose agent's SSH channels are served at an address.
func filesAt(t *testing.T, addr string) *filesWorld {
	t.Helper()
	w, _, id := running(t)
	w.opts.Mesh = &fakeMesh{dial: func(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error) {
		if agent != id || port != meshport.Session {
			return nil, fault.New(fault.Unavailable, "The workspace's agent is not connected.")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}}
	w.opts.Connections = audit.NewConnections(w.DB, w.log)
	life, end := context.WithCancel(context.Background())
	recorded := make(chan struct{})
	go func() { defer close(recorded); w.opts.Connections.Run(life) }()
	t.Cleanup(func() { end(); <-recorded })
	s := agents.New(w.opts)
	s.Start()
	t.Cleanup(s.Stop)
	return &filesWorld{world: w, agent: id, url: w.Serve(s), stop: s.Stop}
}

// request sends a request of a user about files; query has pairs of names and values.
func (w *filesWorld) request(user, method, route string, body io.Reader, query ...string) (*http.Response, string) {
	w.T.Helper()
	resp, err := w.send(user, method, route, body, query...)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, route, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, route, err)
	}
	return resp, string(content)
}

func (w *filesWorld) send(user, method, route string, body io.Reader, query ...string) (*http.Response, error) {
	w.T.Helper()
	values := url.Values{}
	for pair := range slices.Chunk(query, 2) {
		values.Set(pair[0], pair[1])
	}
	at := w.url.JoinPath("/api/v2/workspaceagents", w.agent.String(), "files", route)
	at.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(w.T.Context(), method, at.String(), body)
	if err != nil {
		w.T.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token(user))
	return http.DefaultClient.Do(req)
}

// status sends a request of ann's and checks the status of its answer.
func (w *filesWorld) status(want int, method, route string, body io.Reader, query ...string) string {
	w.T.Helper()
	resp, content := w.request("ann", method, route, body, query...)
	if resp.StatusCode != want {
		w.T.Fatalf("%s %s %q: status %d, want %d: %s", method, route, query, resp.StatusCode, want, content)
	}
	return content
}

func (w *filesWorld) list(query ...string) sdk.AgentFiles {
	w.T.Helper()
	var out sdk.AgentFiles
	if err := json.Unmarshal([]byte(w.status(http.StatusOK, http.MethodGet, "", nil, query...)), &out); err != nil {
		w.T.Fatal(err)
	}
	return out
}

func (w *filesWorld) write(name, content string, mode os.FileMode) {
	w.T.Helper()
	if err := os.WriteFile(filepath.Join(w.home, name), []byte(content), mode); err != nil {
		w.T.Fatal(err)
	}
}

// names returns what the home folder has.
func (w *filesWorld) names() []string {
	w.T.Helper()
	entries, err := os.ReadDir(w.home)
	if err != nil {
		w.T.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (w *filesWorld) filesOf(agent uuid.UUID) *filesWorld {
	other := *w
	other.agent = agent
	return &other
}
