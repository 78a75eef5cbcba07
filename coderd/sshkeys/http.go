package sshkeys

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
)

// maxLifetime is the longest that a key can have if the operator sets none, and it expires.
const maxLifetime = 3650 * 24 * time.Hour

func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Read, rbac.UserSSHKey)
	if err != nil {
		return err
	}
	rows, err := s.opts.DB.ListUserSSHKeys(r.Context(), user.ID)
	if err != nil {
		return fmt.Errorf("list SSH keys: %w", err)
	}
	regions, err := s.regionsOf(r.Context(), user.ID)
	if err != nil {
		return err
	}
	out := sdk.List[sdk.UserSSHKey]{}
	for _, row := range rows {
		key, err := s.show(row, regions[row.ID])
		if err != nil {
			return err
		}
		out = append(out, key)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Create, rbac.UserSSHKey)
	if err != nil {
		return err
	}
	if err := unlimited(httpapi.ActorFrom(r.Context())); err != nil {
		return err
	}
	var req sdk.CreateUserSSHKeyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	key, err := s.check(&req)
	if err != nil {
		return err
	}
	row, regions, err := s.insert(r.Context(), user, key, req)
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "public SSH key added", "user", user.Username, "key", row.Fingerprint)
	shown, err := s.show(row, regions)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusCreated, shown)
}

// unlimited refuses a token with limits: a key signs its user in without them.
func unlimited(actor rbac.Actor) error {
	if !actor.Scope.Limited() {
		return nil
	}
	return fault.New(fault.Forbidden, "A token with limited scopes cannot add an SSH key, which has no limits, or allow it more.").
		WithDetail("This token has the scopes %s. Sign in with: coder login <url>", actor.Scope)
}

// check returns the key of a request, and completes the request. Its error is a fault, which repeats nothing of the
// request.
func (s *Service) check(req *sdk.CreateUserSSHKeyRequest) (sshkey.Key, error) {
	key, err := sshkey.Parse(req.PublicKey)
	if f := fault.As(err); f != nil {
		return key, f.WithField("public_key", "must be a public key, on one line")
	}
	if req.Name = strings.TrimSpace(req.Name); req.Name == "" && sshkey.CheckName(key.Comment) == "" {
		req.Name = key.Comment
	}
	req.Name = cmp.Or(req.Name, "key-"+strings.ToLower(uuid.NewString()[:8]))
	f := fault.New(fault.Invalid, "The SSH key cannot be added.")
	if problem := sshkey.CheckName(req.Name); problem != "" {
		f = f.WithField("name", problem)
	}
	longest, zero := cmp.Or(s.opts.MaxLifetime, maxLifetime), "a key that does not expire"
	if s.opts.MaxLifetime != 0 {
		req.Lifetime, zero = cmp.Or(req.Lifetime, longest), "the longest time"
	}
	if req.Lifetime != 0 && (req.Lifetime < MinLifetime || req.Lifetime > longest) {
		f = f.WithField("lifetime", fmt.Sprintf("must be between 1m and %s, or 0 for %s", span(longest), zero))
	}
	if len(f.Fields) > 0 {
		return key, f
	}
	return key, nil
}

