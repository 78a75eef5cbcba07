package notify_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

func ExampleWake() {
	var (
		wake    = notify.NewWake()
		queue   sync.Map
		running sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			select {
			case <-wake: // receive first, then look
				queue.Range(func(job, _ any) bool {
					fmt.Println("run", job)
					queue.Delete(job)
					cancel()
					return true
				})
			case <-ctx.Done():
				return
			}
		}
	})
	queue.Store("build", true)
	wake.Poke()
	running.Wait()
	// Output: run build
}

// Two pokes before a receive count as one.
func ExampleWake_Poke() {
	wake := notify.NewWake()
	wake.Poke()
	wake.Poke()
	fmt.Println(len(wake))
	// Output: 1
}

func ExampleBroadcast() {
	var changed notify.Broadcast
	first, second := changed.Changed(), changed.Changed()
	changed.Notify()
	<-first
	<-second
	fmt.Println("both woken")
	// Output: both woken
}

// TestBroadcast checks what callers rely on: a waiter that calls Changed and reads the state under one lock misses no change.
func TestBroadcast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const changes, waiters = 100, 10
		var (
			changed notify.Broadcast
			mu      sync.Mutex
			n       int
			running sync.WaitGroup
		)
		for range waiters {
			running.Go(func() {
				for {
					mu.Lock()
					done, news := n == changes, changed.Changed()
					mu.Unlock()
					if done {
						return
					}
					<-news
				}
			})
		}
		for range changes {
			mu.Lock()
			n++
			changed.Notify()
			mu.Unlock()
		}
		running.Wait() // a missed change would leave a waiter blocked, which synctest reports as a deadlock
		select {
		case <-changed.Changed():
			t.Error("a new channel is closed before the next change")
		default:
		}
	})
}

func TestAwaited(t *testing.T) {
	t.Parallel()
	var b notify.Broadcast
	before := b.Awaited()
	b.Changed()
	asked := b.Awaited()
	b.Notify()
	if after := b.Awaited(); before || !asked || after {
		t.Errorf("awaited before Changed: %t, after it: %t, after Notify: %t; want false, true, false", before, asked, after)
	}
}

// TestSet: items that are added before they are taken are taken once, and everything stands for them all.
func TestSet(t *testing.T) {
	t.Parallel()
	const everything = 0
	s := notify.NewSet[int]()
	for name, c := range map[string]struct{ add, want []int }{
		"nothing":    {nil, nil},
		"twice":      {[]int{2, 1, 2}, []int{1, 2}},
		"everything": {[]int{1, everything, 2}, []int{everything}},
	} {
		s.Add(c.add...)
		<-s.Wake
		got := s.Take()
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: took %v, want %v", name, got, c.want)
		}
		if again := s.Take(); len(again) > 0 {
			t.Errorf("%s: took %v again", name, again)
		}
	}
	select {
	case <-s.Wake:
		t.Error("woken without an item")
	default:
	}
}
