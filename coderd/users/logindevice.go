package users

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// A program on a machine without a browser signs in with a code, as RFC 8628 describes it: it asks for a code and shows
// it, the user types the code into a page of the dashboard on any device, and the program gets a session.
//
//	program ── POST users/login/device ──▶ a secret that it keeps, and a code that it shows
//	browser ── GET users/me/login-requests/{code} ──▶ who asks: machine, program, address
//	        ── POST users/me/login-requests/{code} ──▶ the user's answer, once
//	program ── POST users/login/device/token with the secret ──▶ a session, once
//
// The code is worth nothing without the secret, and the secret nothing without the user's answer. The page's address
// never has the code: a link of another user must not fill it in (RFC 8628, 5.4).
const (
	loginRequestLifetime = 10 * time.Minute
	loginPollInterval    = 2 // seconds
	hastyPoll            = 1 // seconds between questions of a program that is told to slow down
	maxLoginRequests     = 1000
	maxNetworkRequests   = 10
	// codeAlphabet has no vowels, so that codes spell no words, and no characters that look alike (RFC 8628, 6.1).
	codeAlphabet = "BCDFGHJKLMNPQRSTVWXZ"
	codeLength   = 8
	maxHost      = 64 // bytes
)

func (s *Service) loginDeviceRoutes(mux *httpapi.Mux) {
	mux.Handle("POST /api/v2/users/login/device", rbac.Public, s.beginLoginDevice,
		audit.Exempt("a code alone gives nothing; the user's answer to it and the session that it becomes are recorded"))
	mux.Handle("POST /api/v2/users/login/device/token", rbac.Public, s.pollLoginDevice,
		audit.On(audit.Login, audit.APIKey))
	own := rbac.Needs(rbac.Create, rbac.APIKey)
	mux.Handle("GET /api/v2/users/{user}/login-requests/{code}", own, s.getLoginRequest)
	mux.Handle("POST /api/v2/users/{user}/login-requests/{code}", own, s.answerLoginRequest,
		audit.On(audit.Create, audit.APIKey))
}

// beginLoginDevice gives a program a code to show, and a secret.
func (s *Service) beginLoginDevice(w http.ResponseWriter, r *http.Request) error {
	var req sdk.LoginDeviceRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.db.DeleteExpiredLoginRequests(ctx); err != nil {
		return fmt.Errorf("delete expired requests: %w", err)
	}
	device := secret.Token(secret.Text(43))
	code, err := newUserCode()
	if err != nil {
		return err
	}
	n, err := s.db.InsertLoginRequest(ctx, dbsqlc.InsertLoginRequestParams{
		ID: uuid.New(), SecretHash: device.Hash(), UserCode: code, Host: plainText(req.Host),
		Program: plainText(agentOf(ctx)), Address: addressOf(ctx),
		Network: newPair("", httpapi.ClientAddr(ctx)).from.String(), Seconds: loginRequestLifetime.Seconds(),
		MaxAll: maxLoginRequests, MaxNetwork: maxNetworkRequests,
	})
	if err != nil {
		return fmt.Errorf("store request: %w", err)
	}
	if n == 0 {
		return fault.New(fault.RateLimited, "Too many programs wait to be signed in with a code.").
			WithDetail("Try again in %d minutes, or paste a token of %s.", int(loginRequestLifetime/time.Minute),
				s.accessURL.JoinPath("cli-auth"))
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, sdk.LoginDevice{
		DeviceCode: device.Reveal(), UserCode: shownCode(code),
		VerificationURI: s.accessURL.JoinPath("cli-auth", "code").String(),
		ExpiresIn:       int(loginRequestLifetime / time.Second), Interval: loginPollInterval,
	})
}

// pollLoginDevice gives a session for the secret of a program that a user has signed in. Before and otherwise, the
// answer is the fault Invalid with a word of RFC 8628 (3.5) as its detail.
func (s *Service) pollLoginDevice(w http.ResponseWriter, r *http.Request) error {
	var req sdk.LoginDeviceTokenRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	expired := fault.New(fault.Invalid, "The code has expired, or was used.").WithDetail("expired_token")
	asked, err := s.db.PollLoginRequest(ctx, dbsqlc.PollLoginRequestParams{
		SecretHash: secret.Token(req.DeviceCode).Hash(), Seconds: hastyPoll,
	})
	switch {
	case database.IsNotFound(err), err == nil && !asked.Open:
		return expired
	case err != nil:
		return fmt.Errorf("look up request: %w", err)
	case asked.Hasty:
		return fault.New(fault.Invalid, "The program asks too often.").WithDetail("slow_down")
	case asked.KeyID == "":
		return fault.New(fault.Invalid, "The code has not been entered yet.").WithDetail("authorization_pending")
	case !asked.Approved:
		return fault.New(fault.Invalid, "The sign-in was declined.").WithDetail("access_denied")
	}
	// The session that answered may have ended, and its user may have been suspended.
	actor, err := s.Holder(ctx, asked.KeyID)
	if err != nil {
		return err
	}
	if !(rbac.Scope{}).Within(actor.Scope) {
		return unauthenticated("The code was confirmed with a token that may not create sessions.")
	}
	user, err := s.db.GetUser(ctx, actor.UserID)
	if err != nil {
		return fmt.Errorf("look up user: %w", err)
	}
	var token secret.Token
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if n, err := q.DeleteLoginRequest(ctx, asked.ID); err != nil || n == 0 { // once, also of several servers
			return errors.Join(err, expired)
		}
		token, err = s.StartSession(ctx, q, user)
		return err
	})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	s.log.Info("user signed in a program", "user", user.Username, "addr", httpapi.ClientAddr(ctx))
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusCreated, sdk.LoginResponse{SessionToken: token.Reveal()})
}