// insert stores a checked key, in place of an expired one of the user's that has its name or is the same key.
func (s *Service) insert(
	ctx context.Context, user dbsqlc.User, key sshkey.Key, req sdk.CreateUserSSHKeyRequest,
) (row dbsqlc.UserSshKey, regions []string, err error) {
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		// One key of a user is added at a time, so that the limit holds, and none to a user who is being deleted.
		if _, err := q.LockUser(ctx, user.ID); err != nil {
			return lookup.Fault(err, rbac.User, "lock user")
		}
		err := q.FreeUserSSHKey(ctx, dbsqlc.FreeUserSSHKeyParams{
			UserID: user.ID, Name: req.Name, Fingerprint: key.Fingerprint(), MaxSeconds: s.opts.MaxLifetime.Seconds(),
		})
		if err != nil {
			return fmt.Errorf("remove expired SSH key: %w", err)
		}
		n, err := q.CountUserSSHKeys(ctx, user.ID)
		if err != nil {
			return fmt.Errorf("count SSH keys: %w", err)
		}
		if n >= sshkey.MaxKeys {
			return fault.New(fault.Conflict, "You already have %d SSH keys, as many as you can have.", n).
				WithDetail("Remove one first with: coder ssh-key remove NAME")
		}
		row, err = q.InsertUserSSHKey(ctx, dbsqlc.InsertUserSSHKeyParams{
			ID: uuid.New(), UserID: user.ID, Name: req.Name, PublicKey: key.Marshal(), Fingerprint: key.Fingerprint(),
			LifetimeSeconds: int64(req.Lifetime / time.Second),
		})
		if err != nil {
			return taken(err, req.Name)
		}
		if regions, err = s.allow(ctx, q, row.ID, req.Regions); err != nil {
			return err
		}
		entry := audit.OfSSHKey(user, dbsqlc.UserSshKey{}, row)
		if len(regions) > 0 {
			entry.Diff.Field("regions", []string{}, regions)
		}
		return audit.Record(ctx, q, entry)
	})
	return row, regions, err
}

// taken returns the fault for a name that the user has already, or for a key that any user has. It does not say which
// user.
func taken(err error, name string) error {
	switch {
	case database.IsUniqueViolation(err, "user_ssh_keys_name"):
		return fault.New(fault.Conflict, "You already have an SSH key named %q.", name).WithField("name", "is taken")
	case database.IsUniqueViolation(err, "user_ssh_keys_fingerprint"):
		return fault.New(fault.Conflict, "This SSH key is already registered, and a key can be registered once.").
			WithDetail("If it is not among your own keys, create another one with: ssh-keygen -t ed25519").WithField("public_key", "is registered")
	}
	return fmt.Errorf("store SSH key: %w", err)
}

func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Delete, rbac.UserSSHKey)
	if err != nil {
		return err
	}
	id, err := uuid.Parse(r.PathValue("key"))
	if err != nil {
		return rbac.NotFound(rbac.UserSSHKey)
	}
	ctx := r.Context()
	var row dbsqlc.UserSshKey
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if row, err = q.GetUserSSHKey(ctx, dbsqlc.GetUserSSHKeyParams{ID: id, UserID: user.ID}); err != nil {
			return lookup.Fault(err, rbac.UserSSHKey, "read SSH key")
		}
		n, err := q.DeleteUserSSHKey(ctx, dbsqlc.DeleteUserSSHKeyParams{ID: id, UserID: user.ID})
		switch {
		case err != nil:
			return fmt.Errorf("delete SSH key: %w", err)
		case n == 0: // another request was faster
			return rbac.NotFound(rbac.UserSSHKey)
		}
		return audit.Record(ctx, q, audit.OfSSHKey(user, row, dbsqlc.UserSshKey{}))
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "public SSH key removed", "user", user.Username, "key", row.Fingerprint)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) show(row dbsqlc.UserSshKey, regions []string) (sdk.UserSSHKey, error) {
	key, err := ssh.ParsePublicKey(row.PublicKey)
	if err != nil {
		return sdk.UserSSHKey{}, fmt.Errorf("parse stored SSH key %s: %w", row.ID, err)
	}
	return sdk.UserSSHKey{
		ID: row.ID, Name: row.Name, Type: key.Type(), Fingerprint: row.Fingerprint,
		PublicKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))),
		CreatedAt: row.CreatedAt, ExpiresAt: s.end(row), LastUsedAt: row.LastUsedAt,
		Regions: regions,
	}, nil
}

// end returns when a key ends, nil for never.
func (s *Service) end(row dbsqlc.UserSshKey) *time.Time {
	latest := row.CreatedAt.Add(s.opts.MaxLifetime)
	if s.opts.MaxLifetime == 0 || row.ExpiresAt != nil && row.ExpiresAt.Before(latest) {
		return row.ExpiresAt
	}
	return &latest
}

// span formats a lifetime for people.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}
