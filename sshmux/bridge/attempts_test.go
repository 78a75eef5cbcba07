package bridge_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux/bridge"
)

// proving is a key that notes how often its holder was asked to prove to have it.
type proving struct {
	ssh.Signer
	asked *atomic.Int32
}

func (p proving) Sign(rand io.Reader, data []byte) (*ssh.Signature, error) {
	p.asked.Add(1)
	return p.Signer.Sign(rand, data)
}

// stolen is a public key whose private key the client does not have: it signs with its own.
type stolen struct {
	ssh.Signer
	of ssh.PublicKey
}

func (s stolen) PublicKey() ssh.PublicKey { return s.of }

// asking counts the questions about keys that are offered.
type asking struct {
	people
	known atomic.Int32
}

func (a *asking) Known(ctx context.Context, key ssh.PublicKey) bool {
	a.known.Add(1)
	return a.people.Known(ctx, key)
}

func (a *asking) SignIn(client ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	if a.name(key) == "" {
		return nil, errors.New("unknown")
	}
	return a.people.SignIn(client, key)
}

// trial is a server that ada and bob may sign in at, and what clients have seen of it. All clients come from one network.
type trial struct {
	*testing.T
	keys    *asking
	connect func() net.Conn
}

func newTrial(t *testing.T) *trial {
	keys := &asking{people: people{ada: newKey(t), bob: newKey(t)}}
	return &trial{t, keys, serving(t, bridge.ServerOptions{Keys: keys})}
}

// offer connects with keys, and returns whether one signed the client in, and how often it was asked to prove that it has one.
func (t *trial) offer(keys ...ssh.Signer) (in bool, asked int) {
	t.Helper()
	var proofs atomic.Int32
	var signers []ssh.Signer
	for _, key := range keys {
		signers = append(signers, proving{key, &proofs})
	}
	conn := t.connect()
	defer conn.Close()
	client, channels, requests, err := ssh.NewClientConn(conn, "", &ssh.ClientConfig{
		User: "dev", Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err == nil {
		go ssh.DiscardRequests(requests)
		client.Close()
		for range channels {
		}
	}
	return err == nil, int(proofs.Load())
}

func (t *trial) want(what string, in bool, asked int, keys ...ssh.Signer) {
	t.Helper()
	if gotIn, gotAsked := t.offer(keys...); gotIn != in || gotAsked != asked {
		t.Errorf("%s: signed in %t, asked to prove %d keys, want %t and %d", what, gotIn, gotAsked, in, asked)
	}
}

// exhaust offers keys that no one has until the limit is reached.
func (t *trial) exhaust() {
	t.Helper()
	const each = 6 // as many as the library allows on one connection
	for range bridge.MaxRefused / each {
		var keys []ssh.Signer
		for range each {
			keys = append(keys, newKey(t))
		}
		t.want("before the limit", false, 0, keys...)
	}
}

// TestProbing: a client that has only public keys, such as those that a code host publishes, learns of a few whether they sign someone in here. Then
// all look alike, while the owners of keys sign in as before.
func TestProbing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTrial(t)
		s.want("ada's public key", false, 1, stolen{newKey(t), s.keys.ada.PublicKey()})
		s.exhaust()
		asked := s.keys.known.Load()
		s.want("ada's public key beyond the limit", false, 1, stolen{newKey(t), s.keys.ada.PublicKey()})
		s.want("a key that no one has", false, 1, stolen{newKey(t), newKey(t).PublicKey()})
		s.want("a key that signs no one in, proven", false, 1, newKey(t))
		s.want("ada", true, 1, s.keys.ada)
		s.want("ada, who has another key first", true, 2, newKey(t), s.keys.ada)
		if n := s.keys.known.Load() - asked; n != 0 {
			t.Errorf("%d keys were looked up that no one has proven to have", n)
		}
		// One more answer each time that one refused key counts no more.
		time.Sleep(bridge.ForgiveEvery)
		s.want("later", false, 0, newKey(t))
		s.want("once only", false, 1, newKey(t))
		time.Sleep(bridge.MaxRefused * bridge.ForgiveEvery)
		s.exhaust()
	})
}

// TestManyKeysOfOneUser: what a client was refused before it signed in does not count.
func TestManyKeysOfOneUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newTrial(t)
		for range bridge.MaxRefused/2 + 1 {
			s.want("ada, whose agent has another key first", true, 1, newKey(t), newKey(t), s.keys.ada)
		}
		s.exhaust()
		s.want("beyond the limit", false, 1, newKey(t))
	})
}
