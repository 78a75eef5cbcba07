package users

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

func (s *Service) setProfile(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserProfileRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	req.Username, req.Name = strings.TrimSpace(req.Username), strings.TrimSpace(req.Name)
	f := fault.New(fault.Invalid, "The profile cannot be changed.")
	check(f, "username", checkUsername(req.Username))
	check(f, "name", checkName(req.Name))
	if len(f.Fields) > 0 {
		return f
	}
	var changed dbsqlc.User
	err = s.db.InTx(r.Context(), func(q *dbsqlc.Queries) error {
		var err error
		if changed, err = q.UpdateUserProfile(r.Context(), dbsqlc.UpdateUserProfileParams{
			ID: user.ID, Username: req.Username, Name: req.Name,
		}); err != nil {
			return err
		}
		return audit.Record(r.Context(), q, audit.OfUser(user, changed))
	})
	if database.IsNotFound(err) {
		return rbac.NotFound(rbac.User)
	}
	if err := taken(err); err != nil {
		return err
	}
	return s.write(w, r, http.StatusOK, changed)
}

// validatePassword judges a new password, so that a form can do so before it is sent.
func (s *Service) validatePassword(w http.ResponseWriter, r *http.Request) error {
	var req sdk.ValidatePasswordRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	problem := checkPassword(req.Password, "", "")
	out := sdk.ValidatePasswordResponse{Valid: problem == ""}
	if problem != "" {
		out.Details = "The password " + problem + "."
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) setPassword(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Update, rbac.User)
	if err != nil {
		return err
	}
	var req sdk.UpdateUserPasswordRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if t := sdk.LoginType(user.LoginType); t == sdk.LoginOIDC || t == sdk.LoginGitHub {
		return fault.New(fault.Invalid, "%s signs in with %s and has no password.", user.Username, t.Name()).
			WithField("password", "cannot be set for this account")
	}
	ctx := r.Context()
	actor := httpapi.ActorFrom(ctx)
	if actor.UserID == user.ID && user.PasswordHash != "" {
		good, err := s.checkPair(w, r, user.Email, req.OldPassword, user.PasswordHash)
		if err != nil {
			return err
		}
		if !good {
			return fault.New(fault.Invalid, "The old password is wrong.").WithField("old_password", "is wrong")
		}
		if req.OldPassword == req.Password {
			return fault.New(fault.Invalid, "The new password equals the old one.").
				WithField("password", "must differ from the old password")
		}
	}
	ended := []string{kindSession}
	if req.EndTokens {
		ended = append(ended, kindToken)
	}
	if err := s.changePassword(ctx, user, req.Password, actor.KeyID, ended...); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ResetPassword sets a user's password. It is for operators who have access to the database but no account.
func (s *Service) ResetPassword(ctx context.Context, username, password string) error {
	user, err := s.Find(ctx, rbac.Actor{}, username)
	if err != nil {
		return err
	}
	return s.changePassword(audit.OnHost(ctx), user, password, "", kindSession)
}

// changePassword stores a password and ends the user's keys of the given kinds, except keptKey. SSH keys and devices,
// which the user added to come back with, end with tokens.
func (s *Service) changePassword(
	ctx context.Context, user dbsqlc.User, password, keptKey string, ended ...string,
) error {
	if user.IsServiceAccount {
		return fault.New(fault.Invalid, "%s is a service account and has no password.", user.Username).
			WithField("password", "cannot be set for this account").
			WithDetail("It acts with tokens: coder tokens create --user %s", shell.POSIX(user.Username))
	}
	if problem := checkPassword(password, user.Username, user.Email); problem != "" {
		return fault.New(fault.Invalid, "The new password %s.", problem).WithField("password", problem)
	}
	hash, err := s.passwords.hash(ctx, newPair(user.Email, httpapi.ClientAddr(ctx)), password)
	if err != nil {
		return fmt.Errorf("hash password: %w", err)
	}
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if err := q.UpdateUserPassword(ctx, dbsqlc.UpdateUserPasswordParams{
			ID: user.ID, PasswordHash: hash,
		}); err != nil {
			return err
		}
		if err := q.DeleteUserKeys(ctx, dbsqlc.DeleteUserKeysParams{
			UserID: user.ID, Kinds: ended, KeptID: keptKey,
		}); err != nil {
			return err
		}
		e := audit.Entry{Action: audit.Write, Kind: audit.User, ID: user.ID, Name: user.Username, Diff: audit.Diff{}.Secret("password")}
		if slices.Contains(ended, kindToken) {
			if err := deleteCredentials(ctx, q, user.ID); err != nil {
				return err
			}
			e.Fields = map[string]any{"ended": []string{"tokens", "ssh_keys", "devices"}}
		}
		if request := httpapi.RequestID(ctx); request != "" && !httpapi.ActorFrom(ctx).SignedIn() { // proven by a passcode
			e.User = &audit.Account{ID: user.ID, Name: user.Username}
		}
		return audit.Record(ctx, q, e)
	})
	if err != nil {
		return fmt.Errorf("store password: %w", err)
	}
	s.log.Info("user's password changed", "user", user.Username)
	s.notifyRevoked(user.ID)
	return nil
}

// deleteCredentials deletes what signs a user in, besides sessions and tokens.
func deleteCredentials(ctx context.Context, q *dbsqlc.Queries, user uuid.UUID) error {
	if err := q.DeleteUserSSHKeys(ctx, user); err != nil {
		return fmt.Errorf("delete SSH keys: %w", err)
	}
	if err := q.DeleteUserDevices(ctx, user); err != nil {
		return fmt.Errorf("delete devices: %w", err)
	}
	return nil
}
