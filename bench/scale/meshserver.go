package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// A mesh server is the server's part of the mesh in a process of its own: coordinator, relay, links to other servers
// and turns to join are the product's. There is no database: a token is the id of whom it belongs to, and everyone may
// see everyone.
//
// It prints its URL, and then reads commands, one on a line. It ends with its input.
//
//	others ID=URL …   links to other servers
//	arrived ID        an agent's stream has begun
//	state             prints a meshState as JSON

// serveMeshFlag makes this program a mesh server. The server's id follows.
const serveMeshFlag = "-serve-mesh"

// meshState is what a mesh server reports.
type meshState struct {
	Online, Lost int    // participants that are, or were last, connected to it
	Linked       int    // other servers
	Messages     uint64 // sent to them
}

// meshAccounts are users, by their ids.
type meshAccounts struct{}

func (meshAccounts) Authenticate(r *http.Request) (rbac.Actor, error) {
	id, err := uuid.Parse(r.Header.Get(sdk.SessionHeader))
	return meshActor(id), err
}

func (meshAccounts) Session(_ context.Context, _ string, user uuid.UUID) (rbac.Actor, error) {
	return meshActor(user), nil
}

func meshActor(id uuid.UUID) rbac.Actor {
	return rbac.Actor{UserID: id, Username: id.String(), KeyID: id.String(), Memberships: []rbac.Membership{{Organization: uuid.Max}}}
}

// meshAgents are agents, by their ids.
type meshAgents struct{}

func (meshAgents) AuthenticateAgent(_ context.Context, token secret.Token) (mesh.Agent, error) {
	id, err := uuid.Parse(token.Reveal())
	return mesh.Agent{ID: id, Name: id.String(), Owner: id}, err
}

func (meshAgents) MayConnect(context.Context, rbac.Actor, uuid.UUID) error { return nil }

func (meshAgents) ByName(context.Context, uuid.UUID, string) (uuid.UUID, error) {
	return uuid.Nil, errNobody
}

func (meshAgents) Reachable(_ context.Context, _ uuid.UUID, agents ...uuid.UUID) ([]uuid.UUID, error) {
	return agents, nil
}

func (meshAgents) Paths(context.Context, uuid.UUID) ([]tailnet.PeerStatus, error) { return nil, nil }

// meshOthers refuses provisioners and regions.
type meshOthers struct{}

var errNobody = fault.New(fault.Unauthenticated, "There are only agents and users here.")

func (meshOthers) Authenticate(context.Context, secret.Token) (mesh.ProvisionerKey, error) {
	return mesh.ProvisionerKey{}, errNobody
}
func (meshOthers) Existing(context.Context, []uuid.UUID) ([]uuid.UUID, error) { return nil, nil }
func (meshOthers) Organization(context.Context, string) (uuid.UUID, error) {
	return uuid.Nil, errNobody
}
func (meshOthers) Cut(context.Context, uuid.UUID, string) error { return nil }
func (meshOthers) AuthenticateProxy(context.Context, secret.Token) (mesh.RegionProxy, error) {
	return mesh.RegionProxy{}, errNobody
}
func (meshOthers) MayVisit(context.Context, mesh.RegionProxy, uuid.UUID, uuid.UUID) error {
	return errNobody
}

// meshArgument returns the id of the mesh server that this process shall be.
func meshArgument() (uuid.UUID, bool) {
	if len(os.Args) != 3 || os.Args[1] != serveMeshFlag {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(os.Args[2])
	return id, err == nil
}

// serveMesh serves until in ends.
func serveMesh(id uuid.UUID, in io.Reader, out io.Writer) error {
	key := sha256.Sum256([]byte("the same at all mesh servers"))
	signer, err := signed.New(key[:])
	if err != nil {
		return err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	local := &url.URL{Scheme: "http", Host: l.Addr().String()}
	s, err := mesh.New(mesh.Options{Logger: quiet, ID: id, Accounts: meshAccounts{}, Keys: meshOthers{}, Signer: signer, STUNAddress: "off", LocalURL: local})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.Bind(meshAgents{}, meshOthers{}, meshOthers{})
	mux := httpapi.NewMux(httpapi.Options{Logger: quiet, Authenticate: meshAccounts{}.Authenticate})
	s.Routes(mux)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	defer func() { _ = web.Close() }()
	if err := s.Start(http.NotFoundHandler()); err != nil {
		return errors.Join(err, s.Close())
	}
	fmt.Fprintln(out, local)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := obey(s, lines.Text(), out); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	select {
	case err := <-failed:
		return errors.Join(err, s.Close())
	default:
		return errors.Join(lines.Err(), s.Close())
	}
}

// obey carries out a command.
func obey(s *mesh.Service, line string, out io.Writer) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return errors.New("an empty command")
	}
	switch words[0] {
	case "others":
		var others []mesh.Replica
		for _, word := range words[1:] {
			name, at, _ := strings.Cut(word, "=")
			id, err := uuid.Parse(name)
			if err != nil {
				return err
			}
			u, err := url.Parse(at)
			if err != nil {
				return err
			}
			others = append(others, mesh.Replica{ID: id, URL: u})
		}
		s.SetReplicas(others)
	case "arrived":
		id, err := uuid.Parse(strings.Join(words[1:], ""))
		if err != nil {
			return err
		}
		s.AgentArrived(id) // the stream never ends: agents do not leave a server that lives
	case "state":
		n := s.Numbers()
		state := meshState{Online: n.Online, Lost: n.Lost, Linked: len(s.Linked())}
		for _, link := range s.ServerLinks() {
			state.Messages += link.MessagesSent
		}
		return json.NewEncoder(out).Encode(state)
	default:
		return fmt.Errorf("the command %q", words[0])
	}
	return nil
}

// meshProcess is a mesh server, seen from the process that loads it.
type meshProcess struct {
	id  uuid.UUID
	cmd *exec.Cmd
	url *url.URL
	// gone is set before the server is killed.
	gone atomic.Bool

	mu   sync.Mutex // guards what follows: one command at a time
	in   io.WriteCloser
	out  *bufio.Scanner
	dead bool
}

func startMesh(ctx context.Context) (*meshProcess, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &meshProcess{id: uuid.New()}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), own, serveMeshFlag, p.id.String()) // close ends it
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	if !p.out.Scan() {
		return nil, errors.Join(errors.New("a mesh server did not start"), p.close())
	}
	p.url, err = url.Parse(p.out.Text())
	return p, err
}

// send sends a command without an answer. A server that is dead hears nothing.
func (p *meshProcess) send(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil
	}
	_, err := fmt.Fprintln(p.in, line)
	return err
}

// state asks for the server's state.
func (p *meshProcess) state() (s meshState, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, "state"); err != nil {
		return s, err
	}
	if !p.out.Scan() {
		return s, errors.New("a mesh server has ended")
	}
	return s, json.Unmarshal(p.out.Bytes(), &s)
}

// kill ends the server like a power failure of its machine's program: the kernel closes its connections.
func (p *meshProcess) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // it says that it was killed
	return nil
}

func (p *meshProcess) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return nil
	}
	p.dead = true
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
