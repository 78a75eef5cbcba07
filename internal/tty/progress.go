package tty

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Progress shows what is being waited for: on a terminal one line that is drawn again and again, with a spinner and the
// time gone by; elsewhere one plain line per stage and per note. Safe for concurrent use. Stop it.
type Progress struct {
	s     *Streams
	drawn bool // Err is a terminal
	done  chan struct{}
	wg    sync.WaitGroup
	stop  sync.Once

	mu      sync.Mutex // guards what follows and writes to Err
	stage   string
	note    string
	started time.Time // of the stage
	frame   int
	onLine  bool // the spinner's line is on the screen
}

// Progress starts to show.
func (s *Streams) Progress() *Progress {
	p := &Progress{s: s, drawn: s.ErrTTY, done: make(chan struct{})}
	if p.drawn {
		p.wg.Go(p.spin)
	}
	return p
}

// Stage ends the stage before and begins another. The same name again changes nothing. Names, notes and lines are cleaned.
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

// Note says more about the stage: how long the queue is.
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

// Line prints a line for good, above the spinner.
func (p *Progress) Line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(p.s.Err, CleanColor(text))
	p.draw()
}

// Stop ends the last stage, well or not, and waits until nothing is drawn any more. Only the first call counts.
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

// endStage writes the stage's line for good. p.mu is held.
func (p *Progress) endStage(mark string) {
	p.erase()
	if !p.drawn || p.stage == "" {
		return
	}
	fmt.Fprintf(p.s.Err, "%s %s %s\n", mark, p.stage, p.s.Dim(elapsed(time.Since(p.started))))
}

// draw puts the spinner's line on the screen. p.mu is held.
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

// erase takes the spinner's line away. p.mu is held.
func (p *Progress) erase() {
	if p.onLine {
		fmt.Fprint(p.s.Err, "\r\x1b[K")
		p.onLine = false
	}
}

func elapsed(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
