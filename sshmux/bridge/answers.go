package bridge

import (
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/sshmux"
)

// answers carries the agent's answers to requests of the client. SSH tells them apart by their order alone.
type answers struct {
	decided chan *sshmux.Answer // what is waited for, in order

	mu      sync.Mutex // guards the field below; held while an answer is written
	waiting []pending
}

// pending is a request that the client waits for. answer is nil if the agent was never asked.
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

// add takes a request whose answer comes later. It is called by one goroutine.
func (a *answers) add(req *ssh.Request, answer *sshmux.Answer) {
	a.mu.Lock()
	a.waiting = append(a.waiting, pending{req, answer})
	a.mu.Unlock()
	if answer == nil {
		a.flush() // here if nothing is before it
		return
	}
	a.decided <- answer
}

// flush passes on the answers that have come. What is written to the client after it comes after them.
func (a *answers) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting) > 0 {
		next := a.waiting[0]
		ok, payload := false, []byte(nil)
		if next.answer != nil {
			select {
			case <-next.answer.Done():
				ok, payload = next.answer.OK(), next.answer.Payload()
			default:
				return
			}
		}
		_ = next.req.Reply(ok, payload) // fails only when the client is gone
		a.waiting = a.waiting[1:]
	}
}
