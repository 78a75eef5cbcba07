package sdk

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Content types of an upload.
const (
	ContentTypeTar = "application/x-tar"
	ContentTypeZip = "application/zip"
)

// Upload stores an archive and returns its id. The same bytes get the same id. r is read to its end,
// and again from its beginning if it is an io.Seeker and the server refused the request before it read it.
func (c *Client) Upload(ctx context.Context, contentType string, r io.Reader) (uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	resp, err := c.roundTrip(ctx, request{method: http.MethodPost, path: "files", contentType: contentType}, r)
	if err != nil {
		return uuid.Nil, err
	}
	defer resp.Body.Close()
	var out UploadResponse
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&out); err != nil {
		return uuid.Nil, fault.New(fault.Internal, "the server's answer to the upload cannot be read").
			WithDetail("%v", err)
	}
	return out.ID, nil
}

// Download copies a stored file to w: format "" as it was uploaded, "zip" or "tar" converted.
func (c *Client) Download(ctx context.Context, id uuid.UUID, format string, w io.Writer) error {
	path := "files/" + id.String()
	if format != "" {
		path += "?format=" + seg(format)
	}
	return c.download(ctx, path, w)
}

// AgentArchive opens an archive that the server's operator provides to workspaces, with the token of an agent. The caller
// closes the content, which ends with ctx, and has size bytes.
func (c *Client) AgentArchive(ctx context.Context, name string) (content io.ReadCloser, size int64, err error) {
	path := "workspaceagents/me/archives/" + seg(name)
	resp, err := c.roundTrip(ctx, request{method: http.MethodGet, path: path}, nil)
	if err != nil {
		return nil, 0, err
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return nil, 0, fault.New(fault.Unavailable, "the server does not say how large the archive is")
	}
	return resp.Body, resp.ContentLength, nil
}

// download copies the body of an answer to w.
func (c *Client) download(ctx context.Context, path string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	resp, err := c.roundTrip(ctx, request{method: http.MethodGet, path: path}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.unreachable(ctx, err)
	}
	return nil
}
