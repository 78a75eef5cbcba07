package secrets

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/usersecret"
)

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.UserSecret)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListUserSecrets(r.Context(), user.ID)
	if err != nil {
		return fmt.Errorf("list secrets: %w", err)
	}
	return httpapi.Write(w, http.StatusOK, s.shown(rows))
}

func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.UserSecret)
	if err != nil {
		return err
	}
	row, err := s.opts.DB.GetUserSecret(r.Context(), dbsqlc.GetUserSecretParams{
		UserID: user.ID, Name: r.PathValue("name"),
	})
	if err != nil {
		return lookup.Fault(err, rbac.UserSecret, "read secret")
	}
	return httpapi.Write(w, http.StatusOK, s.show(row))
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Create, rbac.UserSecret)
	if err != nil {
		return err
	}
	var req sdk.CreateUserSecretRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	f := fault.New(fault.Invalid, "The secret cannot be created.")
	check(f, "", req)
	rows, err := s.insert(r.Context(), user.ID, f, req)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, s.show(rows[0]))
}

// createAll creates all secrets of a request or none.
func (s *Service) createAll(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Create, rbac.UserSecret)
	if err != nil {
		return err
	}
	var req sdk.CreateUserSecretsRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	f := fault.New(fault.Invalid, "The secrets cannot be created. None was.")
	if len(req.Secrets) == 0 || len(req.Secrets) > usersecret.MaxSecrets {
		return f.WithField("secrets", fmt.Sprintf("must be between 1 and %d", usersecret.MaxSecrets))
	}
	for i, secret := range req.Secrets {
		check(f, fmt.Sprintf("secrets[%d].", i), secret)
	}
	rows, err := s.insert(r.Context(), user.ID, f, req.Secrets...)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, s.shown(rows))
}

func (s *Service) update(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Update, rbac.UserSecret)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserSecretRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	f := fault.New(fault.Invalid, "The secret cannot be changed.")
	if req == (sdk.UpdateUserSecretRequest{}) {
		return f.WithDetail("Name at least one of value, description, env_name, file_path and enabled.")
	}
	checkField(f, "value", req.Value, usersecret.CheckValue)
	checkField(f, "description", req.Description, usersecret.CheckDescription)
	checkField(f, "env_name", req.EnvName, usersecret.CheckEnv)
	checkField(f, "file_path", req.FilePath, usersecret.CheckFile)
	if len(f.Fields) > 0 {
		return f
	}
	row, err := s.change(r.Context(), user.ID, r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, s.show(row))
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Delete, rbac.UserSecret)
	if err != nil {
		return err
	}
	ctx, name := r.Context(), r.PathValue("name")
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		row, err := q.GetUserSecret(ctx, dbsqlc.GetUserSecretParams{UserID: user.ID, Name: name})
		if err != nil {
			return lookup.Fault(err, rbac.UserSecret, "read secret")
		}
		n, err := q.DeleteUserSecret(ctx, dbsqlc.DeleteUserSecretParams{UserID: user.ID, Name: name})
		switch {
		case err != nil:
			return fmt.Errorf("delete secret: %w", err)
		case n == 0:
			return rbac.NotFound(rbac.UserSecret)
		}
		if err := record(ctx, q, row, dbsqlc.UserSecret{}); err != nil {
			return err
		}
		return q.NotifyUserSecrets(ctx, user.ID)
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "user's secret deleted", "user", user.ID, "secret", name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// insert stores checked secrets, and tells the user's agents. f, which must have no fields, becomes the fault if they
// break a limit.
func (s *Service) insert(
	ctx context.Context, user uuid.UUID, f *fault.Error, reqs ...sdk.CreateUserSecretRequest,
) (rows []dbsqlc.UserSecret, err error) {
	if len(f.Fields) > 0 {
		return nil, f
	}
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		rows = rows[:0] // the transaction may be repeated
		if err := lock(ctx, q, user); err != nil {
			return err
		}
		for _, req := range reqs {
			id := uuid.New()
			row, err := q.InsertUserSecret(ctx, dbsqlc.InsertUserSecretParams{
				ID: id, UserID: user, Name: req.Name, Description: req.Description, EnvName: req.EnvName,
				FilePath: req.FilePath,
				Enabled:  req.Enabled == nil || *req.Enabled,
				Sealed:   s.opts.Keys.SealSecret(keyring.SecretPlace(user, id), []byte(req.Value)),
				Size:     int32(len(req.Value)),
			})
			if err != nil {
				return taken(err, req.Name, req.EnvName, req.FilePath)
			}
			if err := record(ctx, q, dbsqlc.UserSecret{}, row); err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return settle(ctx, q, user)
	})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		s.log.InfoContext(ctx, "user's secret created", "user", user, "secret", row.Name)
	}
	return rows, nil
}

