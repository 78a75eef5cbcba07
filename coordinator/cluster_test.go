package coordinator_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// linkEnd is one end of a link inside the process.
type linkEnd struct {
	in, out chan []byte
	once    *sync.Once
	closed  chan struct{}
	traffic *traffic
}

// traffic counts what links carry.
type traffic struct {
	mu              sync.Mutex
	messages, bytes int
	log             []protocol.LinkMessage
}

func (c *traffic) note(data []byte) {
	m, err := protocol.DecodeLinkMessage(data)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.messages++
	c.bytes += len(data)
	if len(c.log) < 1000 {
		c.log = append(c.log, m)
	}
}

// take returns what was counted since the last call.
func (c *traffic) take() (messages, bytes int, log []protocol.LinkMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages, bytes, log = c.messages, c.bytes, c.log
	c.messages, c.bytes, c.log = 0, 0, nil
	return messages, bytes, log
}

func (e *linkEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case data := <-e.in:
		return data, nil
	case <-e.closed:
		return nil, &websock.CloseError{Status: websock.StatusGoingAway}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *linkEnd) Write(ctx context.Context, data []byte) error {
	if e.traffic != nil {
		e.traffic.note(data)
	}
	select {
	case e.out <- data:
		return nil
	case <-e.closed:
		return &websock.CloseError{Status: websock.StatusGoingAway}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *linkEnd) Close(websock.Status, string) error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

// cluster holds servers of one deployment, each linked to all others.
type cluster struct {
	t       testing.TB
	servers []*coordinator.Server
	ids     []uuid.UUID
	links   map[[2]int]*linkEnd
	traffic traffic
	running sync.WaitGroup
}

// newCluster makes n servers that end with the test. edit changes the options of each.
func newCluster(t testing.TB, n int, edit func(i int, opts *coordinator.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, links: make(map[[2]int]*linkEnd)}
	for i := range n {
		opts := coordinator.Options{ID: id("process", i)}
		if edit != nil {
			edit(i, &opts)
		}
		c.servers = append(c.servers, newServer(t, opts))
		c.ids = append(c.ids, opts.ID)
	}
	for i := range n {
		for j := range i {
			c.join(j, i)
		}
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	for _, s := range c.servers {
		s.Close()
	}
	c.running.Wait()
}

// join links two servers.
func (c *cluster) join(i, j int) {
	a, b := make(chan []byte, 64), make(chan []byte, 64)
	once, closed := new(sync.Once), make(chan struct{})
	left := &linkEnd{a, b, once, closed, &c.traffic}
	right := &linkEnd{b, a, once, closed, &c.traffic}
	c.links[[2]int{i, j}] = left
	c.running.Go(func() { c.servers[i].Link(context.Background(), c.ids[j], left) })
	c.running.Go(func() { c.servers[j].Link(context.Background(), c.ids[i], right) })
}

// cut ends the link between two servers, i below j.
func (c *cluster) cut(i, j int) { c.links[[2]int{i, j}].Close(0, "") }

// replace makes server i a new process: it knows nothing, and the links are new.
func (c *cluster) replace(i int, opts coordinator.Options) {
	c.servers[i].Close()
	c.servers[i], c.ids[i] = newServer(c.t, opts), opts.ID
	for j := range c.servers {
		if j != i {
			c.join(min(i, j), max(i, j))
		}
	}
}

// bubble runs a test of n servers in a bubble.
func bubble(t *testing.T, n int, edit func(int, *coordinator.Options), test func(*testing.T, *cluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t, n, edit)) })
}
