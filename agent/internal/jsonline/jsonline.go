// Package jsonline exchanges one request and one response on a Unix socket, a line of JSON each. It does not interpret
// them.
package jsonline

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// Timeout bounds reading a question and writing an answer. Both ends run on the same machine.
const Timeout = 10 * time.Second

// Read reads one line of at most limit bytes into v.
func Read(from io.Reader, limit int64, v any) error {
	line, err := bufio.NewReader(io.LimitReader(from, limit)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, v)
	}
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return nil
}

// Write writes v as one line, for Timeout at most.
func Write(conn net.Conn, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(Timeout)) // fails only once it is closed
	_, err = conn.Write(append(data, '\n'))
	return err
}

// Ask sends a question to the socket at path and blocks for the answer, of at most limit bytes. If ctx ends first it
// returns ctx's error.
func Ask(ctx context.Context, path string, limit int64, question, answer any) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = Write(conn, question)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(conn, limit)).Decode(answer)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
