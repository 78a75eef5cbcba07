package sftpext

import "encoding/binary"

// Write takes the server's answers.
func (f *Filter) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 {
		n, err := f.take(b)
		b = b[n:]
		if err != nil {
			return total - len(b), err
		}
	}
	return total, nil
}

// take handles the beginning of b and returns how much that is.
func (f *Filter) take(b []byte) (int, error) {
	if f.passing == 0 && !f.holding {
		f.holding = len(b) < idEnd || f.concerns(b[4], binary.BigEndian.Uint32(b[headLen:]))
		if !f.holding {
			f.passing = 4 + int(binary.BigEndian.Uint32(b))
		}
	}
	if f.holding {
		return f.hold(b)
	}
	n, err := f.client.Write(b[:min(len(b), f.passing)])
	f.passing -= n
	if f.passing == 0 || err != nil {
		f.passing = 0
		f.answered()
	}
	return n, err
}

// concerns reports whether the filter must see an answer as a whole.
func (f *Filter) concerns(kind byte, id uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, opening := f.opening[id]
	if opening && kind != typeHandle {
		delete(f.opening, id) // it failed
	}
	return f.mine || kind == typeVersion || opening && kind == typeHandle
}

// hold collects an answer and handles it when it is complete.
func (f *Filter) hold(b []byte) (int, error) {
	n := min(len(b), max(0, 4-len(f.held)))
	f.held = append(f.held, b[:n]...)
	if len(f.held) < 4 {
		return n, nil
	}
	missing := 4 + int(binary.BigEndian.Uint32(f.held)) - len(f.held)
	more := min(len(b)-n, missing)
	f.held = append(f.held, b[n:n+more]...)
	if more < missing {
		return n + more, nil
	}
	packet := f.held
	f.held, f.holding = f.held[:0], false
	return n + more, f.complete(packet)
}

func (f *Filter) complete(packet []byte) error {
	defer f.answered()
	var head [idEnd]byte // zero where a packet has no id
	copy(head[:], packet)
	id := binary.BigEndian.Uint32(head[headLen:])
	f.mu.Lock()
	mine := f.mine
	if name, ok := f.opening[id]; ok && head[4] == typeHandle {
		delete(f.opening, id)
		fields := fields{packet[idEnd:], true}
		f.names[fields.string()] = name
	}
	f.mu.Unlock()
	if mine {
		select {
		case f.replies <- packet:
		case <-f.closed:
		}
		return nil
	}
	if head[4] == typeVersion {
		for _, e := range extensions {
			packet = appendString(appendString(packet, e[0]), e[1])
		}
		packet = finish(packet)
	}
	_, err := f.client.Write(packet)
	return err
}

// answered counts an answer that has been passed on, or failed to be.
func (f *Filter) answered() {
	f.mu.Lock()
	f.inFlight--
	idle := f.inFlight == 0
	f.mu.Unlock()
	if idle {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
}
