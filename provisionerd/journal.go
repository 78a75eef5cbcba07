package provisionerd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sort"

	"google.golang.org/protobuf/proto"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// A journal is one file per lease:
//
//	magic | record | record | …        record: length u32 | CRC-32C u32 | kind u8, message
//
// Integers are big-endian; length and checksum cover kind and message. The first record is the job's offer (without
// values and state). The others are its events, with sequence numbers that grow by one, and between them the changes
// that the job began: a change is written as soon as it is known, before the event that reports it to the server. A job
// that was recovered after a kill ends with a result, and perhaps the pieces of its state before it, with sequence
// number 0; they get their numbers once the server has reported how many events it has. Reading stops at the first
// incomplete record, where the process was killed.
const (
	journalMagic = "cmjrnl1\n"
	recordHead   = 8
	kindOffer    = 'O'
	kindEvent    = 'E'
	kindChange   = 'C'
	// maxMessage bounds an event and an offer, in bytes. States larger than a piece are stored separately.
	maxMessage = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errNoJournal = errors.New("not a journal")

// record is the position of an event in the file.
type record struct {
	seq    uint64
	offset int64 // of kind
	length int   // of kind and message
}

// contents is the content of a journal.
type contents struct {
	offer    *provisionerpb.Offer
	records  []record
	finished bool
	size     int64 // of the intact part
	changes  []*provisionerpb.Change

	// The last checkpoint: its state, or the positions of its pieces and the state that they must form.
	state []byte
	parts []record
	ref   *provisionerpb.StateRef

	pieces []record // of the state whose checkpoint or result follows
	tail   int      // records without a number, at the end
	before int64    // size before the first of them
}

// last is the sequence number of the last numbered event.
func (c *contents) last() uint64 {
	for i := len(c.records) - 1; i >= 0; i-- {
		if c.records[i].seq > 0 {
			return c.records[i].seq
		}
	}
	return 0
}

// readJournal reads a journal of the given size in bytes. A torn tail is not an error. errNoJournal means that even the
// offer is missing.
func readJournal(r io.ReaderAt, size int64) (*contents, error) {
	magic := make([]byte, len(journalMagic))
	if _, err := r.ReadAt(magic, 0); err != nil || string(magic) != journalMagic {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		return nil, errNoJournal
	}
	c := &contents{size: int64(len(magic))}
	for !c.finished {
		payload, err := readRecord(r, c.size, size)
		if err != nil {
			return nil, err
		}
		if payload == nil || !c.add(payload) {
			break
		}
		c.size += recordHead + int64(len(payload))
	}
	if c.offer == nil {
		return nil, errNoJournal
	}
	return c, nil
}

// readRecord returns the payload at an offset, or nil if there is no intact record.
func readRecord(r io.ReaderAt, offset, size int64) ([]byte, error) {
	var head [recordHead]byte
	if size-offset < recordHead {
		return nil, nil
	}
	if _, err := r.ReadAt(head[:], offset); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	length := int64(binary.BigEndian.Uint32(head[:]))
	if length < 1 || length > maxMessage+1 || length > size-offset-recordHead {
		return nil, nil
	}
	payload := make([]byte, length)
	if _, err := r.ReadAt(payload, offset+recordHead); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return nil, nil
	}
	return payload, nil
}

// add adds one payload, and reports whether it may follow the earlier ones.
func (c *contents) add(payload []byte) bool {
	if c.offer == nil {
		offer := &provisionerpb.Offer{}
		if payload[0] != kindOffer || proto.Unmarshal(payload[1:], offer) != nil || len(offer.GetJobId()) != 16 ||
			offer.GetEpoch() == 0 {
			return false
		}
		c.offer = offer
		return true
	}
	if payload[0] == kindChange {
		change := &provisionerpb.Change{}
		if proto.Unmarshal(payload[1:], change) != nil {
			return false
		}
		c.changes = append(c.changes, change)
		return true
	}
	event := &provisionerpb.Event{}
	if payload[0] != kindEvent || proto.Unmarshal(payload[1:], event) != nil {
		return false
	}
	result, piece := event.GetResult(), event.GetStatePiece()
	if seq := event.GetSeq(); seq == 0 {
		if result == nil && piece == nil {
			return false
		}
		if c.tail == 0 {
			c.before = c.size
		}
		c.tail++
	} else if c.tail > 0 || seq != c.last()+1 {
		return false
	}
	at := record{seq: event.GetSeq(), offset: c.size + recordHead, length: len(payload)}
	c.records = append(c.records, at)
	c.finished = result != nil
	if piece != nil {
		if piece.GetOffset() == 0 {
			c.pieces = nil
		}
		c.pieces = append(c.pieces, at)
	}
	if checkpoint := event.GetCheckpoint(); checkpoint != nil {
		c.state, c.parts, c.ref = checkpoint.GetState(), nil, checkpoint.GetStateInPieces()
		if c.ref != nil {
			c.parts, c.pieces = c.pieces, nil
		}
	}
	return true
}

