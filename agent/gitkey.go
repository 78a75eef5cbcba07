package agent

import (
	"context"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"
	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/agentpb/agentpbconnect"
)

// GitAgentEnv names the socket of the SSH agent that signs with the owner's key for git.
const GitAgentEnv = "CODER_GIT_SSH_AGENT"

// gitAgent is an SSH agent that holds the owner's key for git, and nothing else. The key comes from the server when somebody asks,
// and is in memory only while a connection to the socket lasts: a key that is replaced is used at once, and none is ever on a disk.
type gitAgent struct{ *privateSocket }

func newGitAgent(dir string, fetch func(context.Context) (*agentpb.GitSSHKeyResponse, error)) (*gitAgent, error) {
	socket, err := newPrivateSocket(dir, func(conn net.Conn) {
		_ = sshagent.ServeAgent(&gitKeyring{fetch: fetch}, conn) // ends with the connection
	})
	if err != nil {
		return nil, err
	}
	return &gitAgent{socket}, nil
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

// server is the connection with the server, if there is one now.
func (d *daemon) server() (agentpbconnect.AgentServiceClient, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == nil {
		return nil, errors.New("the workspace has no connection with its server now")
	}
	return d.client, nil
}

// gitKey asks the server for the owner's key for git.
func (d *daemon) gitKey(ctx context.Context) (*agentpb.GitSSHKeyResponse, error) {
	client, err := d.server()
	if err != nil {
		return nil, err
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
