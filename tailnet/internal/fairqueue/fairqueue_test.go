package fairqueue_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/codermesh/codermesh/v2/tailnet/internal/fairqueue"
)

// take removes n packets and returns which flows they were of, and how many bytes each had.
func take(t *testing.T, q *fairqueue.Queue[string], n int) (order []string, bytes map[string]int) {
	t.Helper()
	bytes = map[string]int{}
	for range n {
		key, packet, ok := q.Pop()
		if !ok {
			t.Fatalf("the queue is empty after %d packets", len(order))
		}
		order = append(order, key)
		bytes[key] += len(packet)
	}
	return order, bytes
}

func fill(q *fairqueue.Queue[string], key string, n, size int) {
	for range n {
		q.Push(key, make([]byte, size))
	}
}

// TestLittleGoesFirst has a key among bulk: it goes before all that waits, however much that is.
func TestLittleGoesFirst(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	fill(&q, "bulk", 1000, 8<<10)
	take(t, &q, 10)
	for range 3 {
		fill(&q, "keys", 1, 100)
		if order, _ := take(t, &q, 1); order[0] != "keys" {
			t.Fatal("a key waits behind bulk")
		}
		take(t, &q, 2*fairqueue.Turn/(8<<10)) // the flow leaves the round
	}
}

// TestTurns shares by bytes, whatever the size of packets.
func TestTurns(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	fill(&q, "long", 1000, 8000)
	fill(&q, "short", 8000, 100)
	fill(&q, "middle", 1000, 1400)
	_, bytes := take(t, &q, 3000)
	if least, most := min(bytes["long"], bytes["short"], bytes["middle"]),
		max(bytes["long"], bytes["short"], bytes["middle"]); most-least > 2*fairqueue.Turn {
		t.Errorf("shares: %v", bytes)
	}
}

// TestOneAtATime checks that a flow that sends its next packet whenever the last has gone gets no more than one with a
// queue.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	fill(&q, "queue", 1000, 1000)
	fill(&q, "sly", 1, 1000)
	bytes := map[string]int{}
	for range 1000 {
		key, packet, _ := q.Pop()
		if bytes[key] += len(packet); key == "sly" {
			fill(&q, "sly", 1, 1000)
		}
	}
	if bytes["sly"] > bytes["queue"]+2*fairqueue.Turn {
		t.Errorf("shares: %v", bytes)
	}
}

// TestManyBesideOne has one that fills the queue, and twenty that send a little.
func TestManyBesideOne(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	fill(&q, "greedy", 5000, 8000)
	for i := range 20 {
		fill(&q, fmt.Sprint(i), 20, 1400)
	}
	take(t, &q, 20*20+20*20*1400/8000)
	for i := range 20 {
		if left := q.BytesOf(fmt.Sprint(i)); left != 0 {
			t.Errorf("flow %d still waits with %d bytes", i, left)
		}
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	var want, got []byte
	for i := range 200 {
		q.Push("a", []byte{byte(i)})
		q.Push("b", make([]byte, 1+i%50))
		want = append(want, byte(i))
	}
	for {
		key, packet, ok := q.Pop()
		if !ok {
			break
		}
		if key == "a" {
			got = append(got, packet[0])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("packets of a flow in the order %v", got)
	}
	if q.Bytes() != 0 {
		t.Errorf("an empty queue has %d bytes", q.Bytes())
	}
}

// TestDrop takes from who has the most, and the oldest of it.
func TestDrop(t *testing.T) {
	t.Parallel()
	var q fairqueue.Queue[string]
	if q.Drop() != nil {
		t.Error("an empty queue has a packet")
	}
	fill(&q, "modest", 10, 100)
	q.Push("greedy", make([]byte, 8000))
	q.Push("greedy", make([]byte, 7000))
	if packet := q.Drop(); len(packet) != 8000 {
		t.Errorf("dropped a packet of %d bytes", len(packet))
	}
	if packets := q.Forget("greedy"); len(packets) != 1 || q.Bytes() != 1000 || q.BytesOf("greedy") != 0 {
		t.Errorf("%d packets of one that is gone, %d bytes wait", len(packets), q.Bytes())
	}
	if q.Forget("unknown") != nil || q.BytesOf("unknown") != 0 {
		t.Error("an unknown flow has packets")
	}
	if order, _ := take(t, &q, 10); slices.Contains(order, "greedy") {
		t.Error("a packet was sent after its flow was forgotten")
	}
}
