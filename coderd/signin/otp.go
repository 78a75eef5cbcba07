package signin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	passcodeLength = 22
	passcodeTime   = 20 * time.Minute
	// passcodeEvery bounds how often a passcode is mailed to one account.
	passcodeEvery = time.Minute
	mailTimeout   = 30 * time.Second
	// maxMailing bounds the requests for passcodes that are worked on at the same time.
	maxMailing = 16
)

// requestPasscode mails a passcode to a user. The answer is the same, and takes the same time, for an address that is
// no user's.
func (s *Service) requestPasscode(w http.ResponseWriter, r *http.Request) error {
	var req sdk.RequestOneTimePasscodeRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	if s.opts.Mailer == nil {
		return fault.New(fault.Conflict, "This server cannot send mail, so you cannot reset your password.").
			WithDetail("Ask an owner of this deployment for a new password, or its operator to configure mail.")
	}
	select {
	case s.mailing <- struct{}{}:
	default:
		return fault.New(fault.Unavailable, "Too many passwords are being reset.").WithDetail("Try again in a moment.")
	}
	s.work.Go(func() {
		defer func() { <-s.mailing }()
		ctx, cancel := context.WithTimeout(s.ctx, mailTimeout)
		defer cancel()
		if err := s.mailPasscode(ctx, strings.TrimSpace(req.Email)); err != nil {
			s.log.ErrorContext(ctx, "cannot mail passcode", "err", err)
		}
	})
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Service) mailPasscode(ctx context.Context, email string) error {
	user, err := s.opts.DB.GetUserByEmail(ctx, email)
	if database.IsNotFound(err) || err == nil && !mayReset(user) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up user: %w", err)
	}
	age, err := s.opts.DB.GetPasscodeAge(ctx, user.ID)
	if err != nil && !database.IsNotFound(err) {
		return fmt.Errorf("look up passcode: %w", err)
	}
	if err == nil && age < passcodeEvery.Seconds() {
		return nil
	}
	code := secret.Token(secret.Text(passcodeLength))
	if err := s.opts.DB.InsertPasscode(ctx, dbsqlc.InsertPasscodeParams{
		UserID: user.ID, Hash: code.Hash(), Seconds: passcodeTime.Seconds(),
	}); err != nil {
		return fmt.Errorf("store passcode: %w", err)
	}
	page := s.opts.AccessURL.JoinPath("reset-password", "change")
	page.RawQuery = "otp=" + code.Reveal()
	text := fmt.Sprintf("Set a new password for %s within %d minutes:\n\n%s\n\nIf you did not ask for this, ignore this message: your password is unchanged.\n",
		user.Username, int(passcodeTime.Minutes()), page)
	return s.opts.Mailer.Send(ctx, user.ID, "Reset your password", text)
}

func mayReset(user dbsqlc.User) bool {
	return user.LoginType == string(sdk.LoginPassword) && user.Status != string(sdk.UserSuspended)
}

// changePassword sets a new password with a passcode, and ends the user's sessions.
func (s *Service) changePassword(w http.ResponseWriter, r *http.Request) error {
	var req sdk.ChangePasswordWithOneTimePasscodeRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	wrong := fault.New(fault.Invalid, "The email address or the one-time passcode is wrong, or the passcode has expired.").WithDetail("Request another one.")
	user, err := s.opts.DB.GetUserByEmail(ctx, strings.TrimSpace(req.Email))
	if database.IsNotFound(err) || err == nil && !mayReset(user) {
		return wrong
	}
	if err != nil {
		return fmt.Errorf("look up user: %w", err)
	}
	n, err := s.opts.DB.CheckPasscode(ctx, dbsqlc.CheckPasscodeParams{
		UserID: user.ID, Hash: secret.Token(req.OneTimePasscode).Hash(),
	})
	if err != nil {
		return fmt.Errorf("check passcode: %w", err)
	}
	if n == 0 {
		return wrong
	}
	// A password that is refused does not use the passcode up.
	if err := s.opts.Accounts.CheckPassword(user, req.Password); err != nil {
		return err
	}
	taken, err := s.opts.DB.TakePasscode(ctx, dbsqlc.TakePasscodeParams{
		UserID: user.ID, Hash: secret.Token(req.OneTimePasscode).Hash(),
	})
	if err != nil {
		return fmt.Errorf("use passcode: %w", err)
	}
	if taken == 0 {
		return wrong
	}
	if err := s.opts.Accounts.SetPassword(ctx, user, req.Password); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
