package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/agentpb/agentpbconnect"
)

// GitAgentEnv names the socket of the SSH agent that signs with the owner's key for git.
const GitAgentEnv = "CODER_GIT_SSH_AGENT"

// maxGitConns bounds how many programs talk to that agent at once.
const maxGitConns = 32

// gitAgent is an SSH agent that holds the owner's key for git, and nothing else. Its socket is in a folder that only the
// workspace's account can enter. The key comes from the server when somebody asks, and is in memory only while a connection
// to the socket lasts: a key that is replaced is used at once, and none is ever on a disk.
type gitAgent struct {
	fetch    func(context.Context) (*agentpb.GitSSHKeyResponse, error)
	dir      string
	listener net.Listener
	slots    chan struct{}

	mu     sync.Mutex // guards conns and closed
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

func newGitAgent(fetch func(context.Context) (*agentpb.GitSSHKeyResponse, error)) (*gitAgent, error) {
	dir, err := os.MkdirTemp("", "coder-git-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("create folder for the git key: %w", err)
	}
	g := &gitAgent{fetch: fetch, dir: dir, slots: make(chan struct{}, maxGitConns), conns: map[net.Conn]bool{}}
	if g.listener, err = net.Listen("unix", g.path()); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for the git key: %w", err), os.RemoveAll(dir))
	}
	g.wg.Go(g.serve)
	return g, nil
}

func (g *gitAgent) path() string { return filepath.Join(g.dir, "agent.sock") }

func (g *gitAgent) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		select {
		case g.slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		if !g.begin(conn) {
			conn.Close()
			return
		}
		g.wg.Go(func() {
			defer func() { <-g.slots }()
			defer g.end(conn)
			_ = sshagent.ServeAgent(&gitKeyring{fetch: g.fetch}, conn) // ends with the connection
		})
	}
}

func (g *gitAgent) begin(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[conn] = true
	}
	return !g.closed
}

func (g *gitAgent) end(conn net.Conn) {
	conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

// close ends the agent and everybody's connection to it.
func (g *gitAgent) close() error {
	g.mu.Lock()
	g.closed = true
	for conn := range g.conns {
		conn.Close()
	}
	g.mu.Unlock()
	err := g.listener.Close()
	g.wg.Wait()
	return errors.Join(err, os.RemoveAll(g.dir))
}

// gitKeyring is what one connection sees: the key, fetched when it is first needed. It cannot be changed.
type gitKeyring struct {
	fetch  func(context.Context) (*agentpb.GitSSHKeyResponse, error)
	signer ssh.Signer // nil until fetched
}

var errFixed = errors.New("this agent's key is the server's: change it there")

func (k *gitKeyring) key() (ssh.Signer, error) {
	if k.signer != nil {
		return k.signer, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	pair, err := k.fetch(ctx)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey([]byte(pair.GetPrivateKey()))
	if err != nil {
		return nil, fmt.Errorf("read git key: %w", err)
	}
	k.signer = signer
	return signer, nil
}

func (k *gitKeyring) List() ([]*sshagent.Key, error) {
	signer, err := k.key()
	if err != nil {
		return nil, err
	}
	pub := signer.PublicKey()
	return []*sshagent.Key{{Format: pub.Type(), Blob: pub.Marshal(), Comment: "workspace owner's key for git"}}, nil
}

func (k *gitKeyring) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	signer, err := k.key()
	if err != nil {
		return nil, err
	}
	if string(key.Marshal()) != string(signer.PublicKey().Marshal()) {
		return nil, errors.New("no such key")
	}
	return signer.Sign(nil, data)
}

func (k *gitKeyring) Signers() ([]ssh.Signer, error) { return nil, errFixed }
func (k *gitKeyring) Add(sshagent.AddedKey) error    { return errFixed }
func (k *gitKeyring) Remove(ssh.PublicKey) error     { return errFixed }
func (k *gitKeyring) RemoveAll() error               { return errFixed }
func (k *gitKeyring) Lock([]byte) error              { return errFixed }
func (k *gitKeyring) Unlock([]byte) error            { return errFixed }

// gitKey asks the server for the owner's key for git.
func (d *daemon) gitKey(ctx context.Context) (*agentpb.GitSSHKeyResponse, error) {
	d.mu.Lock()
	client := d.client
	d.mu.Unlock()
	if client == nil {
		return nil, errors.New("the workspace has no connection with its server now")
	}
	answer, err := client.GitSSHKey(ctx, connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	if err != nil {
		return nil, fmt.Errorf("get git key: %w", err)
	}
	return answer.Msg, nil
}

func (d *daemon) setClient(client agentpbconnect.AgentServiceClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = client
}
