package stream

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// theirs returns the ID of a stream that the test's end has opened.
func theirs(n uint64) streamID { return streamID{number: n, ours: true} }

func data(id streamID, port uint16, offset uint64, b []byte, fin bool) []byte {
	return append(appendData(nil, id, true, port, offset, len(b), fin), b...)
}

// TestFormat pins the wire format: today's encoding must match the one at the time the version got its number.
func TestFormat(t *testing.T) {
	ours, other := streamID{number: 300, ours: true}, streamID{number: 5}
	var b strings.Builder
	show := func(name string, p []byte) { fmt.Fprintf(&b, "%-28s %s\n", name, hex.EncodeToString(p)) }
	show("header", header{epoch: 0x01020304, peer: 0x0a0b0c0d, number: 0x112233445566}.append(nil))
	show("ack of 0 to 9", appendAck(nil, ranges{{0, 10}}, 1234, 256))
	show("ack with two gaps", appendAck(nil, ranges{{3, 5}, {100, 101}, {200, 1000}}, 0, 256))
	show("ping", []byte{kindPing})
	show("window", appendWindow(nil, ours, 1<<24))
	show("stop", appendStop(nil, other))
	show("reset: refused", appendReset(nil, other, reasonRefused))
	show("reset: aborted", appendReset(nil, ours, reasonAborted))
	show("pad", []byte{kindPad, 0, 0})
	show("data", append(appendData(nil, other, false, 0, 70_000, 3, false), "abc"...))
	show("data, opens port 22", append(appendData(nil, ours, true, 22, 0, 3, false), "abc"...))
	show("data, the end", appendData(nil, other, false, 0, 1<<40, 0, true))
	show("data, opens and ends", appendData(nil, ours, true, 65535, 0, 0, true))
	const file = "testdata/format.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s\nA changed format needs another Version, and nodes that speak both.", got, want)
	}
	for line := range strings.Lines(string(want)) {
		p, err := hex.DecodeString(line[29 : len(line)-1])
		if err != nil {
			t.Fatal(err)
		}
		if line[:6] == "header" {
			if h, rest, err := parseHeader(p); err != nil || len(rest) != 0 || h != (header{0x01020304, 0x0a0b0c0d, 0x112233445566}) {
				t.Errorf("header: %+v, %v", h, err)
			}
			continue
		}
		var f frame
		if rest, err := f.parse(p); err != nil || len(rest) != 0 {
			t.Errorf("%s: %v, %d bytes left", line[:28], err, len(rest))
		}
	}
}

func TestAckTellsWhatArrived(t *testing.T) {
	for range 2000 {
		var received ranges
		at := rand.Uint64N(1000)
		for range 1 + rand.IntN(maxRanges) {
			at += 1 + rand.Uint64N(300)
			end := at + 1 + rand.Uint64N(3000)
			received.add(at, end)
			at = end
		}
		var f frame
		rest, err := f.parse(appendAck(nil, received, 5, 512))
		if err != nil || len(rest) != 0 {
			t.Fatalf("%v: %v", received, err)
		}
		got := ranges(slices.Clone(f.acked[:f.spans]))
		slices.Reverse(got)
		if tail := received[len(received)-len(got):]; !slices.Equal(got, tail) {
			t.Fatalf("got %v, want the end of %v", got, received)
		}
	}
}

// TestRanges compares ranges with a naive set.
func TestRanges(t *testing.T) {
	for range 300 {
		var r ranges
		var plain [64]bool
		for range 40 {
			start := rand.Uint64N(60)
			end := start + rand.Uint64N(64-start)
			if rand.IntN(3) == 0 {
				r.remove(start, end)
				for i := start; i < end; i++ {
					plain[i] = false
				}
			} else {
				isNew := slices.Contains(plain[start:end], false)
				if got := r.add(start, end); got != isNew {
					t.Fatalf("add %d-%d: got %v", start, end, got)
				}
				for i := start; i < end; i++ {
					plain[i] = true
				}
			}
			for i := range plain {
				if r.has(uint64(i), uint64(i)+1) != plain[i] {
					t.Fatalf("%v: %d is wrong", r, i)
				}
			}
			for i := 1; i < len(r); i++ {
				if r[i-1].end >= r[i].start {
					t.Fatalf("%v is not in order", r)
				}
			}
		}
	}
}
