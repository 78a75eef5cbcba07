package bridge

import (
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/sshmux"
)

// answers carries the agent's answers to requests of the client. SSH tells them apart by their order alone.
type answers struct {
	decided chan *sshmux.Answer // what is waited for, in order
	over    <-chan struct{}     // closed when the agent's connection is over: nothing is passed on then

	mu      sync.Mutex // guards the field below; held while an answer is written
	waiting []pending
}

// pending is a request that the client waits for.
type pending struct {
	req    *ssh.Request
	answer *sshmux.Answer
}

// start begins to pass answers on. stop waits until none is left: the agent must have answered, or be gone.
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

// expect takes a request that is passed on next, with the answer that it returns. It is called by one goroutine.
func (a *answers) expect(req *ssh.Request) *sshmux.Answer {
	answer := sshmux.NewAnswer()
	a.mu.Lock()
	a.waiting = append(a.waiting, pending{req, answer})
	a.mu.Unlock()
	a.decided <- answer
	return answer
}

// flush passes on the answers that have come. What is written to the client after it comes after them.
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
		_ = next.req.Reply(next.answer.OK(), next.answer.Payload()) // fails only when the client is gone
		a.waiting = a.waiting[1:]
	}
}
