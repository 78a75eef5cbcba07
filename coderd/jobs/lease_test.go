package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/codermesh/codermesh/internal/testwait"
	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// command is an instruction from the test to a running job.
type command struct {
	kind string // log, checkpoint, finish
	n    int
	done chan struct{}
}

// puppet is an executor whose jobs follow the test's commands, in every living process of the daemon.
type puppet struct {
	mu       sync.Mutex
	commands chan command
	running  map[uuid.UUID]int // living runs
	twice    bool
	dead     chan struct{}
	state    map[uuid.UUID]string // on the "disk": outlives a process
}

func (p *puppet) executor() *executor {
	return &executor{
		run: func(ctx context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
			id := uuid.UUID(run.Offer.GetJobId())
			p.mu.Lock()
			dead, commands := p.dead, p.commands
			p.running[id]++
			p.twice = p.twice || p.running[id] > 1
			p.mu.Unlock()
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.dead == dead {
					p.running[id]--
				}
			}()
			for {
				select {
				case <-dead:
					return failed("", "ghost")
				case <-ctx.Done():
					return failed("", "killed")
				case c := <-commands:
					switch c.kind {
					case "log":
						say(run, fmt.Sprint(c.n))
					case "checkpoint":
						p.mu.Lock()
						p.state[id] = fmt.Sprint(c.n)
						p.mu.Unlock()
						run.Sink.Checkpoint(fmt.Append(nil, c.n))
					}
					close(c.done)
					if c.kind == "finish" {
						return succeeded(fmt.Sprint(c.n))
					}
				}
			}
		},
		recover: func(id uuid.UUID, _ uint64) ([]byte, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if s, ok := p.state[id]; ok {
				return []byte(s), nil
			}
			return nil, nil
		},
	}
}

// die turns the current runs into ghosts: their process was killed.
func (p *puppet) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.dead)
	p.dead, p.commands, p.running = make(chan struct{}), make(chan command), map[uuid.UUID]int{}
}

// TestLeaseStateMachine exposes a lease to every failure: cut and blocked streams, and servers and daemons that are killed
// and restarted. In any order: a job's output is applied once and in order, at most its end is missing when the daemon was
// killed, no job runs twice at once, and every job ends.
func TestLeaseStateMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		pup := &puppet{commands: make(chan command), running: map[uuid.UUID]int{}, dead: make(chan struct{}), state: map[uuid.UUID]string{}}
		p := w.start(uuid.NewString(), map[string]string{"pool": uuid.NewString()}, pup.executor(), nil)
		id := w.insert(p.as.Tags)
		var want []string
		n, down, blocked, killed, over := 0, false, false, false, false
		tell := func(rt *rapid.T, kind string) {
			if over || killed {
				rt.Skip("the job has ended")
			}
			n++
			c := command{kind, n, make(chan struct{})}
			pup.mu.Lock()
			commands := pup.commands
			began := pup.running[id] > 0
			pup.mu.Unlock()
			if !began && (down || blocked) {
				rt.Skip("the job cannot begin now")
			}
			commands <- c
			<-c.done
			switch kind {
			case "log":
				want = append(want, fmt.Sprint(n))
			case "checkpoint":
				want = append(want, fmt.Sprint("checkpoint ", n))
			case "finish":
				want = append(want, fmt.Sprint("result ", n))
				over = true
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"log":        func(rt *rapid.T) { tell(rt, "log") },
			"checkpoint": func(rt *rapid.T) { tell(rt, "checkpoint") },
			"finish": func(rt *rapid.T) {
				if n < 3 {
					rt.Skip("too early")
				}
				tell(rt, "finish")
			},
			"cut": func(*rapid.T) { p.link.cut() },
			"block": func(*rapid.T) {
				blocked = !blocked
				p.link.block(blocked)
			},
			"server": func(*rapid.T) {
				if down {
					w.startServer()
				} else {
					w.stopServer()
				}
				down = !down
			},
			"kill daemon": func(rt *rapid.T) {
				pup.mu.Lock()
				began := pup.running[id] > 0
				pup.mu.Unlock()
				if killed || !began && !over {
					rt.Skip("nothing to kill")
				}
				ghost := p
				p = p.crash(pup.executor())
				pup.die()
				ghost.kill()
				killed, blocked = true, false
			},
			"": func(rt *rapid.T) {
				pup.mu.Lock()
				defer pup.mu.Unlock()
				if pup.twice {
					rt.Fatal("the job ran twice at once")
				}
				if got := w.lines(id); !killed && !prefix(got, want) {
					rt.Fatalf("recorded %q, which does not begin %q", got, want)
				}
			},
		})
		if down {
			w.startServer()
		}
		p.link.block(false)
		if !over && !killed {
			c := command{"finish", n + 1, make(chan struct{})}
			pup.commands <- c
			<-c.done
			want = append(want, fmt.Sprint("result ", c.n))
			over = true
		}
		testwait.Until(w.T, "the job has ended", func() error {
			row := w.row(id)
			return testwait.Unless(row.CompletedAt != nil, "it is %s", row.Status)
		})
		got := w.lines(id)
		if !killed {
			if !slices.Equal(got, want) {
				rt.Fatalf("recorded %q, want %q", got, want)
			}
		} else if body := got[:len(got)-1]; !prefix(body, want) {
			rt.Fatalf("recorded %q, of which all but the result must begin %q", got, want)
		} else if status := w.row(id).Status; status == "failed" {
			newest := ""
			pup.mu.Lock()
			newest = pup.state[id]
			pup.mu.Unlock()
			if got[len(got)-1] != "result "+newest {
				rt.Fatalf("ended with %q, the newest state was %q", got[len(got)-1], newest)
			}
		} else if !slices.Equal(got, want) {
			rt.Fatalf("the job %s, but recorded %q, want %q", status, got, want)
		}
		p.kill()
	})
}

func prefix(short, long []string) bool {
	return len(short) <= len(long) && slices.Equal(short, long[:len(short)])
}
