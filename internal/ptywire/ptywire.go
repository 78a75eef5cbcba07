// Package ptywire is the terminal protocol inside the mesh, between a viewer (the server on behalf of a browser, or a
// command line) and the agent that runs the shell. It knows neither shells nor browsers.
//
// Both directions carry frames: one byte of kind, four bytes of length (big endian), and the payload. The viewer first
// sends Open, then Input and Resize. The agent sends Output, and Exit as its last frame. A connection that ends without
// Exit was lost: the shell may still run, and the same id reattaches to it.
package ptywire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
)

// Kind identifies what a frame's payload is.
type Kind byte

const (
	Open   Kind = 'O' // JSON Request, the viewer's first frame
	Input  Kind = 'I' // bytes that were typed
	Resize Kind = 'R' // JSON Size
	Output Kind = 'o' // bytes to show
	Exit   Kind = 'x' // JSON End, the agent's last frame
)

// MaxPayload bounds a frame's payload in bytes. It leaves room for an environment in Open.
const MaxPayload = 1 << 20

// MaxCommand bounds the command of a Request in bytes.
const MaxCommand = 64 << 10

const header = 5

// ErrTooBig is returned for a frame above MaxPayload.
var ErrTooBig = errors.New("frame is too big")

// Size is the size of a terminal, in characters. 0 leaves the size as it is.
type Size struct {
	Height uint16 `json:"height"`
	Width  uint16 `json:"width"`
}

// Request requests a terminal.
type Request struct {
	// ID names the terminal: the same id reattaches to the same shell, as long as the shell lives.
	ID uuid.UUID `json:"id"`
	// Command runs instead of a login shell. It applies only if the terminal is new.
	Command string `json:"command,omitempty"`
	// Early opens the terminal before start scripts that block logins have ended: the viewer has waited, or chosen not
	// to.
	Early bool `json:"early,omitempty"`
	Size
}

// End reports how a terminal ended.
type End struct {
	Code   int    `json:"code"`   // exit status; 128 plus the signal's number after a signal
	Reason string `json:"reason"` // for users, "" after a plain exit
}

// Write sends one frame with a single write. It does not split the payload, which must be at most MaxPayload.
func Write(w io.Writer, kind Kind, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("write frame of %d bytes: %w", len(payload), ErrTooBig)
	}
	frame := make([]byte, header, header+len(payload))
	frame[0] = byte(kind)
	binary.BigEndian.PutUint32(frame[1:], uint32(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// WriteJSON sends one frame that contains v.
func WriteJSON(w io.Writer, kind Kind, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return Write(w, kind, data)
}

// Read returns the next frame, and blocks until it is complete. It returns io.EOF only between frames. It allocates
// memory as data arrives, not as a header claims.
func Read(r io.Reader) (Kind, []byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("read frame of %d bytes: %w", n, ErrTooBig)
	}
	payload, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(payload) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return Kind(head[0]), payload, err
}

// Message is what a browser sends, one JSON object per message: input, a new size, or both.
type Message struct {
	Data   string `json:"data,omitempty"`
	Height uint16 `json:"height,omitempty"`
	Width  uint16 `json:"width,omitempty"`
}

// Forward writes a browser's message as frames.
func (m Message) Forward(w io.Writer) error {
	if m.Height > 0 && m.Width > 0 {
		if err := WriteJSON(w, Resize, Size{m.Height, m.Width}); err != nil {
			return err
		}
	}
	for data := []byte(m.Data); len(data) > 0; {
		n := min(len(data), MaxPayload)
		if err := Write(w, Input, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
