package users_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// begins has a program ask for a code.
func (a *api) begins(host string) sdk.LoginDevice {
	a.t.Helper()
	return call[sdk.LoginDevice](a.nobody(), 200, "POST", "users/login/device", sdk.LoginDeviceRequest{Host: host})
}

// polls has a program ask whether its code was entered, at a time when it may, and returns the answer's detail.
func (a *api) polls(device string) string {
	a.t.Helper()
	a.Exec(`UPDATE login_requests SET polled_at = NULL`)
	return call[sdk.Response](a.nobody(), 400, "POST", "users/login/device/token", sdk.LoginDeviceTokenRequest{DeviceCode: device}).Detail
}

// TestLoginDevice: a user signs in a program on another machine by its code. The page tells who asks, and the audit log who was
// signed in.
func TestLoginDevice(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	got := a.begins("build-7\x1b[31m\u202e" + strings.Repeat("x", 100))
	if !strings.HasSuffix(got.VerificationURI, "/cli-auth/code") || got.ExpiresIn != 600 || got.Interval < 1 || len(got.DeviceCode) != 43 {
		t.Errorf("got %+v", got)
	}
	if detail := a.polls(got.DeviceCode); detail != "authorization_pending" {
		t.Errorf("before the answer: %q", detail)
	}
	a.Exec(`UPDATE login_requests SET polled_at = now() + interval '1 minute'`) // just now, however slow the test is
	if hasty := call[sdk.Response](a.nobody(), 400, "POST", "users/login/device/token", sdk.LoginDeviceTokenRequest{DeviceCode: got.DeviceCode}); hasty.Detail != "slow_down" {
		t.Errorf("at once again: %q", hasty.Detail)
	}
	for _, typed := range []string{got.UserCode, strings.ToLower(got.UserCode), strings.ReplaceAll(got.UserCode, "-", "")} {
		waits := call[sdk.WaitingProgram](alice, 200, "GET", "users/me/login-requests/"+typed, nil)
		if waits.UserCode != got.UserCode || !strings.HasPrefix(waits.Host, "build-7?[31m?") || len(waits.Host) > 64 || waits.Address == "" || !waits.SameAddress || waits.SessionSeconds == 0 {
			t.Errorf("%s: got %+v", typed, waits)
		}
	}
	a.Exec(`UPDATE login_requests SET address = '192.0.2.7'`)
	if waits := call[sdk.WaitingProgram](alice, 200, "GET", "users/me/login-requests/"+got.UserCode, nil); waits.SameAddress || waits.Address != "192.0.2.7" {
		t.Errorf("a program elsewhere: got %+v", waits)
	}
	alice.want(204, "POST", "users/me/login-requests/"+got.UserCode, sdk.AnswerWaitingProgramRequest{Approve: true})
	a.Exec(`UPDATE login_requests SET polled_at = NULL`)
	session := call[sdk.LoginResponse](a.nobody(), 201, "POST", "users/login/device/token", sdk.LoginDeviceTokenRequest{DeviceCode: got.DeviceCode})
	program := person{a, "alice's program", alice.id, session.SessionToken}
	if me := call[sdk.User](program, 200, "GET", "users/me", nil); me.Username != "alice" {
		t.Errorf("the program acts as %s", me.Username)
	}
	var rows int
	query := `SELECT count(*) FROM audit_logs WHERE user_id = $1 AND action = 'create' AND resource_type = 'api_key' AND additional_fields->>'address' = '192.0.2.7' AND (additional_fields->>'approved')::boolean`
	if err := a.DB.Pool.QueryRow(t.Context(), query, alice.id).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows in the audit log, %v; want 1", rows, err)
	}
	if strings.Contains(a.Logged(), got.DeviceCode) || strings.Contains(a.Logged(), session.SessionToken) {
		t.Error("the log has a secret")
	}
	// Neither the secret nor the code is worth anything now.
	if detail := a.polls(got.DeviceCode); detail != "expired_token" {
		t.Errorf("a second session: %q", detail)
	}
	alice.want(404, "GET", "users/me/login-requests/"+got.UserCode, nil)
}

