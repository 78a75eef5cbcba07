package sshmux

import (
	"net"

	"golang.org/x/crypto/ssh"
)

// Client starts a connection on raw, as New does, and returns an SSH client on it. A channel that the other end rejects
// is closed. A request waits for its answer if the library wants one. Closing the client closes raw.
func Client(raw net.Conn, opts Options) *ssh.Client {
	c := clientConn{New(raw, opts)}
	channels := make(chan ssh.NewChannel)
	requests := make(chan *ssh.Request) // Options.Global answers global requests
	go func() {
		defer close(requests)
		defer close(channels)
		for ch := range c.Channels() {
			channels <- clientChannel{ch}
		}
	}()
	return ssh.NewClient(c, channels, requests)
}

// clientConn adapts a Conn to the SSH library's interface.
type clientConn struct{ *Conn }

func (c clientConn) OpenChannel(name string, data []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	ch, err := c.Open(name, data)
	if err != nil {
		return nil, nil, err
	}
	return ch, libraryRequests(ch), nil
}

// The rest of ssh.ConnMetadata. Such a connection does not have a user, version or session.
func (clientConn) User() string          { return "" }
func (clientConn) SessionID() []byte     { return nil }
func (clientConn) ClientVersion() []byte { return nil }
func (clientConn) ServerVersion() []byte { return nil }

// clientChannel adapts a NewChannel to the SSH library's interface.
type clientChannel struct{ *NewChannel }

func (c clientChannel) ChannelType() string { return c.Type() }
func (c clientChannel) ExtraData() []byte   { return c.Data() }

func (c clientChannel) Accept() (ssh.Channel, <-chan *ssh.Request, error) {
	ch, err := c.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}
	return ch, libraryRequests(ch), nil
}

// libraryRequests converts a channel's requests to the library's type. Those cannot be answered through this package,
// so libraryRequests refuses requests that want an answer. Requests from a server to a client, such as exit-status, do
// not want one.
func libraryRequests(ch *Channel) <-chan *ssh.Request {
	requests := make(chan *ssh.Request, maxQueue)
	go func() {
		defer close(requests)
		for r := range ch.Requests() {
			_ = r.Reply(false) // fails only if the connection does, and then no more requests arrive
			requests <- &ssh.Request{Type: r.Type, Payload: r.Payload}
		}
	}()
	return requests
}
