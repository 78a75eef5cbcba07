package extauth_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// newDeviceWorld is newWorld with a provider whose users enter a code.
func newDeviceWorld(t *testing.T) *world {
	t.Helper()
	provider := extauthtest.New(t)
	return newWorldAt(t, provider, "DEVICE_FLOW", "true", "DEVICE_CODE_URL", provider.URL+"/device")
}

// begin requests a code.
func (w *world) begin(name string) sdk.ExternalAuthDevice {
	w.t.Helper()
	got, err := w.as(name).ExternalAuthDevice(w.t.Context(), "forge")
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// poll asks whether the code has been entered, and returns the code of the error and its detail.
func (w *world) poll(name, code string) (fault.Code, string) {
	w.t.Helper()
	err := w.as(name).ExchangeExternalAuthDevice(w.t.Context(), "forge", sdk.ExternalAuthDeviceExchange{DeviceCode: code})
	if err == nil {
		return "", ""
	}
	f := fault.As(err)
	if f == nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return f.Code, f.Detail
}

// TestDevice: a user who enters the code at the service has a linked account, and an audit row says so. The same code links
// nothing a second time.
func TestDevice(t *testing.T) {
	t.Parallel()
	w := newDeviceWorld(t)
	if got, err := w.as("ann").ExternalAuth(t.Context(), "forge"); err != nil || !got.Device || got.Authenticated {
		t.Errorf("before: got %+v, %v", got, err)
	}
	if all, err := w.as("ann").ExternalAuths(t.Context()); err != nil || len(all.Providers) != 1 || !all.Providers[0].Device {
		t.Errorf("list: got %+v, %v", all, err)
	}
	// Links to the sign-in, such as the form of a template has, lead to the page that shows the code.
	if at, _, _ := w.browser("ann").open(callback); at.RequestURI() != "/external-auth/forge" || w.token("ann") != "" {
		t.Errorf("the sign-in led to %s", at)
	}
	device := w.begin("ann")
	want := sdk.ExternalAuthDevice{
		DeviceCode: device.DeviceCode, UserCode: extauthtest.UserCode, VerificationURI: w.provider.URL + "/enter", ExpiresIn: 900, Interval: 1,
	}
	if diff := cmp.Diff(want, device); diff != "" {
		t.Errorf("code (-want +got):\n%s", diff)
	}
	for _, word := range []string{"authorization_pending", "slow_down"} {
		w.provider.Devices(word)
		if code, detail := w.poll("ann", device.DeviceCode); code != fault.Invalid || detail != word {
			t.Errorf("%s: got %q, %q", word, code, detail)
		}
	}
	w.provider.Devices("")
	if code, detail := w.poll("ann", device.DeviceCode); code != "" {
		t.Fatalf("entered: got %q, %q", code, detail)
	}
	if got := w.token("ann"); !w.provider.Good(got) {
		t.Errorf("the token %q is not the provider's", got)
	}
	if got := w.token("bob"); got != "" {
		t.Error("bob has a token")
	}
	var rows int
	query := `SELECT count(*) FROM audit_logs WHERE resource_type = 'external_auth' AND action = 'create' AND user_id = $1`
	if err := w.DB.Pool.QueryRow(t.Context(), query, w.User("ann")).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows in the audit log, %v; want 1", rows, err)
	}
	if code, _ := w.poll("ann", device.DeviceCode); code != fault.Unavailable {
		t.Errorf("the same code again: got %q", code)
	}
}

// TestDeviceEnds: a code that has expired or was declined says so, and links nothing.
func TestDeviceEnds(t *testing.T) {
	t.Parallel()
	w := newDeviceWorld(t)
	for word, want := range map[string]fault.Code{
		"expired_token": fault.Invalid, "access_denied": fault.Invalid, "invalid_grant": fault.Unavailable, "secret of the trace": fault.Unavailable,
	} {
		device := w.begin("ann")
		w.provider.Devices(word)
		code, detail := w.poll("ann", device.DeviceCode)
		if code != want || want == fault.Invalid && detail != word || strings.Contains(detail, "secret") {
			t.Errorf("%s: got %q, %q", word, code, detail)
		}
	}
	device := w.begin("ann")
	w.provider.Away(true)
	if code, detail := w.poll("ann", device.DeviceCode); code != fault.Unavailable || strings.Contains(detail, "secret") {
		t.Errorf("away: got %q, %q", code, detail)
	}
	if _, err := w.as("ann").ExternalAuthDevice(t.Context(), "forge"); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("a code while the service is away: %v", err)
	}
	w.provider.Away(false)
	if got := w.token("ann"); got != "" {
		t.Error("an account is linked")
	}
}