// TestHostileLoginDevice: codes cannot be guessed, answered twice or for others, or used without the program's secret.
func TestHostileLoginDevice(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	alice, bob := admin.add("alice"), admin.add("bob")
	path := func(code string) string { return "users/me/login-requests/" + code }
	yes, no := sdk.AnswerWaitingProgramRequest{Approve: true}, sdk.AnswerWaitingProgramRequest{}

	// One answer: who comes second, with the other answer or another account, changes nothing.
	got := a.begins("one")
	alice.want(204, "POST", path(got.UserCode), no)
	alice.want(404, "POST", path(got.UserCode), yes)
	bob.want(404, "POST", path(got.UserCode), yes)
	bob.want(404, "GET", path(got.UserCode), nil)
	if detail := a.polls(got.DeviceCode); detail != "access_denied" {
		t.Errorf("refused: %q", detail)
	}

	// The code alone, and what is no secret, give no session.
	got = a.begins("two")
	for _, secret := range []string{"", got.UserCode, strings.ReplaceAll(got.UserCode, "-", ""), got.DeviceCode + "x", strings.Repeat("x", 43), a.begins("three").UserCode} {
		if detail := a.polls(secret); detail != "expired_token" {
			t.Errorf("the secret %q: %q", secret, detail)
		}
	}

	// Only a session of one's own answers: no stranger, no other user for them, no token of less.
	a.nobody().want(401, "GET", path(got.UserCode), nil)
	a.nobody().want(401, "POST", path(got.UserCode), yes)
	admin.want(403, "POST", "users/alice/login-requests/"+got.UserCode, yes)
	admin.want(403, "GET", "users/alice/login-requests/"+got.UserCode, nil)
	limited := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Scopes: []string{"api_key:create", "user:read"}})
	token := person{a, "a limited token", alice.id, limited.Key}
	token.want(403, "POST", path(got.UserCode), yes)
	token.want(403, "GET", path(got.UserCode), nil)

	// A session that has ended, or an account that was suspended, signs in no program later.
	other := person{a, "alice elsewhere", alice.id, a.login("alice@example.com")}
	other.want(204, "POST", path(got.UserCode), yes)
	other.want(200, "POST", "users/logout", nil)
	a.Exec(`UPDATE login_requests SET polled_at = NULL`)
	a.nobody().want(401, "POST", "users/login/device/token", sdk.LoginDeviceTokenRequest{DeviceCode: got.DeviceCode})

	// After ten minutes, neither half is worth anything.
	got = a.begins("late")
	a.Exec(`UPDATE login_requests SET expires_at = now() WHERE host = 'late'`)
	alice.want(404, "GET", path(got.UserCode), nil)
	alice.want(404, "POST", path(got.UserCode), yes)
	if detail := a.polls(got.DeviceCode); detail != "expired_token" {
		t.Errorf("expired: %q", detail)
	}

	// Guesses are few: bob has made two wrong ones above, and is refused even the right one after ten.
	got = a.begins("guessed")
	for i := range 8 {
		bob.want(404, "GET", path(fmt.Sprintf("BCDF-GHJ%c", "BCDFGHJK"[i])), nil)
	}
	bob.want(429, "GET", path(got.UserCode), nil)
	bob.want(429, "POST", path(got.UserCode), yes)
	alice.want(200, "GET", path(got.UserCode), nil) // others are not locked out
}

// TestLoginDeviceBounds: one network cannot hold many codes, and those that have expired make room.
func TestLoginDeviceBounds(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.first()
	for i := range 10 {
		a.begins(fmt.Sprint(i))
	}
	a.nobody().want(429, "POST", "users/login/device", sdk.LoginDeviceRequest{Host: "more"})
	a.Exec(`UPDATE login_requests SET network = '192.0.2.0/24'`)
	a.begins("of another network")
	a.Exec(`UPDATE login_requests SET expires_at = now()`)
	a.begins("after ten minutes")
	var open int
	if err := a.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM login_requests`).Scan(&open); err != nil || open != 1 {
		t.Errorf("%d requests are kept, %v; want 1", open, err)
	}
}
