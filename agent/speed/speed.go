package speed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/codermesh/codermesh/v2/internal/netio"
)

// Direction is the direction of a test, as seen from the client.
type Direction string

const (
	Down Direction = "down"
	Up   Direction = "up"
)

const (
	MaxSeconds    = 60
	maxHeader     = 256 // bytes, with the newline
	headerTimeout = 10 * time.Second
	// grace is how much longer than requested a test may take, for the last bytes in transit.
	grace     = 15 * time.Second
	chunkSize = 256 << 10
)

// Request is the client's line.
type Request struct {
	Direction Direction `json:"direction"`
	Seconds   float64   `json:"seconds"` // above 0, at most MaxSeconds
}

// Result is what the receiving end counted.
type Result struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"` // from the first byte to the last
}

// Mbit returns the rate in megabits (10^6) per second.
func (r Result) Mbit() float64 {
	if r.Seconds <= 0 {
		return 0
	}
	return float64(r.Bytes) * 8 / 1e6 / r.Seconds
}

// ParseRequest parses the client's line, with or without its newline.
func ParseRequest(line []byte) (Request, error) {
	var req Request
	if len(line) > maxHeader {
		return req, fmt.Errorf("parse speedtest request: longer than %d bytes", maxHeader)
	}
	if err := json.Unmarshal(line, &req); err != nil {
		return req, fmt.Errorf("parse speedtest request: %w", err)
	}
	if req.Direction != Down && req.Direction != Up {
		return req, fmt.Errorf("parse speedtest request: direction %q is neither down nor up", req.Direction)
	}
	if !(req.Seconds > 0 && req.Seconds <= MaxSeconds) {
		return req, fmt.Errorf("parse speedtest request: seconds must be above 0 and at most %d", MaxSeconds)
	}
	return req, nil
}

// Serve serves one test on conn and closes it. It takes at most a few seconds longer than the client requests.
func Serve(conn net.Conn) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(headerTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	line, err := readLine(conn)
	if err != nil {
		return fmt.Errorf("read speedtest request: %w", err)
	}
	req, err := ParseRequest(line)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(req.duration() + grace)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if req.Direction == Down {
		if err := send(conn, req.duration()); err != nil {
			return fmt.Errorf("send speedtest: %w", err)
		}
		return waitForEnd(conn)
	}
	result, err := receive(conn)
	if err != nil {
		return fmt.Errorf("receive speedtest: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(result); err != nil {
		return fmt.Errorf("answer speedtest: %w", err)
	}
	return waitForEnd(conn)
}

// Run runs the client's side of one test on conn, and closes it. progress, if not nil, is called about every half
// second with the result so far.
func Run(ctx context.Context, conn net.Conn, req Request, progress func(Result)) (Result, error) {
	defer conn.Close()
	line, err := json.Marshal(req)
	if err != nil {
		return Result{}, fmt.Errorf("encode speedtest request: %w", err)
	}
	if _, err := ParseRequest(line); err != nil {
		return Result{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(req.duration() + grace)); err != nil {
		return Result{}, fmt.Errorf("set deadline: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return Result{}, fmt.Errorf("send speedtest request: %w", errors.Join(err, ctx.Err()))
	}
	counted := &counter{Conn: conn, progress: progress, start: time.Now(), last: time.Now()}
	var result Result
	if req.Direction == Down {
		result, err = receive(counted)
	} else {
		result, err = upload(counted, req.duration())
	}
	if err != nil {
		return Result{}, fmt.Errorf("speedtest %s: %w", req.Direction, errors.Join(err, ctx.Err()))
	}
	return result, nil
}

func upload(conn *counter, d time.Duration) (Result, error) {
	if err := send(conn, d); err != nil {
		return Result{}, err
	}
	line, err := readLine(conn.Conn)
	if err != nil {
		return Result{}, fmt.Errorf("read result: %w", err)
	}
	var result Result
	if err := json.Unmarshal(line, &result); err != nil {
		return Result{}, fmt.Errorf("read result: %w", err)
	}
	return result, nil
}

func (r Request) duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }

// send writes for d and then ends the stream.
func send(conn net.Conn, d time.Duration) error {
	chunk := make([]byte, chunkSize)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := conn.Write(chunk); err != nil {
			return err
		}
	}
	if err := netio.CloseWrite(conn); err != nil {
		return fmt.Errorf("end stream: %w", err)
	}
	return nil
}

// receive counts until the stream ends.
func receive(conn net.Conn) (Result, error) {
	chunk := make([]byte, chunkSize)
	var result Result
	var first time.Time
	for {
		n, err := conn.Read(chunk)
		if n > 0 && first.IsZero() {
			first = time.Now()
		}
		result.Bytes += int64(n)
		if err == nil {
			continue
		}
		if !first.IsZero() {
			result.Seconds = time.Since(first).Seconds()
		}
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		return result, err
	}
}

// waitForEnd lets the client close first, so that a close does not cut off bytes that are still in transit.
func waitForEnd(conn net.Conn) error {
	_, err := io.CopyN(io.Discard, conn, 1)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		return errors.New("the client sent more than a test")
	}
	return err
}

// readLine reads up to a newline and not a byte more, because the test counts the bytes after it.
func readLine(r io.Reader) ([]byte, error) {
	line := make([]byte, 0, maxHeader)
	for len(line) < maxHeader {
		n, err := r.Read(line[len(line) : len(line)+1])
		line = line[:len(line)+n]
		if n == 1 && line[len(line)-1] == '\n' {
			return bytes.TrimSpace(line), nil
		}
		if errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no newline in the first %d bytes", maxHeader)
}

// counter reports progress of one test.
type counter struct {
	net.Conn
	progress    func(Result)
	start, last time.Time
	total       int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.add(n)
	return n, err
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.add(n)
	return n, err
}

func (c *counter) CloseWrite() error { return netio.CloseWrite(c.Conn) }

func (c *counter) add(n int) {
	c.total += int64(n)
	if now := time.Now(); c.progress != nil && now.Sub(c.last) >= 500*time.Millisecond {
		c.last = now
		c.progress(Result{Bytes: c.total, Seconds: now.Sub(c.start).Seconds()})
	}
}
