package agents_test

import (
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/sshmux"
)

// hostile serves SFTP: answer returns what an agent sends for a request, packet by packet, until it returns nil.
func hostile(t *testing.T, answer func(kind byte, id uint32, body []byte) func() []byte) string {
	t.Helper()
	return serveChannels(t, func(channel *sshmux.Channel) {
		for {
			head := make([]byte, 5)
			if _, err := io.ReadFull(channel, head); err != nil {
				return
			}
			body := make([]byte, binary.BigEndian.Uint32(head)-1)
			if _, err := io.ReadFull(channel, body); err != nil {
				return
			}
			next := once(packet(2, 3)) // VERSION, for INIT
			if head[4] != 1 {
				next = answer(head[4], binary.BigEndian.Uint32(body), body[4:])
			}
			for b := next(); b != nil; b = next() {
				if _, err := channel.Write(b); err != nil {
					return
				}
			}
		}
	})
}

// packet returns an SFTP packet whose fields are numbers and strings.
func packet(kind byte, fields ...any) []byte {
	b := []byte{kind}
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(f))
		case uint32:
			b = binary.BigEndian.AppendUint32(b, f)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, f)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(f))), f...)
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func once(b []byte) func() []byte {
	return func() []byte {
		out := b
		b = nil
		return out
	}
}

const (
	sftpRead, sftpLstat, sftpOpendir, sftpReaddir, sftpRealpath, sftpStat, sftpOpen, sftpFstat = 5, 7, 11, 12, 16, 17, 3, 8
	sftpStatus, sftpHandle, sftpData, sftpNames, sftpAttrs                                     = 101, 102, 103, 104, 105
)

// folderOf answers as an agent with one folder, whose entries it returns for each question.
func folderOf(entries func(id uint32) []byte) func(kind byte, id uint32, body []byte) func() []byte {
	return func(kind byte, id uint32, _ []byte) func() []byte {
		switch kind {
		case sftpRealpath:
			return once(packet(sftpNames, id, 1, "/home", "", 0))
		case sftpOpendir:
			return once(packet(sftpHandle, id, "h"))
		case sftpReaddir:
			return once(entries(id))
		}
		return once(packet(sftpStatus, id, 0, "", ""))
	}
}

// names returns n entries of one name, as an answer for folderOf.
func names(name string, n int) func(id uint32) []byte {
	return func(id uint32) []byte {
		fields := []any{id, n}
		for range n {
			fields = append(fields, name, "", 0)
		}
		return packet(sftpNames, fields...)
	}
}

// fileOf answers as an agent with one file without end, which it says has a size.
func fileOf(size uint64) func(kind byte, id uint32, body []byte) func() []byte {
	return func(kind byte, id uint32, _ []byte) func() []byte {
		switch kind {
		case sftpStat, sftpLstat, sftpFstat:
			return once(packet(sftpAttrs, id, 1|4, size, 0o100644))
		case sftpOpen:
			return once(packet(sftpHandle, id, "h"))
		case sftpRead:
			return once(packet(sftpData, id, strings.Repeat("d", 32<<10)))
		}
		return once(packet(sftpStatus, id, 0, "", ""))
	}
}

// TestHostileAgents checks that an agent cannot exhaust the server: each answers every request, and never ends.
func TestHostileAgents(t *testing.T) {
	t.Parallel()
	t.Run("a folder without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, folderOf(names("x", 1000))))
		if got := w.list(); !got.Cut || len(got.Files) != 10_000 {
			t.Errorf("%d entries, cut %t", len(got.Files), got.Cut)
		}
	})
	t.Run("huge names without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, folderOf(names(strings.Repeat("n", 200<<10), 1))))
		if got := w.list(); !got.Cut || len(got.Files) != 0 {
			t.Errorf("%d entries, cut %t", len(got.Files), got.Cut)
		}
	})
	t.Run("more than was asked for", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, func(_ byte, id uint32, _ []byte) func() []byte {
			return func() []byte { return packet(sftpNames, id, 1, "/home", "", 0) }
		}))
		w.status(http.StatusServiceUnavailable, http.MethodGet, "", nil)
	})
	t.Run("malformed", func(t *testing.T) {
		t.Parallel()
		for name, answer := range map[string][]byte{
			"a long packet": binary.BigEndian.AppendUint32(nil, 1<<31), "another id": packet(sftpNames, 77, 1, "/home", "", 0),
			"a long string": packet(sftpNames, 1, 1, 1<<31-1), "another kind": packet(sftpData, 1, "x"), "nothing": packet(sftpNames),
		} {
			w := filesAt(t, hostile(t, func(byte, uint32, []byte) func() []byte { return once(answer) }))
			if resp, _ := w.request("ann", http.MethodGet, "", nil); resp.StatusCode < 400 || resp.StatusCode == http.StatusInternalServerError {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
		}
	})
	t.Run("a file longer than it says", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, fileOf(100_000)))
		if got := w.status(http.StatusOK, http.MethodGet, "content", nil, "path", "f"); got != strings.Repeat("d", 100_000) {
			t.Errorf("got %d bytes, want 100000", len(got))
		}
	})
	t.Run("a file without end", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, fileOf(0)))
		resp, err := w.send("ann", http.MethodGet, "content", nil, "path", "f")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > 64<<20 {
			t.Errorf("got %d bytes, %v; want a broken connection after 64 MiB", n, err)
		}
	})
	t.Run("a size that is none", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, fileOf(1<<63)))
		w.status(http.StatusConflict, http.MethodGet, "content", nil, "path", "f")
	})
	t.Run("a long reason", func(t *testing.T) {
		t.Parallel()
		w := filesAt(t, hostile(t, func(_ byte, id uint32, _ []byte) func() []byte {
			return once(packet(sftpStatus, id, 4, strings.Repeat("\x1b<b>", 10_000), ""))
		}))
		if msg := w.status(http.StatusConflict, http.MethodGet, "", nil); len(msg) > 1000 || strings.ContainsRune(msg, 0x1b) {
			t.Errorf("%d bytes: %.100s", len(msg), msg)
		}
	})
}

// TestAgentsThatConfirm: an agent that confirms a question instead of answering it is as one that does not answer.
func TestAgentsThatConfirm(t *testing.T) {
	t.Parallel()
	for _, confirmed := range [][]byte{{sftpStat, sftpLstat, sftpFstat}, {sftpOpen}} {
		file := fileOf(100)
		w := filesAt(t, hostile(t, func(kind byte, id uint32, body []byte) func() []byte {
			if slices.Contains(confirmed, kind) {
				return once(packet(sftpStatus, id, 0, "", ""))
			}
			return file(kind, id, body)
		}))
		w.status(http.StatusServiceUnavailable, http.MethodGet, "content", nil, "path", "f")
		w.status(http.StatusServiceUnavailable, http.MethodPut, "content", strings.NewReader("x"), "path", "f", "overwrite", "true")
	}
}
