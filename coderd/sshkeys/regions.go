package sshkeys

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

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
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// A region proxy cannot prove that the holder of a key came: SSH's signature is for the proxy alone. The servers
// believe it, for the keys that their users have allowed at that region, and for no others
// (docs/decisions/0064-credentials-at-regions.md).

// maxRegions bounds the regions of a request. There are fewer proxies.
const maxRegions = 64

// FindAt is Find for a key that a region proxy says has signed in. It returns the fault Forbidden, which tells what to
// do, for one that its user has not allowed there.
func (s *Service) FindAt(ctx context.Context, key ssh.PublicKey, proxy uuid.UUID, name string) (Holder, error) {
	holder, err := s.Find(ctx, key)
	if err != nil {
		return Holder{}, err
	}
	return s.allowedAt(ctx, holder, proxy, name)
}

// AuthenticateAt is FindAt for a key that a client has proven to have, as the proxy says. It records the use.
func (s *Service) AuthenticateAt(ctx context.Context, key ssh.PublicKey, proxy uuid.UUID, name string) (Holder, error) {
	if _, err := s.FindAt(ctx, key, proxy, name); err != nil {
		return Holder{}, err
	}
	return s.Authenticate(ctx, key)
}

func (s *Service) allowedAt(ctx context.Context, holder Holder, proxy uuid.UUID, name string) (Holder, error) {
	ok, err := s.opts.DB.IsSSHKeyAllowedAt(ctx, dbsqlc.IsSSHKeyAllowedAtParams{KeyID: holder.KeyID, ProxyID: proxy})
	switch {
	case err != nil:
		return Holder{}, fmt.Errorf("look up regions of SSH key: %w", err)
	case !ok:
		return Holder{}, fault.New(fault.Forbidden, "This SSH key may not sign in at the region %s.", name).
			WithDetail("Allow it with: coder ssh-key regions KEY %s (coder ssh-key list shows its name)",
				shell.POSIX(name))
	}
	return holder, nil
}

// regionsOf returns at which regions a user's keys may sign in.
func (s *Service) regionsOf(ctx context.Context, user uuid.UUID) (map[uuid.UUID][]string, error) {
	return regionsOf(ctx, s.opts.DB.Queries, user)
}

func regionsOf(ctx context.Context, q *dbsqlc.Queries, user uuid.UUID) (map[uuid.UUID][]string, error) {
	rows, err := q.ListSSHKeyRegions(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("list regions of SSH keys: %w", err)
	}
	regions := map[uuid.UUID][]string{}
	for _, row := range rows {
		regions[row.KeyID] = append(regions[row.KeyID], row.Name)
	}
	return regions, nil
}

// allow stores at which regions a new key may sign in, and returns their names. Nil stands for those of the operator's
// that there are.
func (s *Service) allow(ctx context.Context, q *dbsqlc.Queries, key uuid.UUID, names []string) ([]string, error) {
	ids, known, err := find(ctx, q, cmpNil(names, s.opts.Regions), names != nil)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if err := q.AllowSSHKeyAt(ctx, dbsqlc.AllowSSHKeyAtParams{KeyID: key, ProxyIds: ids}); err != nil {
		return nil, fmt.Errorf("allow SSH key at regions: %w", err)
	}
	return known, nil
}

// cmpNil returns a, or b if a is nil: an empty list of regions is a choice.
func cmpNil(a, b []string) []string {
	if a == nil {
		return b
	}
	return a
}

// find returns the region proxies with some names. If all must be there, others are an error.
func find(
	ctx context.Context, q *dbsqlc.Queries, names []string, all bool,
) (ids []uuid.UUID, known []string, err error) {
	unknown := func(problem string) error {
		return fault.New(fault.Invalid, "The regions of the SSH key cannot be set.").WithField("regions", problem)
	}
	if len(names) > maxRegions {
		return nil, nil, unknown(fmt.Sprintf("must be at most %d", maxRegions))
	}
	lower := make([]string, len(names))
	for i, name := range names {
		lower[i] = strings.ToLower(name)
	}
	rows, err := q.KnownRegions(ctx, lower)
	if err != nil {
		return nil, nil, fmt.Errorf("look up regions: %w", err)
	}
	ids, known = []uuid.UUID{}, []string{}
	for _, row := range rows {
		ids, known = append(ids, row.ID), append(known, row.Name)
		lower = slices.DeleteFunc(lower, func(name string) bool { return name == strings.ToLower(row.Name) })
	}
	if all && len(lower) > 0 {
		return nil, nil, unknown("must be names of region proxies, as in coder ssh-key regions --help")
	}
	return ids, known, nil
}

// update changes at which regions a key may sign in.
func (s *Service) update(w http.ResponseWriter, r *http.Request) error {
	user, err := s.opts.Accounts.Target(r, rbac.Update, rbac.UserSSHKey)
	if err != nil {
		return err
	}
	ctx := r.Context()
	if err := unlimited(httpapi.ActorFrom(ctx)); err != nil {
		return err
	}
	id, err := uuid.Parse(r.PathValue("key"))
	if err != nil {
		return rbac.NotFound(rbac.UserSSHKey)
	}
	var req sdk.UpdateUserSSHKeyRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	var row dbsqlc.UserSshKey
	var known []string
	err = s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if _, err := q.LockUser(ctx, user.ID); err != nil { // one change of a user's keys at a time
			return lookup.Fault(err, rbac.User, "lock user")
		}
		if row, err = q.GetUserSSHKey(ctx, dbsqlc.GetUserSSHKeyParams{ID: id, UserID: user.ID}); err != nil {
			return lookup.Fault(err, rbac.UserSSHKey, "read SSH key")
		}
		before, err := regionsOf(ctx, q, user.ID)
		if err != nil {
			return err
		}
		ids, names, err := find(ctx, q, req.Regions, true)
		if err != nil {
			return err
		}
		if err := q.DisallowSSHKeyAt(ctx, dbsqlc.DisallowSSHKeyAtParams{KeyID: id, Kept: ids}); err != nil {
			return fmt.Errorf("take regions from SSH key: %w", err)
		}
		if err := q.AllowSSHKeyAt(ctx, dbsqlc.AllowSSHKeyAtParams{KeyID: id, ProxyIds: ids}); err != nil {
			if database.IsForeignKeyViolation(err, "user_ssh_key_regions_key_id_fkey") { // the key was removed meanwhile
				return rbac.NotFound(rbac.UserSSHKey)
			}
			return fmt.Errorf("allow SSH key at regions: %w", err)
		}
		known = names
		entry := audit.OfSSHKey(user, row, row)
		entry.Diff.Field("regions", cmpNil(before[id], []string{}), names)
		return audit.Record(ctx, q, entry)
	})
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "regions of public SSH key changed", "user", user.Username, "key", row.Fingerprint)
	shown, err := s.show(row, known)
	if err != nil {
		return err
	}
	return httpapi.Write(w, http.StatusOK, shown)
}
