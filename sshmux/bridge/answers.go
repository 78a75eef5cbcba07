package bridge

import (
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// answers forwards the agent's answers to the client's requests. SSH matches answers to requests by order alone.
type answers struct {
	decided chan *sshmux.Answer // awaited answers, in order
	over    <-chan struct{}     // closed when the agent's connection is over; then nothing is forwarded

	mu      sync.Mutex // guards the field below; held while an answer is written
	waiting []pending
}

// pending is a request whose answer the client awaits.
type pending struct {
	req    *ssh.Request
	answer *sshmux.Answer
}

// start begins to forward answers. stop waits until all are forwarded: the agent must have answered them or be gone.
func (a *answers) start() (stop func()) {
	a.decided = make(chan *sshmux.Answer, 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		for answer := range a.decided {
			<-answer.Done()
			a.flush()
		}
	})
	return func() {
		close(a.decided)
		wg.Wait()
	}
}

// expect registers a request that the caller forwards next with the returned Answer. Only one goroutine may call it.
func (a *answers) expect(req *ssh.Request) *sshmux.Answer {
	answer := sshmux.NewAnswer()
	a.mu.Lock()
	a.waiting = append(a.waiting, pending{req, answer})
	a.mu.Unlock()
	a.decided <- answer
	return answer
}

// flush forwards the answers that have arrived. Anything written to the client afterwards arrives after them.
func (a *answers) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting) > 0 {
		next := a.waiting[0]
		select {
		case <-next.answer.Done():
		default:
			return
		}
		select {
		case <-a.over:
			return
		default:
		}
		_ = next.req.Reply(next.answer.OK(), next.answer.Payload()) // fails only if the client is gone
		a.waiting = a.waiting[1:]
	}
}
