package agent

import (
	"context"
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"
	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// GitAgentEnv names the socket of the SSH agent that signs with the owner's key for git.
const GitAgentEnv = "CODER_GIT_SSH_AGENT"

// serveGitKey serves an SSH agent that holds only the owner's key for git. fetch gets the key when a client first needs
// it, and the key stays in memory only as long as the connection: a replaced key takes effect at once, and no key is
// ever on a disk.
func serveGitKey(ctx context.Context, conn net.Conn, fetch func(context.Context) (*agentpb.GitSSHKeyResponse, error)) {
	_ = sshagent.ServeAgent(&gitKeyring{ctx: ctx, fetch: fetch}, conn) // ends with the connection
}

// gitKeyring serves one connection. It fetches the key when a client first needs it. Clients cannot change it.
type gitKeyring struct {
	ctx    context.Context // of the connection; the library passes none
	fetch  func(context.Context) (*agentpb.GitSSHKeyResponse, error)
	signer ssh.Signer // nil until fetched
}

var errFixed = errors.New("this agent's key is the server's: change it there")

func (k *gitKeyring) key() (ssh.Signer, error) {
	if k.signer != nil {
		return k.signer, nil
	}
	ctx, cancel := context.WithTimeout(k.ctx, callTimeout)
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
func (u *uplink) gitKey(ctx context.Context) (*agentpb.GitSSHKeyResponse, error) {
	client, err := u.now()
	if err != nil {
		return nil, err
	}
	answer, err := client.GitSSHKey(ctx, connect.NewRequest(&agentpb.GitSSHKeyRequest{}))
	if err != nil {
		return nil, fmt.Errorf("get git key: %w", err)
	}
	return answer.Msg, nil
}
