package bridge

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// inputBuffer is how many bytes of a client's data are forwarded at once.
const inputBuffer = 128 << 10

var inputBuffers = sync.Pool{New: func() any { return new([inputBuffer]byte) }}

// joint is a channel that is open on both ends.
type joint struct {
	link    *link
	local   ssh.Channel
	remote  *sshmux.Channel
	answers answers
	written chan struct{} // closed when the agent's output has been written
	ended   chan struct{} // closed when the client has closed the channel
	// asks the request loop to forward pending requests; it then closes the received channel
	inTurn chan chan<- struct{}
}

// join forwards data and requests in both directions until both ends have closed the channel.
func (l *link) join(local ssh.Channel, requests <-chan *ssh.Request, remote *sshmux.Channel, session bool) {
	j := &joint{link: l, local: local, remote: remote, written: make(chan struct{}), ended: make(chan struct{}),
		inTurn: make(chan chan<- struct{})}
	defer l.joins(j)()
	j.answers.over = l.agent.Done()
	stop := j.answers.start()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(j.written)
		j.passOutput(session)
	})
	input := make(chan struct{})
	wg.Go(func() {
		defer close(input)
		j.passInput()
	})
	j.serveRequests(requests)
	close(j.ended)
	if !session {
		<-input // a connection's last bytes are still delivered; a program without its client ends immediately
	}
	remote.Close()
	stop()
	wg.Wait()
}

// serveRequests forwards the client's requests until the client closes the channel.
func (j *joint) serveRequests(requests <-chan *ssh.Request) {
	for {
		select {
		case req, ok := <-requests:
			if !ok {
				return
			}
			j.request(req)
		case done := <-j.inTurn:
			for n := len(requests); n > 0; n-- {
				if req, ok := <-requests; ok {
					j.request(req)
				}
			}
			close(done)
		}
	}
}

// request forwards one of the client's requests.
func (j *joint) request(req *ssh.Request) {
	switch req.Type {
	case "x11-req":
		j.link.asked.x11.Store(true)
	case "auth-agent-req@openssh.com":
		j.link.asked.agent.Store(true)
	}
	if !req.WantReply {
		// fails only if the channel is closed or the request is too long
		_, _ = j.remote.SendRequest(req.Type, false, req.Payload)
		return
	}
	if err := j.remote.Ask(req.Type, req.Payload, j.answers.expect(req)); err != nil {
		j.link.log.Debug("cannot forward request", "type", req.Type, "err", err)
	}
}

// passInput forwards the client's data, each part after the requests that preceded it. The SSH library queues data and
// requests separately.
func (j *joint) passInput() {
	buf := inputBuffers.Get().(*[inputBuffer]byte)
	defer inputBuffers.Put(buf)
	for {
		n, err := j.local.Read(buf[:])
		done := make(chan struct{})
		select {
		case j.inTurn <- done:
			<-done
		case <-j.ended:
		}
		if n > 0 {
			if _, err := j.remote.Write(buf[:n]); err != nil {
				return // the agent has closed the channel
			}
		}
		if err != nil {
			_ = j.remote.CloseWrite() // fails only if the channel is closed
			return
		}
	}
}

// passOutput forwards what the agent sends, and closes the channel when that ends.
//
// OpenSSH closes a session when its output ends, and the SSH library then accepts no more requests for it. The end of a
// session's output therefore waits for the exit status, which the agent sends next.
func (j *joint) passOutput(session bool) {
	var requests, data sync.WaitGroup
	requests.Go(func() {
		for req := range j.remote.Requests() {
			j.answers.flush()
			ok, err := j.local.SendRequest(req.Type, req.WantReply, req.Payload)
			_ = req.Reply(ok && err == nil) // fails only if the connection does
		}
	})
	data.Go(func() { _, _ = io.Copy(j.after(j.local.Stderr()), j.remote.Stderr()) }) // a refusal is reported below
	_, err := j.remote.WriteTo(j.after(j.local))
	data.Wait()
	if j.link.lost() {
		requests.Wait()
		return
	}
	j.answers.flush()
	if refused, ok := errors.AsType[*ssh.OpenChannelError](err); ok {
		_, _ = fmt.Fprintf(j.local.Stderr(), "codermesh: the agent refuses the session: %s\r\n", refused.Message)
	}
	if session {
		if requests.Wait(); j.link.lost() {
			return
		}
	}
	_ = j.local.CloseWrite() // this and Close fail only if the client has closed the channel
	requests.Wait()
	j.answers.flush()
	if !j.link.lost() {
		_ = j.local.Close()
	}
}

// after returns a writer to w that first forwards the answers that the agent has given so far.
func (j *joint) after(w io.Writer) io.Writer { return inOrder{w, &j.answers} }

type inOrder struct {
	io.Writer
	answers *answers
}

func (w inOrder) Write(b []byte) (int, error) {
	w.answers.flush()
	return w.Writer.Write(b)
}
