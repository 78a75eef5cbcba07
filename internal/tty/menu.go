package tty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"golang.org/x/term"
)

// ErrInterrupted is returned if the user presses Ctrl-C in a menu, which receives no signal for it.
var ErrInterrupted = errors.New("interrupted")

// maxRows bounds how many choices a menu shows at once.
const maxRows = 10

// menu lets the user pick from the choices of a question with the arrow keys, and narrow them by typing. With Many, the
// space bar checks a choice, and any number of them can be checked.
type menu struct {
	q       Question
	paint   *Streams // for its colors
	filter  string
	found   []int // choices that match the filter
	cursor  int   // index in found
	top     int   // first choice of found that is on the screen
	checked []bool
	problem string // why the last answer was refused
}

func newMenu(s *Streams, q Question) *menu {
	m := &menu{q: q, paint: s, checked: make([]bool, len(q.Choices))}
	m.search("")
	for i, c := range q.Choices {
		if is := q.defaultHas(c.Value); is && q.Many {
			m.checked[i] = true
		} else if is {
			m.cursor = i
		}
	}
	return m
}

// search finds the choices whose label, help or value contain the filter.
func (m *menu) search(filter string) {
	m.filter, m.found, m.cursor, m.top = filter, nil, 0, 0
	want := strings.ToLower(filter)
	for i, c := range m.q.Choices {
		if strings.Contains(strings.ToLower(c.Label+"\n"+c.Help+"\n"+c.Value), want) {
			m.found = append(m.found, i)
		}
	}
	// What is named like that comes before what only mentions it.
	slices.SortStableFunc(m.found, func(a, b int) int { return cmp.Compare(m.rank(a, want), m.rank(b, want)) })
}

func (m *menu) rank(i int, want string) int {
	if label := strings.ToLower(m.q.Choices[i].Label); strings.HasPrefix(label, want) {
		return 0
	} else if strings.Contains(label, want) {
		return 1
	}
	return 2
}

// press handles a key, 0 for none. It is done when the key completes the answer, or gives the question up.
func (m *menu) press(k key) (answer string, done bool, err error) {
	if k == 0 {
		return "", false, nil
	}
	m.problem = ""
	last := len(m.found) - 1
	switch k {
	case keyInterrupt:
		return "", true, ErrInterrupted
	case keyEnd:
		return "", true, io.ErrUnexpectedEOF
	case keyUp, keyDown: // from one end to the other
		if last >= 0 {
			step := 1
			if k == keyUp {
				step = last
			}
			m.cursor = (m.cursor + step) % (last + 1)
		}
	case keyPageUp:
		m.cursor = max(m.cursor-maxRows, 0)
	case keyPageDown:
		m.cursor = max(min(m.cursor+maxRows, last), 0)
	case keyFirst:
		m.cursor = 0
	case keyLast:
		m.cursor = max(last, 0)
	case keyErase:
		if m.filter != "" {
			runes := []rune(m.filter)
			m.search(string(runes[:len(runes)-1]))
		}
	case keyClear:
		m.search("")
	case keyEnter:
		answer, done := m.enter()
		return answer, done, nil
	case ' ':
		if m.q.Many {
			if last >= 0 {
				m.checked[m.found[m.cursor]] = !m.checked[m.found[m.cursor]]
			}
			break
		}
		m.search(m.filter + " ")
	default:
		m.search(m.filter + string(rune(k)))
	}
	return "", false, nil
}

// enter completes the answer, unless it is refused.
func (m *menu) enter() (answer string, done bool) {
	switch {
	case m.q.Many:
		values := []string{}
		for i, c := range m.q.Choices {
			if m.checked[i] {
				values = append(values, c.Value)
			}
		}
		answer = marshalList(values)
	case len(m.found) == 0:
		m.problem = fmt.Sprintf("%q is not one of the choices", m.filter)
		return "", false
	default:
		answer = m.q.Choices[m.found[m.cursor]].Value
	}
	if m.q.Check != nil {
		if refused := m.q.Check(answer); refused != nil {
			m.problem = refused.Error()
			return "", false
		}
	}
	return answer, true
}

