package provisionerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// maxSource bounds a source archive, in bytes.
const maxSource = 256 << 20

// source opens the template's source for a job. It waits while the server is unreachable, and fetches the archive again
// if the stream breaks. The archive is an unnamed file that disappears when it is closed.
func (d *Daemon) source(l *lease) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		for {
			s, err := d.awaitSession(ctx)
			if err != nil {
				return nil, fmt.Errorf("fetch the template's source: %w", err)
			}
			file, err := d.fetch(ctx, s, l)
			if err == nil {
				return file, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			switch connect.CodeOf(err) {
			case connect.CodePermissionDenied, connect.CodeNotFound, connect.CodeInvalidArgument:
				return nil, fmt.Errorf("fetch the template's source: %w", err)
			}
			if fault.As(err) != nil {
				return nil, err
			}
			l.log.Warn("cannot fetch source, waiting for a new session", "err", err)
			select { // do not retry in a tight loop if only this fetch fails
			case <-s.dead:
			case <-l.stop:
				return nil, fmt.Errorf("fetch the template's source: %w", err)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

func (d *Daemon) awaitSession(ctx context.Context) (s *session, err error) {
	if !d.await(ctx, nil, func() bool { s = d.session; return s != nil }) {
		return nil, ctx.Err()
	}
	return s, nil
}

// fetch fetches the archive once. Permanent errors are faults.
func (d *Daemon) fetch(ctx context.Context, s *session, l *lease) (_ io.ReadCloser, err error) {
	st, err := s.rpc.Source(ctx,
		connect.NewRequest(&provisionerpb.SourceRequest{JobId: l.key.job[:], FileId: l.offer.GetFileId()}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Close() }() // Receive has returned its error
	file, err := os.CreateTemp(d.store.dir, sourcePrefix)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "The template's source cannot be stored: %w", err)
	}
	out := &fileWithoutName{file}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close())
		}
	}()
	hash, size := sha256.New(), 0
	for st.Receive() {
		data := st.Msg().GetData()
		if size += len(data); size > maxSource {
			return nil, fault.New(fault.TooLarge, "The template's source is larger than %d MiB", maxSource>>20)
		}
		hash.Write(data)
		if _, err := file.Write(data); err != nil {
			return nil, fault.New(fault.Unavailable, "The template's source cannot be stored: %w", err)
		}
	}
	if err := st.Err(); err != nil {
		return nil, err
	}
	if got, want := hex.EncodeToString(hash.Sum(nil)), l.offer.GetSourceSha256(); want != "" && got != want {
		return nil, fault.New(fault.Internal, "The template's source arrived changed: its hash is %s, not %s", got,
			want)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("rewind source: %w", err)
	}
	return out, nil
}

// fileWithoutName is a file that is removed when it is closed.
type fileWithoutName struct{ *os.File }

func (f *fileWithoutName) Close() error {
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}