// change applies a checked request to a secret.
func (s *Service) change(
	ctx context.Context, user uuid.UUID, name string, req sdk.UpdateUserSecretRequest,
) (row dbsqlc.UserSecret, err error) {
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := lock(ctx, q, user); err != nil {
			return err
		}
		row, err = q.LockUserSecret(ctx, dbsqlc.LockUserSecretParams{UserID: user, Name: name})
		if err != nil {
			return lookup.Fault(err, rbac.UserSecret, "read secret")
		}
		before := row
		if req.Value != nil {
			row.Sealed, row.Size = s.opts.Keys.SealSecret(place(row), []byte(*req.Value)), int32(len(*req.Value))
		}
		set(&row.Description, req.Description)
		set(&row.EnvName, req.EnvName)
		set(&row.FilePath, req.FilePath)
		set(&row.Enabled, req.Enabled)
		env, file := row.EnvName, row.FilePath
		row, err = q.UpdateUserSecret(ctx, dbsqlc.UpdateUserSecretParams{
			ID: row.ID, Description: row.Description, EnvName: env, FilePath: file, Enabled: row.Enabled,
			Sealed: row.Sealed, Size: row.Size,
		})
		if err != nil {
			return taken(err, name, env, file)
		}
		if err := record(ctx, q, before, row); err != nil {
			return err
		}
		return settle(ctx, q, user)
	})
	if err == nil {
		s.log.InfoContext(ctx, "user's secret changed", "user", user, "secret", name)
	}
	return row, err
}

// record writes a change to the audit log, without the value and its length. The zero value stands for a secret that
// does not exist.
func record(ctx context.Context, q *dbsqlc.Queries, before, after dbsqlc.UserSecret) error {
	e := audit.Entry{ID: after.ID, Name: after.Name, Diff: audit.Compare(before, after)}
	if e.ID == uuid.Nil {
		e.ID, e.Name = before.ID, before.Name
	}
	delete(e.Diff, "size")
	return audit.Record(ctx, q, e)
}

// lock makes changes of a user's secrets wait for each other.
func lock(ctx context.Context, q *dbsqlc.Queries, user uuid.UUID) error {
	if _, err := q.LockUserSecrets(ctx, user); err != nil {
		return lookup.Fault(err, rbac.User, "lock user")
	}
	return nil
}

// settle checks a user's limits after a change, and tells the user's agents.
func settle(ctx context.Context, q *dbsqlc.Queries, user uuid.UUID) error {
	sum, err := q.CountUserSecrets(ctx, user)
	if err != nil {
		return fmt.Errorf("count secrets: %w", err)
	}
	f := fault.New(fault.Invalid, "You have too many secrets, or they are too large.").WithDetail("Delete some first.")
	switch {
	case sum.Secrets > usersecret.MaxSecrets:
		return f.WithField("name", fmt.Sprintf("there can be at most %d secrets", usersecret.MaxSecrets))
	case sum.Bytes > usersecret.MaxAll:
		return f.WithField("value", fmt.Sprintf("all secrets together can have at most %d bytes, and would have %d",
			usersecret.MaxAll, sum.Bytes))
	case sum.EnvBytes > usersecret.MaxEnvTotal:
		return f.WithField("value", fmt.Sprintf("all environment variables together can have at most %d bytes, and would have %d", usersecret.MaxEnvTotal, sum.EnvBytes))
	}
	if err := q.NotifyUserSecrets(ctx, user); err != nil {
		return fmt.Errorf("notify agents: %w", err)
	}
	return nil
}

// taken returns the fault for a name, variable or file that another of the user's secrets has.
func taken(err error, name, env, file string) error {
	switch {
	case database.IsUniqueViolation(err, "user_secrets_name"):
		return fault.New(fault.Conflict, "You already have a secret named %q.", name).WithField("name", "is taken")
	case database.IsUniqueViolation(err, "user_secrets_env"):
		return fault.New(fault.Conflict, "Another of your secrets already sets the variable %s.", env).
			WithField("env_name", "is taken")
	case database.IsUniqueViolation(err, "user_secrets_file"):
		return fault.New(fault.Conflict, "Another of your secrets is already the file %s.", file).
			WithField("file_path", "is taken")
	}
	return fmt.Errorf("store secret: %w", err)
}

func check(f *fault.Error, prefix string, req sdk.CreateUserSecretRequest) {
	checkField(f, prefix+"name", &req.Name, usersecret.CheckName)
	checkField(f, prefix+"value", &req.Value, usersecret.CheckValue)
	checkField(f, prefix+"description", &req.Description, usersecret.CheckDescription)
	checkField(f, prefix+"env_name", &req.EnvName, usersecret.CheckEnv)
	checkField(f, prefix+"file_path", &req.FilePath, usersecret.CheckFile)
}

func checkField(f *fault.Error, field string, value *string, problem func(string) string) {
	if value == nil {
		return
	}
	if text := problem(*value); text != "" {
		f.Fields = append(f.Fields, fault.Field{Field: field, Detail: text})
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func (s *Service) shown(rows []dbsqlc.UserSecret) sdk.List[sdk.UserSecret] {
	out := sdk.List[sdk.UserSecret]{}
	for _, row := range rows {
		out = append(out, s.show(row))
	}
	return out
}

func (s *Service) show(row dbsqlc.UserSecret) sdk.UserSecret {
	_, err := s.opts.Keys.OpenSecret(place(row), row.Sealed)
	return sdk.UserSecret{
		ID: row.ID, Name: row.Name, Description: row.Description, EnvName: row.EnvName, FilePath: row.FilePath,
		Enabled:   row.Enabled,
		CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, Unreadable: err != nil,
	}
}
