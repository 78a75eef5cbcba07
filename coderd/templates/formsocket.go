package templates

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

const (
	// formIdle is how long a form may be open without a question.
	formIdle = 30 * time.Minute
	// firstForm is the id of the answer that no question asked for.
	firstForm = -1
	// formRead bounds a question: its values, and what JSON adds to them.
	formRead = 4 * maxInputBytes
)

// formSocket evaluates a version's form over a websocket, as dashboards for Coder do: each message is a question and
// gets an answer with its id. The first answer comes unasked. A question about another owner needs the right to create
// workspaces for that owner, as each of them does.
func (s *Service) formSocket(w http.ResponseWriter, r *http.Request) error {
	v, err := s.version(r, rbac.Read)
	if err != nil {
		return err
	}
	if r.Header.Get("Upgrade") == "" {
		return fault.New(fault.Invalid, "This form is asked over a websocket.").
			WithDetail("Without one, use POST %s/evaluate.", r.URL.Path)
	}
	ask := sdk.EvaluateParametersRequest{ID: firstForm}
	if text := r.URL.Query().Get("user_id"); text != "" && text != sdk.Me {
		if ask.OwnerID, err = uuid.Parse(text); err != nil {
			return fault.New(fault.Invalid, "The owner cannot be %q.", text).WithField("user_id", "must be an id or me")
		}
	}
	answer, err := s.answer(r.Context(), v, ask)
	if err != nil {
		return err
	}
	ws, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: formRead})
	if err != nil {
		return nil // already answered
	}
	defer ws.CloseNow()
	defer context.AfterFunc(r.Context(), func() { // Close unblocks the read below
		if why := httpapi.SessionEnded(r.Context()); why != nil {
			_ = ws.Close(websock.StatusPolicy, why.Message)
		}
	})()
	defer context.AfterFunc(s.opts.Jobs.Life(),
		func() { _ = ws.Close(websock.StatusGoingAway, "the server is stopping") })()
	ctx := context.WithoutCancel(r.Context())
	for {
		if err := ws.WriteJSON(ctx, answer); err != nil {
			return nil //nolint:nilerr // the reader left
		}
		idle, done := context.WithTimeout(ctx, formIdle)
		var ask sdk.EvaluateParametersRequest
		err := ws.ReadJSON(idle, &ask)
		done()
		if err != nil {
			return nil //nolint:nilerr // the reader left, or sent what is no question
		}
		if answer, err = s.answer(r.Context(), v, ask); err == nil {
			continue
		}
		f := fault.As(err)
		if f == nil {
			return err
		}
		answer = sdk.EvaluateParametersResponse{ID: ask.ID, Diagnostics: []sdk.Diagnostic{problem(f.Message, f.Detail)}}
	}
}