// getLoginRequest tells the user who asks with a code.
func (s *Service) getLoginRequest(w http.ResponseWriter, r *http.Request) error {
	actor, err := s.mayAnswer(r)
	if err != nil {
		return err
	}
	found, err := s.findLoginRequest(w, r, actor,
		func(code string) (dbsqlc.LoginRequest, error) { return s.db.GetLoginRequest(r.Context(), code) })
	if err != nil {
		return err
	}
	httpapi.NoStore(w.Header())
	return httpapi.Write(w, http.StatusOK, s.shownRequest(r.Context(), found))
}

// answerLoginRequest signs a program in or refuses it. A request is answered once.
func (s *Service) answerLoginRequest(w http.ResponseWriter, r *http.Request) error {
	actor, err := s.mayAnswer(r)
	if err != nil {
		return err
	}
	var req sdk.AnswerWaitingProgramRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	ctx := r.Context()
	_, err = s.findLoginRequest(w, r, actor, func(code string) (found dbsqlc.LoginRequest, err error) {
		err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
			found, err = q.AnswerLoginRequest(ctx, dbsqlc.AnswerLoginRequestParams{
				UserCode: code, KeyID: actor.KeyID, Approved: req.Approve,
			})
			if err != nil {
				return err
			}
			return audit.Record(ctx, q, audit.Entry{
				ID: actor.UserID, Name: actor.Username,
				Fields: map[string]any{
					"approved": req.Approve, "host": found.Host, "program": found.Program, "address": found.Address,
				},
			})
		})
		return found, err
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// mayAnswer returns the actor if they may sign in a program as the user in the path, who must be themselves.
func (s *Service) mayAnswer(r *http.Request) (rbac.Actor, error) {
	actor := httpapi.ActorFrom(r.Context())
	user, err := s.Target(r, rbac.Create, rbac.APIKey)
	if err != nil {
		return actor, err
	}
	if user.ID != actor.UserID {
		return actor, fault.New(fault.Forbidden, "Only %s can sign in a program of theirs.", user.Username)
	}
	return actor, withinOwn(r, rbac.Scope{})
}

// findLoginRequest finds the open request of the code in the path, within bounds on guessing.
func (s *Service) findLoginRequest(
	w http.ResponseWriter, r *http.Request, actor rbac.Actor, find func(code string) (dbsqlc.LoginRequest, error),
) (dbsqlc.LoginRequest, error) {
	p := newPair("login request "+actor.UserID.String(), httpapi.ClientAddr(r.Context()))
	if err := s.mayTry(w, p); err != nil {
		return dbsqlc.LoginRequest{}, fault.New(fault.RateLimited, "Too many wrong codes.").
			WithDetail("Try again in %s seconds.", w.Header().Get("Retry-After"))
	}
	found, err := find(typedCode(r.PathValue("code")))
	if database.IsNotFound(err) {
		s.tries.failed(p)
		return found, fault.New(fault.NotFound, "No program waits with this code.").
			WithDetail("It may have expired, or have been answered. Run coder login again.")
	}
	if err != nil {
		return found, fmt.Errorf("look up request: %w", err)
	}
	return found, nil
}

func (s *Service) shownRequest(ctx context.Context, found dbsqlc.LoginRequest) sdk.WaitingProgram {
	address, _ := netip.ParseAddr(found.Address)
	return sdk.WaitingProgram{
		UserCode: shownCode(found.UserCode), Host: found.Host, Program: found.Program, Address: found.Address,
		SameAddress: address.IsValid() && address == httpapi.ClientAddr(ctx), CreatedAt: found.CreatedAt,
		ExpiresAt:      found.ExpiresAt,
		SessionSeconds: int(s.lifetimes.Session / time.Second),
	}
}

// newUserCode returns a random code, as it is stored.
func newUserCode() (string, error) {
	out := make([]byte, codeLength)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(codeAlphabet))))
		if err != nil {
			return "", err
		}
		out[i] = codeAlphabet[n.Int64()]
	}
	return string(out), nil
}

// shownCode returns a code as users read it.
func shownCode(code string) string { return code[:codeLength/2] + "-" + code[codeLength/2:] }

// typedCode returns a code that a user has typed, as it is stored.
func typedCode(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(codeAlphabet, r) {
			return r
		}
		return -1
	}, strings.ToUpper(text[:min(len(text), maxHost)]))
}

// plainText returns what a program says of its machine as printable ASCII: a user decides by it.
func plainText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxHost)])
}
