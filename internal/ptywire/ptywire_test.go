package ptywire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	if err := ptywire.Write(&wire, ptywire.Output, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", ptywire.MaxPayload+10)
	if err := (ptywire.Message{Data: long, Height: 20, Width: 80}).Forward(&wire); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind ptywire.Kind
		size int
	}{{ptywire.Output, 5}, {ptywire.Resize, len(`{"height":20,"width":80}`)}, {ptywire.Input, ptywire.MaxPayload}, {ptywire.Input, 10}} {
		kind, payload, err := ptywire.Read(&wire)
		if err != nil || kind != want.kind || len(payload) != want.size {
			t.Fatalf("got %c with %d bytes, %v, want %c with %d", kind, len(payload), err, want.kind, want.size)
		}
	}
	if _, _, err := ptywire.Read(&wire); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want the end", err)
	}
	if err := ptywire.Write(io.Discard, ptywire.Input, []byte(long)); !errors.Is(err, ptywire.ErrTooBig) {
		t.Errorf("too big a frame: %v", err)
	}
	if _, _, err := ptywire.Read(strings.NewReader("I\x00\x00\x00\x05ab")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v, want an unexpected end", err)
	}
	if _, _, err := ptywire.Read(strings.NewReader("I\xff\xff\xff\xff")); !errors.Is(err, ptywire.ErrTooBig) {
		t.Errorf("a claim of 4 GiB: %v, want too big", err)
	}
}

// FuzzRead: whatever arrives, a frame that was read can be written again and is the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte("I\x00\x00\x00\x02ab"))
	f.Add([]byte("O\x00\x00\x00\x02{}"))
	f.Add([]byte("R\x00\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			kind, payload, err := ptywire.Read(r)
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := ptywire.Write(&again, kind, payload); err != nil {
				t.Fatal(err)
			}
			gotKind, got, err := ptywire.Read(&again)
			if err != nil || gotKind != kind || !bytes.Equal(got, payload) {
				t.Fatalf("frame %c %q became %c %q, %v", kind, payload, gotKind, got, err)
			}
		}
	})
}

// FuzzMessage: whatever a browser sends, Forward writes whole frames with the same data.
func FuzzMessage(f *testing.F) {
	f.Add(`{"data":"ls\r"}`)
	f.Add(`{"height":24,"width":80}`)
	f.Add(`{"height":-1,"data":"\ud800"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var m ptywire.Message
		if json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		var wire bytes.Buffer
		if err := m.Forward(&wire); err != nil {
			t.Fatal(err)
		}
		var data []byte
		for wire.Len() > 0 {
			kind, payload, err := ptywire.Read(&wire)
			if err != nil {
				t.Fatal(err)
			}
			if kind == ptywire.Input {
				data = append(data, payload...)
			}
		}
		if string(data) != m.Data {
			t.Errorf("typed %q, forwarded %q", m.Data, data)
		}
	})
}
