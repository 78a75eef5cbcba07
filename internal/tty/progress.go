package tty

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Progress shows what a command waits for: on a terminal one line with a spinner and the elapsed time, elsewhere one
// plain line per stage and note. It is safe for concurrent use. The caller must call Stop.
type Progress struct {
	s     *Streams
	drawn bool // Err is a terminal
	done  chan struct{}
	wg    sync.WaitGroup
	stop  sync.Once

	mu      sync.Mutex // guards the fields below and writes to Err
	stage   string
	note    string
	started time.Time // of the stage
	frame   int
	onLine  bool // the spinner's line is on the screen
}

// Progress starts a progress display.
func (s *Streams) Progress() *Progress {
	p := &Progress{s: s, drawn: s.ErrTTY, done: make(chan struct{})}
	if p.drawn {
		p.wg.Go(p.spin)
	}
	return p
}

// Stage ends the previous stage and begins another. Repeating the name changes nothing. Names, notes and lines go
// through Clean.
func (p *Progress) Stage(name string) {
	name = Clean(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == p.stage || name == "" {
		return
	}
	p.endStage(p.s.Green("✔"))
	p.stage, p.note, p.started = name, "", time.Now()
	if !p.drawn {
		fmt.Fprintf(p.s.Err, "==> %s\n", name)
		return
	}
	p.draw()
}

// Note sets a detail of the stage, such as the length of the queue.
func (p *Progress) Note(text string) {
	text = Clean(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.note {
		return
	}
	p.note = text
	if !p.drawn && text != "" {
		fmt.Fprintf(p.s.Err, "    %s\n", text)
	}
}

// Line prints a permanent line above the spinner.
func (p *Progress) Line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(p.s.Err, CleanColor(text))
	p.draw()
}

// Stop ends the last stage, successfully or not, and waits until drawing has stopped. Only the first call counts.
func (p *Progress) Stop(ok bool) {
	p.stop.Do(func() {
		close(p.done)
		p.wg.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		mark := p.s.Green("✔")
		if !ok {
			mark = p.s.Red("✘")
		}
		p.endStage(mark)
		p.stage = ""
	})
}

func (p *Progress) spin() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.mu.Lock()
			p.frame++
			p.draw()
			p.mu.Unlock()
		}
	}
}

// endStage prints the stage's permanent line. p.mu is held.
func (p *Progress) endStage(mark string) {
	p.erase()
	if !p.drawn || p.stage == "" {
		return
	}
	fmt.Fprintf(p.s.Err, "%s %s %s\n", mark, p.stage, p.s.Dim(elapsed(time.Since(p.started))))
}

// draw draws the spinner's line. p.mu is held.
func (p *Progress) draw() {
	if !p.drawn || p.stage == "" {
		return
	}
	p.erase()
	line := frames[p.frame%len(frames)] + " " + p.stage
	if p.note != "" {
		line += p.s.Dim(" (" + strings.ReplaceAll(p.note, "\n", " ") + ")")
	}
	fmt.Fprintf(p.s.Err, "%s %s", line, p.s.Dim(elapsed(time.Since(p.started))))
	p.onLine = true
}

// erase erases the spinner's line. p.mu is held.
func (p *Progress) erase() {
	if p.onLine {
		fmt.Fprint(Raw(p.s.Err), "\r\x1b[K")
		p.onLine = false
	}
}

func elapsed(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
