package stream_test

import (
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleep: a reader that has slept has caught up within a second, although packets waited for it in its socket, and although its node renews the
// session with the writer's a moment after it woke, so that what is in flight then is lost.
func TestSleep(t *testing.T) {
	for _, sleep := range []time.Duration{5 * time.Second, 30 * time.Second, 3 * time.Minute} {
		t.Run(sleep.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &path{delay: time.Millisecond}
				n, writer, reader := pair(t, p)
				defer n.close()
				begin := time.Now()
				var writing sync.WaitGroup
				writing.Go(func() {
					for {
						line := binary.BigEndian.AppendUint64(nil, uint64(time.Since(begin)))
						if _, err := writer.Write(line); err != nil {
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
				fresh := make(chan time.Time, 1<<16) // when a line arrived that was written just before
				go func() {
					line := make([]byte, 8)
					for {
						if _, err := io.ReadFull(reader, line); err != nil {
							return
						}
						if time.Since(begin)-time.Duration(binary.BigEndian.Uint64(line)) < 200*time.Millisecond {
							fresh <- time.Now()
						}
					}
				}()
				time.Sleep(3 * time.Second)
				woken := time.Now().Add(sleep)
				n.ab.mu.Lock()
				n.ab.until = woken
				n.ab.mu.Unlock()
				time.Sleep(time.Until(woken) + 2*time.Millisecond)
				n.cut(true)
				time.Sleep(150 * time.Millisecond)
				n.cut(false)
				back := time.Now()
				n.b.Retry() // as a node does when a path is back
				for at := range fresh {
					if at.Before(back) {
						continue
					}
					t.Logf("%s after it woke", at.Sub(woken))
					if at.Sub(woken) > time.Second {
						t.Errorf("it has caught up %s after it woke", at.Sub(woken))
					}
					break
				}
				writer.Abort()
				writing.Wait()
			})
		})
	}
}
