package tty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// ErrNotTerminal is returned if there is no terminal on which to ask a question.
var ErrNotTerminal = errors.New("standard input is not a terminal")

// Question is one thing to ask.
type Question struct {
	Text    string
	Help    string // a line above the question, may be empty
	Default string // replaces an empty answer; "" with HasDefault unset requires an answer
	// HasDefault allows an empty answer even if Default is empty.
	HasDefault bool
	Secret     bool     // not echoed
	Choices    []Choice // not empty: one of these, by number, label or value, or from a menu
	// Many allows several answers, or none: any of Choices, or any texts if there are none. Default and the answer are
	// JSON lists of strings.
	Many  bool
	Check func(answer string) error // nil accepts all. Its error is shown before the question is repeated.
}

// Choice is one possible answer.
type Choice struct {
	Label, Help, Value string
}

// Ask asks until it gets a valid answer. Choices are a menu for the arrow keys, or a numbered list if the terminal has
// no colors or NO_COLOR turns them off. Ask returns ErrNotTerminal if In is not a terminal, io.ErrUnexpectedEOF if In
// ends, ErrInterrupted, and ctx's error if ctx ends first. In that case a read of In may still be in progress, and the
// process should end.
func (s *Streams) Ask(ctx context.Context, q Question) (string, error) {
	if !s.InTTY {
		return "", ErrNotTerminal
	}
	if q.Help != "" {
		fmt.Fprintln(s.Err, s.Dim(Clean(q.Help)))
	}
	if keyboard, ok := s.keyboard(); ok && len(q.Choices) > 0 {
		return s.choose(ctx, keyboard, q)
	}
	hint := s.list(q)
	for {
		fmt.Fprint(s.Err, s.Bold(Clean(q.Text)))
		if hint != "" && !q.Secret {
			fmt.Fprint(s.Err, s.Dim(" ["+Clean(hint)+"]"))
		}
		fmt.Fprint(s.Err, ": ")
		answer, err := s.answer(ctx, q.Secret)
		if err != nil {
			return "", err
		}
		answer, err = q.resolve(answer)
		if err == nil {
			return answer, nil
		}
		fmt.Fprintln(s.Err, s.Red(sentence(Clean(err.Error()))))
	}
}

// list prints the numbered choices. It returns the default as users type it.
func (s *Streams) list(q Question) (hint string) {
	var defaults []string
	for i, c := range q.Choices {
		number := strconv.Itoa(i + 1)
		if q.defaultHas(c.Value) {
			defaults = append(defaults, number)
		}
		fmt.Fprintf(s.Err, "  %s) %s", number, Clean(c.Label))
		if c.Help != "" {
			fmt.Fprint(s.Err, s.Dim("  "+Clean(c.Help)))
		}
		fmt.Fprintln(s.Err)
	}
	if len(q.Choices) > 0 {
		return strings.Join(defaults, ",")
	}
	if values, ok := parseList(q.Default); q.Many && ok {
		return strings.Join(values, ",")
	}
	return q.Default
}

// defaultHas reports whether a choice is the default, or one of several.
func (q Question) defaultHas(value string) bool {
	if q.Many {
		values, _ := parseList(q.Default)
		return slices.Contains(values, value)
	}
	return value == q.Default && (q.HasDefault || q.Default != "")
}

func parseList(text string) (values []string, ok bool) {
	return values, json.Unmarshal([]byte(text), &values) == nil
}

// sentence returns an error's text in the form in which users read it below a question.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// resolve turns the typed text into the answer.
func (q Question) resolve(typed string) (string, error) {
	if !q.Secret {
		typed = strings.TrimSpace(typed)
	}
	switch {
	case typed == "" && (q.Default != "" || q.HasDefault):
		typed = q.Default
	case typed == "" && q.Many:
		typed = "[]"
	case typed == "":
		return "", errors.New("an answer is required")
	case q.Many:
		several, err := q.several(typed)
		if err != nil {
			return "", err
		}
		typed = several
	case len(q.Choices) > 0:
		value, ok := pick(q.Choices, typed)
		if !ok {
			return "", fmt.Errorf("%q is not one of the choices", typed)
		}
		typed = value
	}
	if q.Check != nil {
		if err := q.Check(typed); err != nil {
			return "", err
		}
	}
	return typed, nil
}

// several turns answers with commas between them, or a JSON list, into a JSON list.
func (q Question) several(typed string) (string, error) {
	values, ok := parseList(typed)
	if !ok {
		values = []string{}
		for part := range strings.SplitSeq(typed, ",") {
			if part = strings.TrimSpace(part); part != "" {
				values = append(values, part)
			}
		}
	}
	if len(q.Choices) > 0 {
		for i, value := range values {
			if values[i], ok = pick(q.Choices, value); !ok {
				return "", fmt.Errorf("%q is not one of the choices", value)
			}
		}
	}
	return marshalList(values), nil
}

func pick(choices []Choice, typed string) (string, bool) {
	for _, by := range []func(Choice) bool{
		func(c Choice) bool { return c.Value == typed },
		func(c Choice) bool { return strings.EqualFold(c.Label, typed) },
	} {
		if i := slices.IndexFunc(choices, by); i >= 0 {
			return choices[i].Value, true
		}
	}
	if n, err := strconv.Atoi(typed); err == nil && n >= 1 && n <= len(choices) {
		return choices[n-1].Value, true
	}
	return "", false
}

// answer reads one line, or ends with ctx.
func (s *Streams) answer(ctx context.Context, secret bool) (string, error) {
	type line struct {
		text string
		err  error
	}
	restore := func() {}
	read := func() (string, error) {
		text, err := s.lines().ReadString('\n')
		if errors.Is(err, io.EOF) && text != "" {
			err = nil
		}
		return strings.TrimRight(text, "\r\n"), err
	}
	if f, ok := s.In.(*os.File); ok && secret && term.IsTerminal(int(f.Fd())) {
		if state, err := term.GetState(int(f.Fd())); err == nil {
			restore = func() { _ = term.Restore(int(f.Fd()), state) }
		}
		read = func() (string, error) {
			text, err := term.ReadPassword(int(f.Fd()))
			fmt.Fprintln(s.Err)
			return string(text), err
		}
	}
	got := make(chan line, 1)
	go func() {
		text, err := read()
		got <- line{text, err}
	}()
	select {
	case l := <-got:
		if errors.Is(l.err, io.EOF) {
			return "", io.ErrUnexpectedEOF
		}
		return l.text, l.err
	case <-ctx.Done():
		restore()
		fmt.Fprintln(s.Err)
		return "", ctx.Err()
	}
}

// Confirm asks a yes-or-no question. An empty answer means def.
func (s *Streams) Confirm(ctx context.Context, text string, def bool) (bool, error) {
	hint := map[bool]string{true: "yes", false: "no"}[def]
	answer, err := s.Ask(ctx, Question{Text: text + " (yes/no)", Default: hint, Check: func(a string) error {
		if _, ok := parseYes(a); !ok {
			return errors.New("the answer must be yes or no")
		}
		return nil
	}})
	if err != nil {
		return false, err
	}
	yes, _ := parseYes(answer)
	return yes, nil
}

func parseYes(answer string) (yes, ok bool) {
	switch strings.ToLower(answer) {
	case "y", "yes":
		return true, true
	case "n", "no":
		return false, true
	}
	return false, false
}
