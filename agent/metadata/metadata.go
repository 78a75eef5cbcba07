// Package metadata keeps a template's metadata values fresh while they are watched; without watchers no script runs.
// The latest values stay in memory, and the next watcher receives them at once.
//
// It knows neither the server nor how scripts are run.
package metadata

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// MaxValue bounds a value, and an error, in bytes.
	MaxValue = 2048
	// maxItems bounds the number of items.
	maxItems = 256
	// together is how many scripts run at once.
	together = 8
	// gather is how long new values wait for others, so that a watcher gets them in one batch.
	gather = 100 * time.Millisecond
	// defaultTimeout bounds a script whose item names neither a timeout nor an interval.
	defaultTimeout = 30 * time.Second
)

// Item is one value to keep fresh.
type Item struct {
	Key      string
	Script   string
	Interval time.Duration // 0: once for each new watcher
	Timeout  time.Duration // 0: the interval
}

// Value is the result of an item's script.
type Value struct {
	Key         string
	CollectedAt time.Time
	Value       string
	Error       string // "" if the script succeeded
}

// Run runs a script to its end or the end of ctx, and returns the first bytes that it printed.
type Run func(ctx context.Context, item Item) (output string, err error)

// Collector collects the values. It is safe for concurrent use. The caller must close it.
type Collector struct {
	run   Run
	log   *slog.Logger
	slots chan struct{}

	life   context.Context // ends with Close
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	items    []Item
	values   map[string]Value
	watchers map[*watcher]struct{}
	stop     context.CancelFunc // of the scripts; nil without watchers
	closed   bool
	wg       sync.WaitGroup // grows only while not closed
}

type watcher struct {
	news  map[string]bool // keys not sent yet; guarded by the collector's mu
	woken notify.Wake     // there may be news
}

// New returns a Collector without items.
func New(log *slog.Logger, run Run) *Collector {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Collector{run: run, log: log, slots: make(chan struct{}, together), values: make(map[string]Value),
		watchers: make(map[*watcher]struct{})}
	c.life, c.cancel = context.WithCancel(context.Background())
	return c
}

// Set replaces the items, and forgets values of items that no longer exist.
func (c *Collector) Set(items []Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items = c.items[:0:0]
	kept := make(map[string]Value)
	for _, item := range items {
		if _, twice := kept[item.Key]; twice || item.Key == "" || len(c.items) == maxItems {
			c.log.Warn("skipping metadata item", "reason", "no key, a key twice, or too many items")
			continue
		}
		kept[item.Key] = c.values[item.Key]
		c.items = append(c.items, item)
	}
	c.values = kept
	if c.stop != nil {
		c.stop()
		c.stop = nil
		c.start()
	}
}

// Watch sends the latest values and then new ones, until ctx ends, send fails or the Collector is closed.
func (c *Collector) Watch(ctx context.Context, send func([]Value) error) error {
	w := &watcher{news: make(map[string]bool), woken: notify.NewWake()}
	if !c.add(w) {
		return context.Canceled
	}
	defer c.remove(w)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.life.Done():
			return c.life.Err()
		case <-w.woken:
		}
		if batch := c.take(w); len(batch) > 0 {
			if err := send(batch); err != nil {
				return err
			}
		}
		timer := time.NewTimer(gather)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (c *Collector) add(w *watcher) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	for key, v := range c.values {
		if !v.CollectedAt.IsZero() {
			w.news[key] = true
		}
	}
	if len(w.news) > 0 {
		w.woken.Poke()
	}
	c.watchers[w] = struct{}{}
	if c.stop == nil {
		c.start()
	}
	return true
}

func (c *Collector) remove(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watchers, w)
	if len(c.watchers) == 0 && c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// start starts running the scripts. Called with mu held.
func (c *Collector) start() {
	if c.closed {
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(c.life)
	for _, item := range c.items {
		last := c.values[item.Key].CollectedAt
		c.wg.Go(func() { c.keep(ctx, item, last) })
	}
}

// keep runs one item's script at its interval until ctx ends. It does not run the script while the value is still
// fresh.
func (c *Collector) keep(ctx context.Context, item Item, last time.Time) {
	for first := true; ; first = false {
		if pause := time.Until(last.Add(item.Interval)); !last.IsZero() && pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
		if !first && item.Interval <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case c.slots <- struct{}{}:
		}
		v := c.collect(ctx, item)
		<-c.slots
		if ctx.Err() != nil {
			return
		}
		last = v.CollectedAt
		c.store(v)
	}
}

func (c *Collector) collect(ctx context.Context, item Item) Value {
	timeout := item.Timeout
	if timeout <= 0 {
		timeout = item.Interval
	}
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := c.run(ctx, item)
	v := Value{Key: item.Key, CollectedAt: time.Now(), Value: Clean(output)}
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		v.Error = "the script did not end within " + timeout.String()
	case err != nil:
		v.Error = Clean(err.Error())
	}
	return v
}

func (c *Collector) store(v Value) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, exists := c.values[v.Key]; !exists {
		return // its item no longer exists
	}
	c.values[v.Key] = v
	for w := range c.watchers {
		w.news[v.Key] = true
		w.woken.Poke()
	}
}

// take returns the values that a watcher has not received yet, in the items' order.
func (c *Collector) take(w *watcher) []Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []Value
	for _, item := range c.items {
		if w.news[item.Key] {
			batch = append(batch, c.values[item.Key])
		}
	}
	clear(w.news)
	return batch
}

// Close ends all watches and waits for scripts. It is idempotent.
func (c *Collector) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	return nil
}

// Clean makes a script's output a value: valid text without NUL and surrounding spaces, of at most MaxValue bytes.
func Clean(output string) string {
	text := strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(output, "\uFFFD"), "\x00", ""))
	if len(text) <= MaxValue {
		return text
	}
	cut := MaxValue
	for cut > 0 && text[cut]&0xc0 == 0x80 {
		cut--
	}
	return strings.TrimSpace(text[:cut])
}
