package users

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxFile bounds an uploaded archive, and the unpacked size of a zip, in bytes.
const maxFile = 10 << 20

// upload stores an archive as tar.
func (s *Service) upload(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	if err := s.mayUpload(r.Context(), actor); err != nil {
		return err
	}
	httpapi.AllowUpload(r)
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFile))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return archiveTooLarge()
	}
	if f := httpapi.BodyFault(err); f != nil {
		return f
	}
	if err != nil {
		return fault.New(fault.Invalid, "The upload was cut off: %w", err)
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	switch kind {
	case sdk.ContentTypeTar:
	case sdk.ContentTypeZip, "application/x-zip-compressed":
		if data, err = tarOfZip(data); err != nil {
			return err
		}
	default:
		return fault.New(fault.Invalid, "Files of type %q cannot be stored.", kind).
			WithField("Content-Type", "must be "+sdk.ContentTypeTar+" or "+sdk.ContentTypeZip)
	}
	if err := checkTar(data); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	var file dbsqlc.InsertFileRow
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		hash := hex.EncodeToString(sum[:])
		file, err = q.InsertFile(r.Context(), dbsqlc.InsertFileParams{
			ID: uuid.New(), Sha256: hash, Mimetype: sdk.ContentTypeTar, Data: data, CreatedBy: actor.UserID,
		})
		if err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.Entry{ID: file.ID, Name: hash, Fields: map[string]any{
			"bytes": len(data),
		}})
	})
	if err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	status := http.StatusOK
	if file.Inserted {
		status = http.StatusCreated
	}
	return httpapi.Write(w, status, sdk.UploadResponse{ID: file.ID})
}

func (s *Service) download(w http.ResponseWriter, r *http.Request) error {
	id, err := httpapi.PathUUID(r, "file")
	if err != nil {
		return err
	}
	file, err := s.db.GetFile(r.Context(), id)
	if err != nil {
		return lookup.Fault(err, rbac.File, "read file")
	}
	if err := s.mayRead(r.Context(), httpapi.ActorFrom(r.Context()), file.ID, file.CreatedBy); err != nil {
		return err
	}
	data, kind := file.Data, file.Mimetype
	switch format := r.URL.Query().Get("format"); format {
	case "", "tar":
	case "zip":
		if data, err = zipOfTar(data); err != nil {
			return fmt.Errorf("convert file: %w", err)
		}
		kind = sdk.ContentTypeZip
	default:
		return fault.New(fault.Invalid, "Files cannot be sent as %q.", format).WithField("format", "must be tar or zip")
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, err = w.Write(data)
	return err
}

// mayUpload returns a fault unless the actor administers templates, or at least one that is shared with them.
func (s *Service) mayUpload(ctx context.Context, actor rbac.Actor) error {
	file := rbac.Of(rbac.File, actor.UserID)
	refused := actor.May(rbac.Create, file)
	if refused == nil {
		return nil
	}
	principals := []string{}
	for _, id := range actor.Principals() {
		principals = append(principals, id.String())
	}
	templates, err := s.db.ListTemplatesSharedWith(ctx, dbsqlc.ListTemplatesSharedWithParams{
		Organizations: actor.Organizations(), Principals: principals,
	})
	if err != nil {
		return fmt.Errorf("list templates: %w", err)
	}
	for _, t := range templates {
		if actor.May(rbac.Create, file.In(t.OrganizationID).SharedWith(t.Sharing)) == nil {
			return nil
		}
	}
	return refused
}

// mayRead returns a fault unless the actor uploaded a file, or administers a template that is made from it.
func (s *Service) mayRead(ctx context.Context, actor rbac.Actor, id, creator uuid.UUID) error {
	file := rbac.Of(rbac.File, creator)
	refused := actor.May(rbac.Read, file)
	if refused == nil {
		return nil
	}
	templates, err := s.db.ListTemplatesOfFile(ctx, id)
	if err != nil {
		return fmt.Errorf("list templates: %w", err)
	}
	for _, t := range templates {
		if actor.May(rbac.Read, file.In(t.OrganizationID).SharedWith(t.Sharing)) == nil {
			return nil
		}
	}
	return refused
}

func archiveTooLarge() error {
	return fault.New(fault.TooLarge, "The archive is larger than %d MB.", maxFile>>20).
		WithDetail("Remove what is not part of the template, such as .terraform, binaries and state.")
}
