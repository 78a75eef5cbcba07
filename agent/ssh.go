package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

// maxSSHClients bounds the clients of the SSH port. Each costs more than one of ours: SSH encrypts again what the mesh
// has encrypted.
const maxSSHClients = 128

// maxCertificate bounds the certificate of the host key, in bytes.
const maxCertificate = 16 << 10

// serveSSH answers stock SSH clients on the mesh until the daemon closes. It has no sessions of its own: it passes
// channels on to those of `coder ssh`. The mesh has proven who the clients are, so they need not sign in, and the host
// key lets them recognize the workspace. A server that gives no host key has no clients for this port either.
func (d *daemon) serveSSH(m *agentpb.ManifestResponse) {
	defer d.regionSSH.Close()
	seed := m.GetSshHostKey()
	if len(seed) != ed25519.SeedSize {
		d.sshListener.Close()
		return
	}
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed))
	if err != nil {
		d.log.Error("cannot use ssh host key", "err", err)
		d.sshListener.Close()
		return
	}
	server := bridge.NewServer(bridge.ServerOptions{
		HostKeys: func(context.Context) []ssh.Signer {
			_, m := d.current()
			certified, err := certifiedKey(key, m.GetSshHostCertificate())
			if err != nil {
				d.log.Debug("cannot use ssh host certificate", "err", err)
				return []ssh.Signer{key}
			}
			return []ssh.Signer{certified, key}
		},
		Logger: d.log, Limit: maxSSHClients,
		Dial: func(ctx context.Context, client *ssh.ServerConn, say func(string)) (net.Conn, error) {
			if err := d.awaitScripts(ctx, say); err != nil {
				return nil, err
			}
			return d.sshClients.dial(client.RemoteAddr())
		},
	})
	var serving sync.WaitGroup
	for _, l := range []net.Listener{d.sshListener, d.regionSSH} {
		serving.Go(func() {
			if err := server.Serve(l); err != nil {
				d.log.Error("cannot accept ssh connections", "err", err)
			}
		})
	}
	serving.Wait()
	if err := server.Close(); err != nil {
		d.log.Debug("cannot close ssh server", "err", err)
	}
}

// certifiedKey returns the host key with a certificate in the wire format. It returns an error if there is none for
// this key.
func certifiedKey(key ssh.Signer, wire []byte) (ssh.Signer, error) {
	if len(wire) == 0 || len(wire) > maxCertificate {
		return nil, fmt.Errorf("the manifest has a certificate of %d bytes", len(wire))
	}
	parsed, err := ssh.ParsePublicKey(wire)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	cert, ok := parsed.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.HostCert {
		return nil, errors.New("this is no certificate of a host")
	}
	return ssh.NewCertSigner(cert, key) // which compares the keys
}

// awaitScripts returns when no start script blocks logins any more, and says what it waits for. Our own client waits by
// its own means.
func (d *daemon) awaitScripts(ctx context.Context, say func(string)) error {
	for shown := false; ; shown = true {
		_, m := d.current()
		changed := d.logins.closed(m.GetIncarnation())
		if changed == nil {
			return nil
		}
		if !shown {
			say(waitingText)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