// drop discards unnumbered records that no result follows: the process was killed while writing them.
func (c *contents) drop() {
	if c.finished || c.tail == 0 {
		return
	}
	c.records, c.size, c.tail = c.records[:len(c.records)-c.tail], c.before, 0
}

// journal is a file open for appending. Only one goroutine may append at a time; reads are safe concurrently.
type journal struct {
	file *os.File
	size int64
}

// createJournal starts a job's journal. The path must not exist.
func createJournal(path string, offer *provisionerpb.Offer) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j := &journal{file: f}
	if _, err = f.Write([]byte(journalMagic)); err == nil {
		j.size = int64(len(journalMagic))
		_, err = j.append(kindOffer, offer, false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create journal: %w", err), f.Close(), os.Remove(path))
	}
	return j, nil
}

// openJournal reads a journal and cuts off a torn tail.
func openJournal(path string) (*journal, *contents, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	c, err := func() (*contents, error) {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		c, err := readJournal(f, info.Size())
		if err != nil {
			return nil, err
		}
		c.drop()
		if c.size < info.Size() {
			err = f.Truncate(c.size)
		}
		return c, err
	}()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open journal %s: %w", path, err), f.Close())
	}
	return &journal{file: f, size: c.size}, c, nil
}

// append writes a message and returns its position. With sync the message is on disk when append returns. After an
// error the file ends where it ended before; otherwise later appends fail, too.
func (j *journal) append(kind byte, m proto.Message, sync bool) (record, error) {
	buf, err := proto.MarshalOptions{}.MarshalAppend(append(make([]byte, recordHead, recordHead+1+proto.Size(m)), kind),
		m)
	if err != nil {
		return record{}, fmt.Errorf("encode event: %w", err)
	}
	payload := buf[recordHead:]
	if len(payload) > maxMessage+1 {
		return record{}, fmt.Errorf("encode event: %d bytes are more than %d", len(payload)-1, maxMessage)
	}
	binary.BigEndian.PutUint32(buf, uint32(len(payload)))
	binary.BigEndian.PutUint32(buf[4:], crc32.Checksum(payload, castagnoli))
	if _, err := j.file.WriteAt(buf, j.size); err != nil {
		return record{}, errors.Join(fmt.Errorf("write journal: %w", err), j.file.Truncate(j.size))
	}
	if sync {
		if err := j.file.Sync(); err != nil {
			return record{}, errors.Join(fmt.Errorf("write journal: %w", err), j.file.Truncate(j.size))
		}
	}
	at := record{offset: j.size + recordHead, length: len(payload)}
	j.size += int64(len(buf))
	return at, nil
}

// checkpoint returns the state of the last checkpoint, or nil.
func (j *journal) checkpoint(c *contents) ([]byte, error) {
	if c.ref == nil {
		return c.state, nil
	}
	var state []byte
	for _, at := range c.parts {
		event, err := j.event(at)
		if err != nil {
			return nil, err
		}
		state = append(state, event.GetStatePiece().GetData()...)
	}
	if err := checkState(state, c.ref); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return state, nil
}

// event reads an event from the file.
func (j *journal) event(at record) (*provisionerpb.Event, error) {
	payload, err := readRecord(j.file, at.offset-recordHead, at.offset+int64(at.length))
	if err != nil {
		return nil, err
	}
	if len(payload) != at.length {
		return nil, fmt.Errorf("read journal: event %d has been changed on disk", at.seq)
	}
	event := &provisionerpb.Event{}
	if err := proto.Unmarshal(payload[1:], event); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	event.Seq = at.seq
	return event, nil
}

func (j *journal) close() error { return j.file.Close() }

// after returns the first record with a sequence number above seq. It ignores a result that has no number yet.
func after(records []record, seq uint64) (record, bool) {
	i := sort.Search(len(records), func(i int) bool { return records[i].seq > seq || records[i].seq == 0 })
	if i == len(records) || records[i].seq == 0 {
		return record{}, false
	}
	return records[i], true
}
