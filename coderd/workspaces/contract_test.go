package workspaces_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestExtendAnswers checks that the answer to an extension has a body: clients read it, and fail without one although the
// deadline is set.
func TestExtendAnswers(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	if _, err := w.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DefaultTTLMillis: ptr(time.Hour.Milliseconds())}); err != nil {
		t.Fatal(err)
	}
	ws, _ := w.Running("ann", "dev", template.ID)
	body, err := json.Marshal(sdk.ExtendRequest{Deadline: time.Now().Add(3 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	// With a trailing slash, as some clients write it.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.URL.JoinPath("/api/v2/workspaces", ws.ID.String(), "extend/").String(), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sdk.SessionHeader, w.Token("ann"))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer sdk.Response
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != 200 || answer.Message == "" {
		t.Errorf("extend: %d %+v, %v", res.StatusCode, answer, err)
	}
}

// TestWorkspaceOfDeletedUser checks that the server makes no workspace for a user who is being deleted.
func TestWorkspaceOfDeletedUser(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	q := dbsqlc.New(tx)
	if _, err := q.LockUser(t.Context(), w.User("bob")); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	olga := w.As("olga")
	go func() {
		_, err := olga.CreateWorkspace(context.WithoutCancel(t.Context()), "bob", sdk.CreateWorkspaceRequest{Name: "dev", TemplateID: template.ID})
		answer <- err
	}()
	testwait.Until(t, "the creation waits for the deletion", w.Blocked)
	if err := q.DeleteUser(t.Context(), w.User("bob")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a workspace for a user who is gone: %v, want not found", err)
	}
	var left int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM workspaces").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d workspaces, %v", left, err)
	}
	w.Workspace("ann", "dev", template.ID) // other users are not affected
}