// TestForeignDeviceCode: only the session that requested a code finishes with it, so that no page can link another user's
// account. What the service issued is of no use without our signature.
func TestForeignDeviceCode(t *testing.T) {
	t.Parallel()
	w := newDeviceWorld(t)
	device := w.begin("bob")
	raw := w.provider.DeviceCodes()[0]
	w.provider.Devices("")
	sign := func(purpose string, lifetime time.Duration, change func(map[string]any)) string {
		var begun map[string]any
		if err := w.signer.Verify("external auth device", secret.Token(device.DeviceCode), &begun); err != nil {
			t.Fatal(err)
		}
		change(begun)
		code, err := w.signer.Sign(purpose, begun, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		return code.Reveal()
	}
	same := func(map[string]any) {}
	for what, try := range map[string]struct{ as, code string }{
		"another user":                      {"ann", device.DeviceCode},
		"the service's own code":            {"bob", raw},
		"no code":                           {"bob", ""},
		"a changed code":                    {"bob", device.DeviceCode + "A"},
		"a huge code":                       {"bob", strings.Repeat("A", 100_000)},
		"an expired code":                   {"bob", sign("external auth device", -signed.Leeway-time.Second, same)},
		"a token for something else":        {"bob", sign("external auth", time.Minute, same)},
		"a code for another provider":       {"bob", sign("external auth device", time.Minute, func(m map[string]any) { m["p"] = "other" })},
		"a code of another session of hers": {"ann2", sign("external auth device", time.Minute, func(m map[string]any) { m["u"] = w.User("ann") })},
	} {
		if code, detail := w.poll(try.as, try.code); code != fault.Invalid || detail != "expired_token" {
			t.Errorf("%s: got %q, %q", what, code, detail)
		}
		if got := w.token("ann") + w.token("bob"); got != "" {
			t.Fatalf("%s: an account is linked", what)
		}
	}
	if code, _ := w.poll("inside", device.DeviceCode); code != fault.Forbidden {
		t.Errorf("a workspace's session finishes: got %q", code)
	}
	if _, err := w.as("inside").ExternalAuthDevice(t.Context(), "forge"); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a workspace's session begins: %v", err)
	}
	if _, err := w.as("ann").ExternalAuthDevice(t.Context(), "other"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown provider: %v", err)
	}
	// The same code is accepted of the session that began: the differences caused the refusals.
	if code, detail := w.poll("bob", device.DeviceCode); code != "" || w.token("bob") == "" {
		t.Errorf("the session that began: got %q, %q", code, detail)
	}
	if strings.Contains(w.Logged(), raw) {
		t.Error("the log holds the device code")
	}
}

// TestHostileDeviceAnswers: what a service answers to a request for a code is not shown unless it is a code and a web page.
func TestHostileDeviceAnswers(t *testing.T) {
	t.Parallel()
	w := newDeviceWorld(t)
	const good = `{"device_code":"d","user_code":"U","verification_uri":"https://forge.example/enter","interval":7,"expires_in":100}`
	for what, answer := range map[string]string{
		"a page":           "<html>secret of the service's trace</html>",
		"huge":             `{"device_code":"` + strings.Repeat("d", 2<<20) + `"}`,
		"a long code":      strings.Replace(good, `"d"`, `"`+strings.Repeat("d", 2000)+`"`, 1),
		"a long user code": strings.Replace(good, `"U"`, `"`+strings.Repeat("U", 100)+`"`, 1),
		"control":          strings.Replace(good, `"U"`, `"U\u202eV\n"`, 1),
		"no code":          strings.Replace(good, `"d"`, `""`, 1),
		"no user code":     strings.Replace(good, `"U"`, `""`, 1),
		"a script":         strings.Replace(good, "https://forge.example/enter", "javascript:alert(1)", 1),
		"no address":       strings.Replace(good, "https://forge.example/enter", "", 1),
		"a list":           "[]",
		"an error":         `{"error":"device_flow_disabled"}`,
	} {
		w.provider.AnswerDevices(answer)
		got, err := w.as("ann").ExternalAuthDevice(t.Context(), "forge")
		if fault.CodeOf(err) != fault.Unavailable || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	for what, tt := range map[string]struct {
		answer            string
		expires, interval int
	}{
		"good":        {good, 100, 7},
		"endless":     {strings.NewReplacer("100", "9000000000000", ":7", ":9000000000").Replace(good), 1800, 60},
		"no times":    {strings.NewReplacer(`,"interval":7,"expires_in":100`, "").Replace(good), 60, 5},
		"negative":    {strings.NewReplacer("100", "-1", ":7", ":-7").Replace(good), 60, 5},
		"another URL": {strings.Replace(good, "verification_uri", "verification_url", 1), 100, 7},
	} {
		w.provider.AnswerDevices(tt.answer)
		got := w.begin("ann")
		if got.ExpiresIn != tt.expires || got.Interval != tt.interval || got.UserCode != "U" || got.VerificationURI != "https://forge.example/enter" {
			t.Errorf("%s: got %+v", what, got)
		}
	}
	if strings.Contains(w.Logged(), "secret of the service") {
		t.Error("the log holds what the service answered")
	}
}

// TestNoDevice: a provider without the device flow refuses it and says where accounts are linked.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.as("ann").ExternalAuthDevice(t.Context(), "forge")
	if f := fault.As(err); f == nil || f.Code != fault.Invalid || !strings.Contains(f.Detail, "/external-auth/forge") {
		t.Errorf("got %v", err)
	}
	if code, _ := w.poll("ann", "x"); code != fault.Invalid {
		t.Errorf("got %q", code)
	}
}
