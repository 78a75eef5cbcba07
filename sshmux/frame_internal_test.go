package sshmux

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/frames.txt anew: only together with a new Version")

const golden = "testdata/frames.txt"

// frames returns frames of every kind, filled in every way.
func frames() []frame {
	return []frame{
		{kind: kindOpen, channel: 1, window: FirstWindow, name: "session"},
		{kind: kindOpen, channel: byServer | 1, want: true, window: MaxWindow, name: "forwarded-tcpip", data: []byte("where from")},
		{kind: kindAccept, channel: 1},
		{kind: kindReject, channel: 1, reason: 2, data: []byte("connection refused")},
		{kind: kindData, channel: 1, data: []byte("hello")},
		{kind: kindStderr, channel: byServer | 1, data: []byte("alas")},
		{kind: kindWindow, channel: 1, window: 512 << 10},
		{kind: kindEOF, channel: 1},
		{kind: kindClose, channel: 1},
		{kind: kindRequest, channel: 1, want: true, name: "exec", data: []byte("\x00\x00\x00\x04true")},
		{kind: kindRequest, channel: 1, name: "exit-status", data: make([]byte, 4)},
		{kind: kindAnswer, channel: 1, ok: true},
		{kind: kindAnswer, channel: 1},
		{kind: kindGlobal, number: 7, name: "tcpip-forward", data: []byte("where")},
		{kind: kindGlobal, name: "no-more-sessions@openssh.com"},
		{kind: kindReply, number: 7, ok: true, data: []byte{0, 0, 0x1f, 0x90}},
		{kind: kindReply, number: 8},
	}
}

// TestGolden pins the protocol's bytes. Programs of the same Version must understand each other, so a changed byte requires a new Version.
func TestGolden(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	fmt.Fprintf(&text, "preamble %x\n", preamble)
	for _, f := range frames() {
		b, err := f.append(nil)
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		fmt.Fprintf(&text, "%d %x\n", f.kind, b)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the bytes differ from %s; got\n%s", golden, text.String())
	}
}

// TestGoldenIsRead parses the bytes of TestGolden.
func TestGoldenIsRead(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")[1:]
	want := frames()
	if len(lines) != len(want) {
		t.Fatalf("%s has %d frames, want %d", golden, len(lines), len(want))
	}
	for i, line := range lines {
		_, digits, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if want[i].data == nil {
			want[i].data = []byte{}
		}
		if err != nil || !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: got %+v, %v; want %+v", line, got, err, want[i])
		}
	}
}

func decode(b []byte) (frame, error) {
	var head [4 + headerSize]byte
	if copy(head[:], b) < len(head) {
		return frame{}, errProtocol
	}
	f, n, err := parseHeader(head)
	if err != nil {
		return f, err
	}
	if n != len(b)-len(head) {
		return f, errProtocol
	}
	return f, f.parse(b[len(head):])
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]frame{
		"data": {kind: kindData, data: make([]byte, MaxData+1)}, "type": {kind: kindOpen, name: strings.Repeat("x", maxType+1)},
		"endless type": {kind: kindRequest, name: strings.Repeat("x", 1<<16)}, "request": {kind: kindRequest, name: "exec", data: make([]byte, MaxData)},
	} {
		if b, err := f.append([]byte("before")); err == nil || string(b) != "before" {
			t.Errorf("%s: got %d bytes, %v; want an error and nothing appended", what, len(b), err)
		}
	}
}

// FuzzFrame parses a frame and checks that a valid one encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	for _, one := range frames() {
		b, err := one.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decode(data)
		if err != nil {
			return
		}
		if again, err := got.append(nil); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x was read as %+v, which is written as %x, %v", data, got, again, err)
		}
	})
}
