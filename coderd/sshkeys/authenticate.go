package sshkeys

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// noteEvery is how often the use of a key is recorded.
const noteEvery = time.Minute

// Holder is the user whom a key signs in, and the key.
type Holder struct{ UserID, KeyID uuid.UUID }

// Authenticate returns whom a key signs in, and records its use, at most once a minute. Call it for a key that the
// client has proved to hold, such as in VerifiedPublicKeyCallback of x/crypto/ssh, and Find for one that it merely
// offers. It makes one query, and a second one if the user has not been seen for a minute. Its faults are those of
// Find.
func (s *Service) Authenticate(ctx context.Context, key ssh.PublicKey) (Holder, error) {
	row, err := s.opts.DB.UseSSHKey(ctx, dbsqlc.UseSSHKeyParams{
		Fingerprint: ssh.FingerprintSHA256(key), PublicKey: key.Marshal(), Every: noteEvery.Seconds(),
		MaxSeconds: s.opts.MaxLifetime.Seconds(),
	})
	holder, err := judge(Holder{row.UserID, row.ID}, row.Status, row.Expired, err)
	if err == nil && row.Unseen {
		// This does not fail the sign-in: the next one tries again.
		if err := s.opts.DB.TouchUsers(ctx, []uuid.UUID{row.UserID}); err != nil {
			s.log.WarnContext(ctx, "cannot record that the user was seen", "user", row.UserID, "err", err)
		}
	}
	return holder, err
}

// Find returns whom a key would sign in, and records nothing: anyone can offer a public key. Call it also to ask again
// whether an open connection may stay. Its faults are Unauthenticated, if no user has the key, or if the key has
// expired or its user is suspended, and Unavailable.
func (s *Service) Find(ctx context.Context, key ssh.PublicKey) (Holder, error) {
	row, err := s.opts.DB.FindSSHKeyHolder(ctx, dbsqlc.FindSSHKeyHolderParams{
		Fingerprint: ssh.FingerprintSHA256(key), PublicKey: key.Marshal(), MaxSeconds: s.opts.MaxLifetime.Seconds(),
	})
	return judge(Holder{row.UserID, row.ID}, row.Status, row.Expired, err)
}

// judge returns the holder of a key that was looked up, or why it signs in no user.
func judge(holder Holder, status string, expired bool, err error) (Holder, error) {
	switch {
	case database.IsNotFound(err):
		return Holder{}, fault.New(fault.Unauthenticated, "This SSH key is not registered.").
			WithDetail("Add it with: coder ssh-key add FILE")
	case err != nil:
		return Holder{}, fmt.Errorf("look up SSH key: %w", err)
	case status == string(sdk.UserSuspended):
		return Holder{}, fault.New(fault.Unauthenticated, "Your account is suspended.").
			WithDetail("Ask an owner of this deployment to activate it.")
	case expired:
		return Holder{}, fault.New(fault.Unauthenticated, "This SSH key has expired.").
			WithDetail("Add it again with: coder ssh-key add FILE")
	}
	return holder, nil
}
