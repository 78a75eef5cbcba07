package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tailscale.com/derp"
)

// TestBacklogKeepsOrder checks that everything written arrives, in order, whatever the sizes of the writes.
func TestBacklogKeepsOrder(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	l := &backlog{Conn: near, table: &backlogs{}}
	defer l.Close()
	want := make([]byte, maxBacklog)
	rng := rand.NewChaCha8([32]byte{})
	rng.Read(want)
	sizes := rand.New(rng)
	for rest := want; len(rest) > 0; {
		n := min(sizes.IntN(3*blockSize), len(rest))
		if written, err := l.Write(rest[:n]); written != n || err != nil {
			t.Fatalf("write of %d bytes: %d, %v", n, written, err)
		}
		rest = rest[n:]
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes arrived than were written")
	}
}

// TestBacklogIsBounded checks that a write blocks while the backlog is full: until there is room, the deadline, or the end of the connection.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := &backlog{Conn: near, table: &backlogs{}}
		if _, err := l.Write(make([]byte, maxBacklog)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := l.SetWriteDeadline(began.Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Write([]byte("late")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("a write to a full backlog ended with %v after %v, want %v after 2 s", err, time.Since(began), os.ErrDeadlineExceeded)
		}

		if err := l.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		results := make(chan error)
		write := func() {
			_, err := l.Write(make([]byte, blockSize))
			results <- err
		}
		go write()
		synctest.Wait()
		select {
		case err := <-results:
			t.Fatalf("a write to a full backlog did not block: %v", err)
		default:
		}
		if _, err := io.ReadFull(far, make([]byte, blockSize)); err != nil {
			t.Fatal(err)
		}
		if err := <-results; err != nil {
			t.Errorf("a write to a backlog with room: %v", err)
		}

		go write()
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-results; err == nil {
			t.Error("a write to a closed connection did not fail")
		}
		if _, err := l.Write([]byte("later")); err == nil {
			t.Error("a write to a closed connection did not fail")
		}
	})
}

// TestBacklogOfAnswersIsBounded checks that a node that asks for answers without end, and reads nothing, does not fill the
// relay's memory, also while packets wait for it.
func TestBacklogOfAnswersIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := &backlog{Conn: near, table: &backlogs{}, native: true}
		defer l.Close()
		pong := frame(derp.FramePong, make([]byte, 8))
		for i := 0; ; i++ {
			if i%1000 == 0 {
				if _, err := l.Write(received(nodeID{1}, i, 1200)); err != nil {
					break
				}
			}
			if err := l.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Write(pong); errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			size := l.size
			l.mu.Unlock()
			if size > maxBacklog+largeFrame {
				t.Fatalf("%d bytes wait after %d answers", size, i)
			}
		}
	})
}

// received returns the frame of a packet from a node, with a number in it.
func received(from nodeID, number, size int) []byte {
	return frame(derp.FrameRecvPacket, from[:], binary.BigEndian.AppendUint32(nil, uint32(number)), make([]byte, size-4))
}

// readFrame reads a frame of a packet. Other frames have no sender.
func readFrame(t *testing.T, r io.Reader) (from nodeID, number int) {
	t.Helper()
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatal(err)
	}
	if derp.FrameType(head[0]) != derp.FrameRecvPacket {
		return nodeID{}, 0
	}
	return nodeID(body), int(binary.BigEndian.Uint32(body[derp.KeyLen:]))
}

// TestSendersTakeTurns has a backlog that one sender fills while nothing is read: the others' packets and frames of other
// kinds come first, nothing of the others is lost, and what one sent keeps its order.
func TestSendersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := &backlog{Conn: near, table: &backlogs{}, native: true}
		defer l.Close()
		write := func(b []byte, step int) {
			for chunk := range slices.Chunk(b, step) {
				if n, err := l.Write(chunk); n != len(chunk) || err != nil {
					t.Fatalf("write of %d bytes: %d, %v", len(chunk), n, err)
				}
			}
		}
		greedy := nodeID{255}
		const packets, modest, each = 3000, 20, 10
		for i := range packets {
			write(received(greedy, i, 8000), 4096)
		}
		for i := range each {
			for who := range modest {
				write(received(nodeID{byte(who + 1)}, i, 100), 50)
			}
		}
		write(frame(derp.FramePong, make([]byte, 8)), 3)
		synctest.Wait()
		if l.size > maxBacklog {
			t.Errorf("the backlog holds %d bytes", l.size)
		}
		// Two blocks may have left before the others sent.
		before, next := 0, map[nodeID]int{}
		for left := modest*each + 1; left > 0; {
			from, number := readFrame(t, far)
			switch {
			case from == greedy:
				before++
			case from == nodeID{}:
				left--
			case number != next[from]:
				t.Fatalf("packet %d of %v, want %d", number, from[0], next[from])
			default:
				next[from]++
				left--
			}
		}
		if most := 2 * (blockSize/8000 + 1); before > most {
			t.Errorf("%d packets of the greedy one went before others, want at most %d", before, most)
		}
		for last := 0; ; {
			_, number := readFrame(t, far)
			if number <= last && last != 0 {
				t.Fatalf("packet %d after %d", number, last)
			}
			if last = number; last == packets-1 {
				break
			}
			before++
		}
		if before > maxBacklog/8000+10 {
			t.Errorf("the backlog has held %d packets of the greedy one", before)
		}
	})
}

// TestStuckConnectionEnds checks that writes fail once a full backlog has written nothing for as long as the library allows.
func TestStuckConnectionEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		l := &backlog{Conn: near, table: &backlogs{}, native: true}
		defer l.Close()
		write := func() error {
			if err := l.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, err := l.Write(received(nodeID{1}, 0, 8000))
			return err
		}
		for range 2 * maxBacklog / 8000 {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		readFrame(t, far)
		if err := write(); err != nil {
			t.Errorf("a second after a write: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := write(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after 3 s without a write: %v", err)
		}
	})
}
