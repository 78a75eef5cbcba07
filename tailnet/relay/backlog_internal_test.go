package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
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
