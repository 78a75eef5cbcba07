package stream

import "sync"

const blockSize = 16 << 10

var blockPool = sync.Pool{New: func() any { return new([blockSize]byte) }}

// blocks holds a contiguous part of a stream, addressed by offsets in the stream. It allocates a block when the first
// byte in it is written, and frees the block when all its bytes are dropped.
type blocks struct {
	first uint64 // the number of list[0]: its bytes begin at first * blockSize
	list  []*[blockSize]byte
	used  int // blocks in list
}

// size returns the memory of the blocks, in bytes.
func (b *blocks) size() int { return b.used * blockSize }

// write stores data at an offset, which must not lie before the dropped bytes.
func (b *blocks) write(offset uint64, data []byte) {
	for len(data) > 0 {
		i := int(offset/blockSize - b.first)
		for i >= len(b.list) {
			b.list = append(b.list, nil)
		}
		if b.list[i] == nil {
			b.list[i] = blockPool.Get().(*[blockSize]byte)
			b.used++
		}
		n := copy(b.list[i][offset%blockSize:], data)
		data = data[n:]
		offset += uint64(n)
	}
}

// read copies the bytes at an offset to to. All of them must have been written.
func (b *blocks) read(offset uint64, to []byte) {
	for len(to) > 0 {
		n := copy(to, b.list[offset/blockSize-b.first][offset%blockSize:])
		to = to[n:]
		offset += uint64(n)
	}
}

// drop frees the bytes before an offset. empty means that no bytes follow it.
func (b *blocks) drop(offset uint64, empty bool) {
	n := 0
	for n < len(b.list) && (b.first+uint64(n)+1)*blockSize <= offset {
		n++
	}
	if empty {
		n = len(b.list)
	}
	for i, block := range b.list[:n] {
		if block != nil {
			blockPool.Put(block)
			b.used--
		}
		b.list[i] = nil
	}
	b.list = b.list[n:]
	b.first += uint64(n)
	if empty {
		b.list, b.first = nil, offset/blockSize
	}
}
