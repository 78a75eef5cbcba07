// Package backup writes the contents of a server's database into a file, and restores them. It knows tables and columns
// as PostgreSQL describes them, and nothing of what they mean.
//
// A file contains all rows at one moment, and the numbers of the migrations that made the tables. Restoring applies the
// same migrations, so a file depends on no program of PostgreSQL and on no version of it. The state key is never in the
// file.
//
//	codermesh backup 1\n
//	gzip:
//	  {"created":…,"migrations":[…],"keys":[…],"sequences":[…]}\n
//	  {"table":"users","columns":["id",…]}\n      for each table, followed by its rows as COPY writes them:
//	    length (4 bytes, big endian) | data       any number of chunks; length 0 ends the table
//	  {"end":true}\n
//	SHA-256 of everything before it, 32 bytes
//
// The checksum finds damage, not forgery: an attacker who can write to the file can change what is restored. Names in a
// file are only used if the schema has them.
package backup

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	magicPrefix = "codermesh backup "
	magic       = magicPrefix + "1\n"
	maxLine     = 1 << 20 // bytes of a line of JSON
	maxChunk    = 1 << 20 // bytes of a chunk of rows
)

// Header describes a backup.
type Header struct {
	Created time.Time `json:"created"`
	// Migrations are the numbers of the migrations that the database had.
	Migrations []int64 `json:"migrations"`
	// Keys are the ids of the state keys that encrypt something in the backup.
	Keys      []string   `json:"keys"`
	Sequences []sequence `json:"sequences"`
}

// sequence is a sequence's state, which COPY does not contain.
type sequence struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Last   int64  `json:"last"`
	Called bool   `json:"called"`
}

// table begins the rows of a table, or ends the file.
type table struct {
	Table   string   `json:"table,omitempty"`
	Columns []string `json:"columns,omitempty"`
	End     bool     `json:"end,omitempty"`
}

// encoder writes a file.
type encoder struct {
	file io.Writer
	sum  hash.Hash
	out  io.Writer
	gz   *gzip.Writer
}

func newEncoder(w io.Writer) (*encoder, error) {
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	if _, err := io.WriteString(both, magic); err != nil {
		return nil, err
	}
	gz, err := gzip.NewWriterLevel(both, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &encoder{file: w, sum: sum, out: gz, gz: gz}, nil
}

// line writes a value as a line of JSON.
func (e *encoder) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) >= maxLine {
		return fmt.Errorf("a description has %d bytes, want less than %d", len(text), maxLine)
	}
	_, err = e.out.Write(append(text, '\n'))
	return err
}

// Write writes chunks of rows.
func (e *encoder) Write(rows []byte) (n int, err error) {
	for len(rows) > 0 {
		chunk := rows[:min(len(rows), maxChunk)]
		if err := e.length(len(chunk)); err != nil {
			return n, err
		}
		written, err := e.out.Write(chunk)
		n += written
		if err != nil {
			return n, err
		}
		rows = rows[len(chunk):]
	}
	return n, nil
}

// length writes the length of a chunk; 0 ends a table.
func (e *encoder) length(n int) error {
	_, err := e.out.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
	return err
}

// end completes the file.
func (e *encoder) end() error {
	if err := e.line(table{End: true}); err != nil {
		return err
	}
	if err := e.gz.Close(); err != nil {
		return err
	}
	_, err := e.file.Write(e.sum.Sum(nil))
	return err
}

// File is a backup that was found complete.
type File struct {
	Header Header

	r    io.ReaderAt
	size int64 // without the checksum
}

// Check reads a whole file, of a size in bytes, and returns a fault, Invalid, if it is not a complete and undamaged
// backup.
func Check(r io.ReaderAt, size int64) (*File, error) {
	start := make([]byte, min(size, int64(len(magic))))
	if _, err := r.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	switch {
	case !bytes.HasPrefix(start, []byte(magicPrefix)):
		return nil, refuse("The file is not a backup of coder server backup.")
	case string(start) != magic && len(start) == len(magic):
		return nil, fault.New(fault.Invalid, "The backup has a format that this program does not know.").
			WithDetail("Restore it with the release that made it. Nothing was changed.")
	case size < int64(len(magic))+sha256.Size:
		return nil, refuse("The backup is cut off.")
	}
	f := &File{r: r, size: size - sha256.Size}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, io.NewSectionReader(r, 0, f.size)); err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	if _, err := r.ReadAt(want, f.size); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, refuse("The backup is cut off or damaged: its checksum does not match.")
	}
	err := f.read(func(table, io.Reader) error { return nil })
	return f, err
}

func refuse(text string) error {
	return fault.New(fault.Invalid, "%s", text).
		WithDetail("Copy it again from where it is kept, or use another backup. Nothing was changed.")
}

// read calls fn for each table. What fn leaves of the rows is skipped.
func (f *File) read(fn func(t table, rows io.Reader) error) error {
	body := io.NewSectionReader(f.r, int64(len(magic)), f.size-int64(len(magic)))
	gz, err := gzip.NewReader(bufio.NewReaderSize(body, 1<<16))
	if err != nil {
		return broken(err)
	}
	in := bufio.NewReaderSize(gz, maxLine)
	if err := readLine(in, &f.Header); err != nil {
		return err
	}
	for {
		var t table
		if err := readLine(in, &t); err != nil {
			return err
		}
		if t.End {
			// The rest must be nothing; reading it also checks gzip's own checksum.
			if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				return broken(errors.Join(errors.New("more follows the end"), err))
			}
			return nil
		}
		rows := &chunks{in: in}
		if err := fn(t, rows); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, rows); err != nil {
			return err
		}
	}
}

func broken(err error) error {
	return fault.New(fault.Invalid, "The backup is damaged: %w", err).
		WithDetail("Use another backup. Nothing was changed.")
}

// readLine decodes a line of JSON. It fails for lines that do not fit into the reader's buffer.
func readLine(in *bufio.Reader, v any) error {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return broken(err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return broken(err)
	}
	return nil
}

// chunks reads the rows of a table.
type chunks struct {
	in   *bufio.Reader
	left int
	done bool
}

func (c *chunks) Read(p []byte) (int, error) {
	for c.left == 0 {
		if c.done {
			return 0, io.EOF
		}
		var length [4]byte
		if _, err := io.ReadFull(c.in, length[:]); err != nil {
			return 0, broken(noEOF(err))
		}
		n := binary.BigEndian.Uint32(length[:])
		if n > maxChunk {
			return 0, broken(fmt.Errorf("a chunk has %d bytes", n))
		}
		c.left, c.done = int(n), n == 0
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err != nil {
		err = broken(noEOF(err))
	}
	return n, err
}

// noEOF returns err for an end that came too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