// view returns the menu's lines for a screen of that size.
func (m *menu) view(width, height int) []string {
	rows := max(min(maxRows, height-4), 1)
	m.top = min(m.top, m.cursor)
	m.top = max(m.top, m.cursor-rows+1)
	shown := m.found[m.top:min(m.top+rows, len(m.found))]
	fit := func(text string) string { return displaywidth.TruncateString(text, max(width-1, 1), "…") }
	lines := []string{m.paint.Bold(fit(oneLine(m.q.Text)+":")) + fitRest(" "+m.filter,
		width-displaywidth.String(oneLine(m.q.Text))-2)}
	for n, i := range shown {
		lines = append(lines, m.row(i, m.top+n == m.cursor, fit))
	}
	if hidden := len(m.found) - len(shown); hidden > 0 {
		lines = append(lines, m.paint.Dim(fit(fmt.Sprintf("  (%d more)", hidden))))
	}
	switch {
	case m.problem != "":
		lines = append(lines, m.paint.Red(fit(sentence(oneLine(m.problem)))))
	case len(m.found) == 0:
		lines = append(lines, m.paint.Dim(fit("No choice matches. Ctrl-U clears what you typed.")))
	case m.q.Many:
		lines = append(lines, m.paint.Dim(fit("Space checks, Enter accepts, typing filters.")))
	default:
		lines = append(lines, m.paint.Dim(fit("Arrow keys move, Enter chooses, typing filters.")))
	}
	return lines
}

// row returns the line of one choice.
func (m *menu) row(i int, current bool, fit func(string) string) string {
	c := m.q.Choices[i]
	mark := "  "
	if current {
		mark = "> "
	}
	if m.q.Many {
		mark += map[bool]string{true: "[x] ", false: "[ ] "}[m.checked[i]]
	}
	label := mark + oneLine(c.Label)
	plain := label
	if help := oneLine(c.Help); help != "" {
		plain += "  " + help
	}
	plain = fit(plain)
	if current {
		return m.paint.Green(plain)
	}
	if rest, whole := strings.CutPrefix(plain, label); whole && rest != "" {
		return label + m.paint.Dim(rest)
	}
	return plain
}

// result returns the line that replaces the menu when it is done.
func (m *menu) result(answer string) string {
	var labels []string
	for i, c := range m.q.Choices {
		if m.q.Many && m.checked[i] || !m.q.Many && c.Value == answer {
			labels = append(labels, oneLine(c.Label))
		}
	}
	if len(labels) == 0 {
		labels = []string{"none"}
	}
	return m.paint.Bold(oneLine(m.q.Text)+":") + " " + strings.Join(labels, ", ")
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(Clean(text)), " ")
}

func fitRest(text string, width int) string {
	return displaywidth.TruncateString(text, max(width, 0), "…")
}

// marshalList returns texts as a JSON list.
func marshalList(texts []string) string {
	data, err := json.Marshal(texts)
	if err != nil {
		panic("tty: " + err.Error()) // texts can always be encoded
	}
	return string(data)
}

// keyboard returns In if a menu can be drawn: In is a terminal, and colors are not turned off.
func (s *Streams) keyboard() (*os.File, bool) {
	f, ok := s.In.(*os.File)
	return f, ok && s.Color && term.IsTerminal(int(f.Fd()))
}

// size returns the size of the terminal in characters.
func (s *Streams) size(keyboard *os.File) (width, height int) {
	width, height, err := term.GetSize(int(keyboard.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// choose draws a menu and follows the user's keys until there is an answer. The terminal is in raw mode meanwhile.
func (s *Streams) choose(ctx context.Context, keyboard *os.File, q Question) (answer string, err error) {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return "", fmt.Errorf("read keys: %w", err)
	}
	m := newMenu(s, q)
	drawn := 0 // lines on the screen
	draw := func(lines []string) {
		var out strings.Builder
		if drawn > 1 {
			fmt.Fprintf(&out, "\x1b[%dA", drawn-1)
		}
		out.WriteString("\r\x1b[J" + strings.Join(lines, "\r\n"))
		drawn = len(lines)
		fmt.Fprint(Raw(s.Err), out.String())
	}
	fmt.Fprint(Raw(s.Err), "\x1b[?25l") // hides the cursor
	defer func() {
		end := []string{m.paint.Bold(oneLine(q.Text) + ":")}
		if err == nil {
			end = []string{m.result(answer)}
		}
		draw(append(end, ""))
		fmt.Fprint(Raw(s.Err), "\x1b[?25h")
		err = errors.Join(err, term.Restore(int(keyboard.Fd()), before))
	}()
	for want := 1; ; {
		draw(m.view(s.size(keyboard)))
		if err := s.await(ctx, want); err != nil {
			return "", err
		}
		for {
			typed, _ := s.lines().Peek(s.lines().Buffered()) // cannot fail for what is buffered
			k, size := parseKey(typed)
			if size == 0 {
				want = len(typed) + 1
				break
			}
			if _, err := s.lines().Discard(size); err != nil {
				return "", err
			}
			if answer, done, err := m.press(k); done {
				return answer, err
			}
		}
	}
}

// await waits until n bytes of In are buffered.
func (s *Streams) await(ctx context.Context, n int) error {
	got := make(chan error, 1)
	go func() {
		_, err := s.lines().Peek(n)
		got <- err
	}()
	select {
	case err := <-got:
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
