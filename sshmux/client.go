package sshmux

import (
	"net"

	"golang.org/x/crypto/ssh"
)

// Client starts a connection on raw, as New does, and returns an SSH client on it. A channel that the other end rejects is
// closed; a request waits for its answer if the library asks for one. Closing the client closes raw.
func Client(raw net.Conn, opts Options) *ssh.Client {
	c := clientConn{New(raw, opts)}
	channels := make(chan ssh.NewChannel)
	requests := make(chan *ssh.Request) // global ones are answered by Options.Global
	go func() {
		defer close(requests)
		defer close(channels)
		for ch := range c.Channels() {
			channels <- clientChannel{ch}
		}
	}()
	return ssh.NewClient(c, channels, requests)
}

// clientConn is a Conn as the SSH library knows it.
type clientConn struct{ *Conn }

func (c clientConn) OpenChannel(name string, data []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	ch, err := c.Open(name, data)
	if err != nil {
		return nil, nil, err
	}
	return ch, libraryRequests(ch), nil
}

// The rest of ssh.ConnMetadata. There is no user, version or session on such a connection.
func (clientConn) User() string          { return "" }
func (clientConn) SessionID() []byte     { return nil }
func (clientConn) ClientVersion() []byte { return nil }
func (clientConn) ServerVersion() []byte { return nil }

// clientChannel is a NewChannel as the SSH library knows it.
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

// libraryRequests are a channel's requests in the library's type, which cannot be answered from here: those that want an answer are
// refused. What a server asks of a client, such as exit-status, wants none.
func libraryRequests(ch *Channel) <-chan *ssh.Request {
	requests := make(chan *ssh.Request, maxQueue)
	go func() {
		defer close(requests)
		for r := range ch.Requests() {
			_ = r.Reply(false) // fails only with the connection, and then there are no more
			requests <- &ssh.Request{Type: r.Type, Payload: r.Payload}
		}
	}()
	return requests
}
