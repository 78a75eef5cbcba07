package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
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

// leased is a job, its daemon, and what is expected of them.
type leased struct {
	*world
	pup *puppet
	p   *provisioner
	id  uuid.UUID

	n                           int      // commands so far
	want                        []string // what they record
	down, blocked, killed, over bool     // the server, the link, the daemon, the job
}

// began reports whether the job runs.
func (l *leased) began() bool {
	l.pup.mu.Lock()
	defer l.pup.mu.Unlock()
	return l.pup.running[l.id] > 0
}

// tell lets the job do something, if it can.
func (l *leased) tell(rt *rapid.T, kind string) {
	if l.over || l.killed {
		rt.Skip("the job has ended")
	}
	if !l.began() && (l.down || l.blocked) {
		rt.Skip("the job cannot begin now")
	}
	l.command(kind)
}

func (l *leased) command(kind string) {
	l.n++
	c := command{kind, l.n, make(chan struct{})}
	l.pup.mu.Lock()
	commands := l.pup.commands
	l.pup.mu.Unlock()
	commands <- c
	<-c.done
	switch kind {
	case "log":
		l.want = append(l.want, fmt.Sprint(l.n))
	case "checkpoint":
		l.want = append(l.want, fmt.Sprint("checkpoint ", l.n))
	case "finish":
		l.want = append(l.want, fmt.Sprint("result ", l.n))
		l.over = true
	}
}

// toggleServer stops the server, or starts it again.
func (l *leased) toggleServer() {
	if l.down {
		l.startServer()
	} else {
		l.stopServer()
	}
	l.down = !l.down
}

// killDaemon kills the daemon while the job runs, or after it, and starts it again.
func (l *leased) killDaemon(rt *rapid.T) {
	if l.killed || !l.began() && !l.over {
		rt.Skip("nothing to kill")
	}
	ghost := l.p
	l.p = l.p.crash(l.pup.executor())
	l.pup.die()
	ghost.kill()
	l.killed, l.blocked = true, false
}

// check looks between two steps.
func (l *leased) check(rt *rapid.T) {
	l.pup.mu.Lock()
	defer l.pup.mu.Unlock()
	if l.pup.twice {
		rt.Fatal("the job ran twice at once")
	}
	if got := l.lines(l.id); !l.killed && !prefix(got, l.want) {
		rt.Fatalf("recorded %q, which does not begin %q", got, l.want)
	}
}

// end lets the job end, and compares what was recorded.
func (l *leased) end(rt *rapid.T) {
	if l.down {
		l.startServer()
	}
	l.p.link.block(false)
	if !l.over && !l.killed {
		l.command("finish")
	}
	testwait.Until(l.T, "the job has ended", func() error {
		row := l.row(l.id)
		return testwait.Unless(row.CompletedAt != nil, "it is %s", row.Status)
	})
	got := l.lines(l.id)
	if !l.killed {
		if !slices.Equal(got, l.want) {
			rt.Fatalf("recorded %q, want %q", got, l.want)
		}
	} else if body := got[:len(got)-1]; !prefix(body, l.want) {
		rt.Fatalf("recorded %q, of which all but the result must begin %q", got, l.want)
	} else if status := l.row(l.id).Status; status == "failed" {
		l.pup.mu.Lock()
		newest := l.pup.state[l.id]
		l.pup.mu.Unlock()
		if got[len(got)-1] != "result "+newest {
			rt.Fatalf("ended with %q, the newest state was %q", got[len(got)-1], newest)
		}
	} else if !slices.Equal(got, l.want) {
		rt.Fatalf("the job %s, but recorded %q, want %q", status, got, l.want)
	}
	l.p.kill()
}

// TestLeaseStateMachine exposes a lease to every failure: cut and blocked streams, and servers and daemons that are killed
// and restarted. In any order: a job's output is applied once and in order, at most its end is missing when the daemon was
// killed, no job runs twice at once, and every job ends.
func TestLeaseStateMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		l := &leased{world: w, pup: &puppet{commands: make(chan command), running: map[uuid.UUID]int{}, dead: make(chan struct{}), state: map[uuid.UUID]string{}}}
		l.p = w.start(uuid.NewString(), map[string]string{"pool": uuid.NewString()}, l.pup.executor(), nil)
		l.id = w.insert(l.p.as.Tags)
		rt.Repeat(map[string]func(*rapid.T){
			"log":        func(rt *rapid.T) { l.tell(rt, "log") },
			"checkpoint": func(rt *rapid.T) { l.tell(rt, "checkpoint") },
			"finish": func(rt *rapid.T) {
				if l.n < 3 {
					rt.Skip("too early")
				}
				l.tell(rt, "finish")
			},
			"cut": func(*rapid.T) { l.p.link.cut() },
			"block": func(*rapid.T) {
				l.blocked = !l.blocked
				l.p.link.block(l.blocked)
			},
			"server":      func(*rapid.T) { l.toggleServer() },
			"kill daemon": l.killDaemon,
			"":            l.check,
		})
		l.end(rt)
	})
}

func prefix(short, long []string) bool {
	return len(short) <= len(long) && slices.Equal(short, long[:len(short)])
}
