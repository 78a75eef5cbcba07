package templates

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/readme"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/starters"
)

// listExamples lists the starters. A first template can be created from one without uploading a file.
func (s *Service) listExamples(w http.ResponseWriter, _ *http.Request) error {
	out := sdk.List[sdk.TemplateExample]{}
	for _, starter := range starters.List() {
		files, _, _ := starters.Get(starter.Name)
		text, err := fs.ReadFile(files, "README.md")
		if err != nil {
			return fmt.Errorf("read starter %s: %w", starter.Name, err)
		}
		_, markdown := readme.Parse(string(text))
		out = append(out, sdk.TemplateExample{
			ID: starter.Name, Name: starter.DisplayName, Description: starter.Description, Icon: starter.Icon,
			Tags: starter.Tags, Markdown: markdown,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// storeExample stores a starter as if the actor had uploaded it.
func storeExample(ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, name string) (uuid.UUID, error) {
	if err := actor.May(rbac.Create, rbac.Of(rbac.File, actor.UserID)); err != nil {
		return uuid.Nil, err
	}
	files, _, ok := starters.Get(name)
	if !ok {
		return uuid.Nil, fault.New(fault.Invalid, "This server has no starter called %q.", name).
			WithField("example_id", "does not exist")
	}
	var archive bytes.Buffer
	packed := tar.NewWriter(&archive)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		// Omit times and owners, so that the same starter is always the same file.
		if err := packed.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = packed.Write(content)
		return err
	})
	if err == nil {
		err = packed.Close()
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("pack starter %s: %w", name, err)
	}
	sum := sha256.Sum256(archive.Bytes())
	file, err := q.InsertFile(ctx, dbsqlc.InsertFileParams{
		ID: uuid.New(), Sha256: hex.EncodeToString(sum[:]), Mimetype: sdk.ContentTypeTar, Data: archive.Bytes(),
		CreatedBy: actor.UserID,
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("store starter %s: %w", name, err)
	}
	return file.ID, nil
}
