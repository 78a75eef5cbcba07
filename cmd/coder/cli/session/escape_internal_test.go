package session

import (
	"io"
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, want string
		lost     bool
	}{
		{"ls\r", "ls\r", false}, {"~.", "", true}, {"ls\r~.", "ls\r", true}, {"a~.b", "a~.b", false}, {"~~.x", "~.x", false},
		{"~x", "~x", false}, {"\r~/bin\r", "\r~/bin\r", false},
	} {
		for _, size := range []int{1, 64} { // a byte at a time, as users type, and all at once
			lost := false
			e := &escape{r: &chunks{text: tt.in, size: size}, lost: func() { lost = true }}
			got, err := io.ReadAll(e)
			// Input from the same read as the escape is lost with the connection.
			if err != nil || lost != tt.lost || string(got) != tt.want && !(lost && strings.HasPrefix(tt.want, string(got))) {
				t.Errorf("%q by %d: got %q, lost %v, %v; want %q, %v", tt.in, size, got, lost, err, tt.want, tt.lost)
			}
		}
	}
}

type chunks struct {
	text string
	size int
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.size)], c.text)
	c.text = c.text[n:]
	return n, nil
}
