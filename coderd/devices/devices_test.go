package devices_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t *testing.T) *coderdtest.Server { return coderdtest.New(t, coderdtest.WireGuard) }

func newKey(t *testing.T) wgquick.Key {
	t.Helper()
	pair, err := wgquick.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Public
}

func add(t *testing.T, c *sdk.Client, name string, key wgquick.Key, lifetime time.Duration) sdk.UserDevice {
	t.Helper()
	made, err := c.CreateUserDevice(t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: name, PublicKey: key.String(), Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// active returns the devices that may connect, by their names.
func active(t *testing.T, s *coderdtest.Server) map[string]gateway.Device {
	t.Helper()
	list, err := s.Devices.Active(t.Context(), uuid.Nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]gateway.Device{}
	for _, d := range list {
		out[d.Name] = d
	}
	for _, d := range list {
		of, err := s.Devices.Active(t.Context(), d.User)
		if err != nil {
			t.Fatal(err)
		}
		others := slices.DeleteFunc(slices.Clone(list), func(o gateway.Device) bool { return o.User != d.User })
		if diff := cmp.Diff(others, of, cmp.Comparer(func(a, b gateway.Device) bool { return a.ID == b.ID })); diff != "" {
			t.Errorf("devices of %s (-of all +of the user):\n%s", d.User, diff)
		}
	}
	return out
}

func sighting(device uuid.UUID, at netip.AddrPort, when time.Time) gateway.Sighting {
	return gateway.Sighting{Device: device, Endpoint: at, At: when}
}

func wantActive(t *testing.T, s *coderdtest.Server, what string, names ...string) {
	t.Helper()
	got := []string{}
	for name := range active(t, s) {
		got = append(got, name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(append([]string{}, names...), got); diff != "" {
		t.Errorf("%s: devices that may connect (-want +got):\n%s", what, diff)
	}
}

// TestLifeOfADevice checks that a user adds, sees, renames and removes a device, which gateways know meanwhile.
func TestLifeOfADevice(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ann, ctx, key := s.As("ann"), t.Context(), newKey(t)
	made := add(t, ann, " phone ", key, 0)
	want := sdk.UserDevice{Name: "phone", PublicKey: key.String(), Address: tailnet.Addr(made.ID).String()}
	if diff := cmp.Diff(want, made, cmpopts.IgnoreFields(sdk.UserDevice{}, "ID", "CreatedAt", "ExpiresAt")); diff != "" {
		t.Errorf("added (-want +got):\n%s", diff)
	}
	if got := made.ExpiresAt.Sub(made.CreatedAt); got != devices.DefaultMaxLifetime {
		t.Errorf("it may connect for %s, want %s", got, devices.DefaultMaxLifetime)
	}
	tablet := add(t, ann, "tablet", newKey(t), time.Hour)
	if got := tablet.ExpiresAt.Sub(tablet.CreatedAt); got != time.Hour {
		t.Errorf("a device for an hour may connect for %s", got)
	}
	list, err := ann.UserDevices(ctx, sdk.Me)
	if diff := cmp.Diff([]sdk.UserDevice{made, tablet}, list); err != nil || diff != "" {
		t.Errorf("list: %v (-want +got):\n%s", err, diff)
	}
	known := gateway.Device{ID: made.ID, User: s.User("ann"), Name: "phone", Key: key}
	if diff := cmp.Diff(known, active(t, s)["phone"], cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("a gateway knows (-want +got):\n%s", diff)
	}
	if got := known.Addr().String(); got != made.Address {
		t.Errorf("its address is %s for gateways, and %s for its owner", got, made.Address)
	}
	renamed, err := ann.UpdateUserDevice(ctx, sdk.Me, made.ID, sdk.UpdateUserDeviceRequest{Name: "old phone"})
	made.Name = "old phone"
	if diff := cmp.Diff(made, renamed); err != nil || diff != "" {
		t.Errorf("renamed: %v (-want +got):\n%s", err, diff)
	}
	_, err = ann.UpdateUserDevice(ctx, sdk.Me, made.ID, sdk.UpdateUserDeviceRequest{Name: "tablet"})
	coderdtest.WantCode(t, "a name that another device has", err, fault.Conflict)
	_, err = ann.UpdateUserDevice(ctx, sdk.Me, made.ID, sdk.UpdateUserDeviceRequest{Name: "a\nb"})
	coderdtest.WantCode(t, "a name with a line break", err, fault.Invalid)
	wantActive(t, s, "renamed", "old phone", "tablet")
	if err := ann.DeleteUserDevice(ctx, sdk.Me, made.ID); err != nil {
		t.Fatal(err)
	}
	wantActive(t, s, "removed", "tablet")
	coderdtest.WantCode(t, "remove again", ann.DeleteUserDevice(ctx, sdk.Me, made.ID), fault.NotFound)

	rows, err := s.As("olga").AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:user_device username:ann"})
	if err != nil {
		t.Fatal(err)
	}
	var descriptions []string
	for _, row := range rows.AuditLogs {
		descriptions = append(descriptions, row.Description)
		if !strings.Contains(string(row.AdditionalFields), `"ann"`) {
			t.Errorf("audit row without the owner: %+v", row)
		}
	}
	wantRows := []string{"ann deleted device old phone", "ann changed name of device phone", "ann created device tablet", "ann created device phone"}
	if diff := cmp.Diff(wantRows, descriptions); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
}

// TestOwnersAreTold checks that a user finds a note about a new device in their inbox, with where the request came from.
func TestOwnersAreTold(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ann := s.As("ann")
	made := add(t, ann, "phone", newKey(t), 0)
	if err := s.Notifications.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	box, err := ann.Inbox(t.Context(), "format=plaintext")
	if err != nil || len(box.Notifications) != 1 {
		t.Fatalf("%+v, %v", box, err)
	}
	note := box.Notifications[0]
	for _, fact := range []string{"phone", "127.0.0.1", made.CreatedAt.UTC().Format("2 January 2006, 15:04 UTC"), made.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC")} {
		if !strings.Contains(note.Content, fact) {
			t.Errorf("the note does not say %q: %s", fact, note.Content)
		}
	}
}

func auditRows(t *testing.T, s *coderdtest.Server) (n int) {
	t.Helper()
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM audit_logs`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGatewaysOverlap checks that servers that store the same devices at the same moment do not lock each other out.
func TestGatewaysOverlap(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	var all []gateway.Sighting
	for i := range devices.MaxDevices {
		made := add(t, s.As("ann"), fmt.Sprintf("device %d", i), newKey(t), 0)
		all = append(all, sighting(made.ID, netip.MustParseAddrPort("192.0.2.1:4000"), time.Now()))
	}
	var seeing sync.WaitGroup
	for range 8 {
		slices.Reverse(all)
		sightings := slices.Clone(all)
		seeing.Go(func() {
			for round := range 10 {
				for i := range sightings {
					sightings[i].At = time.Now().Add(time.Duration(round) * time.Microsecond)
				}
				if err := s.Devices.Seen(t.Context(), sightings); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seeing.Wait()
}

// TestUselessDevices checks that expired devices, and those of suspended and deleted users, may not connect, and that every server hears of it.
func TestUselessDevices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ann, olga, ctx, key := s.As("ann"), s.As("olga"), t.Context(), newKey(t)
	heard := make(chan string, 100)
	for _, channel := range []string{devices.Channel, "users_revoked"} {
		defer s.PubSub.Subscribe(channel, func(payload string) { heard <- payload })()
	}
	hears := func(what string) {
		t.Helper()
		if got := testwait.For(t, what, heard); got != s.User("ann").String() {
			t.Errorf("%s: announced for %q", what, got)
		}
		for len(heard) > 0 {
			<-heard
		}
	}
	made := add(t, ann, "phone", key, time.Hour)
	hears("a new device")
	if _, err := olga.SuspendUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	hears("a suspended user")
	wantActive(t, s, "of a suspended user")
	if _, err := olga.ActivateUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	hears("an activated user")
	wantActive(t, s, "of an active user", "phone")
	ann = s.With(s.Session("ann"))
	s.Exec(`UPDATE user_devices SET expires_at = now() WHERE id = $1`, made.ID)
	hears("a changed end")
	wantActive(t, s, "expired")
	_, err := s.As("bob").CreateUserDevice(ctx, sdk.Me, sdk.CreateUserDeviceRequest{Name: "phone", PublicKey: key.String()})
	coderdtest.WantCode(t, "another user's expired key", err, fault.Conflict)

	// Its user can add it again, under the same name; its former id and address do not come back.
	again := add(t, ann, "phone", key, 0)
	if again.ID == made.ID || again.Address == made.Address {
		t.Errorf("added again: %+v, and before %+v", again, made)
	}
	hears("an expired device, replaced")
	if err := ann.DeleteUserDevice(ctx, sdk.Me, again.ID); err != nil {
		t.Fatal(err)
	}
	hears("a removed device")
	third := add(t, ann, "phone", key, 0)
	if third.ID == again.ID || third.LastUsedAt != nil {
		t.Errorf("after its removal: %+v", third)
	}
	if err := s.Devices.Seen(ctx, []gateway.Sighting{sighting(again.ID, netip.MustParseAddrPort("192.0.2.1:4000"), time.Now())}); err != nil {
		t.Fatal(err)
	}
	if d := active(t, s)["phone"]; d.ID != third.ID || d.Endpoint.IsValid() {
		t.Errorf("a sighting of the removed device counts for %+v", d)
	}
	if err := olga.DeleteUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	wantActive(t, s, "of a deleted user")
	if left, err := s.DB.ListUserDevices(ctx, s.User("ann")); err != nil || len(left) != 0 {
		t.Errorf("left of a deleted user: %v, %v", left, err)
	}
	// A server of the release before deletes users and leaves their devices.
	add(t, s.As("cid"), "cids", key, 0)
	s.Exec(`UPDATE users SET deleted_at = now() WHERE id = $1`, s.User("cid"))
	wantActive(t, s, "of a user whom another release deleted")
}

// TestExpiryCounts checks that the server waits for the end of a device as for the end of a key.
func TestExpiryCounts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	made := add(t, s.As("ann"), "phone", newKey(t), time.Minute)
	next, err := s.DB.NextKeyExpiry(t.Context(), dbsqlc.NextKeyExpiryParams{After: made.CreatedAt})
	if err != nil || !next.Equal(made.ExpiresAt) {
		t.Errorf("the next key expires at %s, %v, want %s", next, err, made.ExpiresAt)
	}
	for what, tt := range map[string]struct {
		after, until time.Time
		want         []uuid.UUID
	}{
		"until its end":  {made.CreatedAt, made.ExpiresAt, []uuid.UUID{s.User("ann")}},
		"before its end": {made.CreatedAt, made.ExpiresAt.Add(-time.Second), []uuid.UUID{}},
		"after its end":  {made.ExpiresAt, made.ExpiresAt.Add(time.Second), []uuid.UUID{}},
	} {
		users, err := s.DB.ListUsersWithExpiredKeys(t.Context(), dbsqlc.ListUsersWithExpiredKeysParams{After: tt.after, Until: tt.until})
		if diff := cmp.Diff(tt.want, users); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
}

// TestOthersDevices checks who sees and removes the devices of others, and that no role and no limited token adds or renames one.
func TestOthersDevices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx := t.Context()
	made := add(t, s.As("ann"), "laptop", newKey(t), 0)
	s.Exec(`UPDATE users SET roles = '{user-admin}' WHERE id = $1`, s.User("uma"))
	inside, err := s.Users.SessionFor(ctx, s.DB.Queries, s.User("ann"), s.WorkspaceRow("ann", "dev"))
	if err != nil {
		t.Fatal(err)
	}
	limited := func(scopes ...string) *sdk.Client {
		token, err := s.As("ann").CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return s.With(secret.Token(token.Key))
	}
	for name, a := range map[string]struct {
		client                      *sdk.Client
		list, add, renames, removes fault.Code
	}{
		"a member":               {s.As("bob"), fault.NotFound, fault.NotFound, fault.NotFound, fault.NotFound},
		"a template admin":       {s.As("tom"), fault.NotFound, fault.NotFound, fault.NotFound, fault.NotFound},
		"a visitor":              {s.With(""), fault.Unauthenticated, fault.Unauthenticated, fault.Unauthenticated, fault.Unauthenticated},
		"an owner":               {s.As("olga"), "", fault.Forbidden, fault.Forbidden, ""},
		"a user admin":           {s.As("uma"), "", fault.Forbidden, fault.Forbidden, ""},
		"a workspace's token":    {s.With(inside), "", fault.Forbidden, fault.Forbidden, fault.Forbidden},
		"a token that reads":     {limited("user_device:read"), "", fault.Forbidden, fault.Forbidden, fault.Forbidden},
		"a token for workspaces": {limited("workspace:*"), fault.Forbidden, fault.Forbidden, fault.Forbidden, fault.Forbidden},
		"a token for devices":    {limited("user_device:*"), "", fault.Forbidden, "", ""},
		"a token for all scopes": {limited("all"), "", "", "", ""},
		"their own session":      {s.As("ann"), "", "", "", ""},
	} {
		for _, ann := range []string{"ann", s.User("ann").String()} {
			_, err := a.client.UserDevices(ctx, ann)
			coderdtest.WantCode(t, name+" lists", err, a.list)
			planted, err := a.client.CreateUserDevice(ctx, ann, sdk.CreateUserDeviceRequest{Name: "planted", PublicKey: newKey(t).String()})
			coderdtest.WantCode(t, name+" adds", err, a.add)
			if err == nil {
				coderdtest.WantCode(t, name+" removes what they added", a.client.DeleteUserDevice(ctx, ann, planted.ID), "")
			}
			_, err = a.client.UpdateUserDevice(ctx, ann, made.ID, sdk.UpdateUserDeviceRequest{Name: "laptop"})
			coderdtest.WantCode(t, name+" renames", err, a.renames)
			victim := made.ID
			if a.removes == "" {
				victim = add(t, s.As("ann"), "victim", newKey(t), 0).ID
			}
			coderdtest.WantCode(t, name+" removes", a.client.DeleteUserDevice(ctx, ann, victim), a.removes)
		}
	}
	// Under another user's path, a device does not exist; and an admin does not reach accounts with more powers.
	coderdtest.WantCode(t, "bob removes ann's as his", s.As("bob").DeleteUserDevice(ctx, sdk.Me, made.ID), fault.NotFound)
	_, err = s.As("bob").UpdateUserDevice(ctx, sdk.Me, made.ID, sdk.UpdateUserDeviceRequest{Name: "mine"})
	coderdtest.WantCode(t, "bob renames ann's as his", err, fault.NotFound)
	olgas := add(t, s.As("olga"), "olgas", newKey(t), 0)
	coderdtest.WantCode(t, "a user admin removes an owner's", s.As("uma").DeleteUserDevice(ctx, "olga", olgas.ID), fault.Forbidden)
	wantActive(t, s, "after the attempts", "laptop", "olgas")
}

// TestRefusedDevices checks that bad input is refused with the field that is wrong, and leaves nothing.
func TestRefusedDevices(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ann, bob, ctx, key := s.As("ann"), s.As("bob"), t.Context(), newKey(t)
	add(t, ann, "laptop", key, 0)
	gateway, err := ann.WireGuardGateway(ctx)
	if err != nil {
		t.Fatal(err)
	}
	low := base64.StdEncoding.EncodeToString(append([]byte{1}, make([]byte, 31)...))
	for what, tt := range map[string]struct {
		client *sdk.Client
		req    sdk.CreateUserDeviceRequest
		field  string
		want   fault.Code
	}{
		"no key":                   {ann, sdk.CreateUserDeviceRequest{Name: "x"}, "public_key", fault.Invalid},
		"zero":                     {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: wgquick.Key{}.String()}, "public_key", fault.Invalid},
		"a point of low order":     {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: low}, "public_key", fault.Invalid},
		"the gateway's key":        {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: gateway.PublicKey}, "public_key", fault.Invalid},
		"no name":                  {ann, sdk.CreateUserDeviceRequest{PublicKey: newKey(t).String()}, "name", fault.Invalid},
		"a name with a line break": {ann, sdk.CreateUserDeviceRequest{Name: "a\nb", PublicKey: newKey(t).String()}, "name", fault.Invalid},
		"a short lifetime":         {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: newKey(t).String(), Lifetime: time.Second}, "lifetime", fault.Invalid},
		"a negative lifetime":      {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: newKey(t).String(), Lifetime: -time.Hour}, "lifetime", fault.Invalid},
		"more than is allowed":     {ann, sdk.CreateUserDeviceRequest{Name: "x", PublicKey: newKey(t).String(), Lifetime: devices.DefaultMaxLifetime + 1}, "lifetime", fault.Invalid},
		"a name that is taken":     {ann, sdk.CreateUserDeviceRequest{Name: "laptop", PublicKey: newKey(t).String()}, "name", fault.Conflict},
		"her key again":            {ann, sdk.CreateUserDeviceRequest{Name: "again", PublicKey: key.String()}, "public_key", fault.Conflict},
		"another user's key":       {bob, sdk.CreateUserDeviceRequest{Name: "laptop", PublicKey: key.String()}, "public_key", fault.Conflict},
	} {
		_, err := tt.client.CreateUserDevice(ctx, sdk.Me, tt.req)
		f := fault.As(err)
		if f == nil || f.Code != tt.want || len(f.Fields) != 1 || f.Fields[0].Field != tt.field {
			t.Errorf("%s: %#v", what, err)
			continue
		}
		answer, _ := json.Marshal(f)
		if tt.client == bob && (bytes.Contains(answer, []byte("ann")) || bytes.Contains(answer, []byte(s.User("ann").String()))) {
			t.Errorf("%s: the answer says whose key it is: %s", what, answer)
		}
	}
	wantActive(t, s, "after the attempts", "laptop")
	if list, err := bob.UserDevices(ctx, sdk.Me); err != nil || len(list) != 0 {
		t.Errorf("bob has %v, %v", list, err)
	}
}

// TestWithoutGateway checks that a deployment without a gateway says so, and takes no devices.
func TestWithoutGateway(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ann := s.As("ann")
	gateway, err := ann.WireGuardGateway(t.Context())
	if err != nil || gateway.Enabled || gateway.Address != "" {
		t.Errorf("got %+v, %v", gateway, err)
	}
	_, err = ann.CreateUserDevice(t.Context(), sdk.Me, sdk.CreateUserDeviceRequest{Name: "phone", PublicKey: newKey(t).String()})
	if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Detail, "--wireguard-address") {
		t.Errorf("got %#v", err)
	}
	wantActive(t, s, "without a gateway")
}

// TestGateway checks what a device's configuration is made of, that all servers agree on it, and that the longest lifetime is the operator's.
func TestGateway(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	got, err := s.As("ann").WireGuardGateway(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := sdk.WireGuardGateway{
		Enabled: true, Address: "wg.example.com:51820", PublicKey: got.PublicKey, Prefix: "fd3b:8e1f:47c2::/48", DNS: "fd3b:8e1f:47c2:dcf:c10c:7d1d:9a39:6ec2", MTU: 1280,
		MaxDeviceLifetime: 90 * 24 * time.Hour, Regions: sdk.List[sdk.WireGuardRegionGateway]{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := wgquick.ParseKey(got.PublicKey); err != nil {
		t.Error(err)
	}
	other := coderdtest.New(t, coderdtest.WireGuard, func(o *coderd.Options) { o.DB, o.States, o.MaxDeviceLifetime = s.DB, s.States, time.Hour })
	want.MaxDeviceLifetime = time.Hour
	got, err = other.As("ann").WireGuardGateway(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("at another server: %v (-want +got):\n%s", err, diff)
	}
}

// TestLimit checks that a user has a bounded number of devices, also if several are added at once, and that old expired ones make room.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ann, ctx := s.As("ann"), t.Context()
	for i := range devices.MaxDevices - 2 {
		add(t, ann, fmt.Sprintf("device %d", i), newKey(t), 0)
	}
	results := make(chan error, 6)
	var adding sync.WaitGroup
	for i := range cap(results) {
		key := newKey(t).String()
		adding.Go(func() {
			_, err := ann.CreateUserDevice(ctx, sdk.Me, sdk.CreateUserDeviceRequest{Name: fmt.Sprintf("more %d", i), PublicKey: key})
			results <- err
		})
	}
	adding.Wait()
	added := 0
	for range cap(results) {
		if err := <-results; err == nil {
			added++
		} else if fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "coder devices remove") {
			t.Errorf("one too many: %v", err)
		}
	}
	if added != 2 {
		t.Errorf("%d of 6 were added, want 2", added)
	}
	s.Exec(`UPDATE user_devices SET expires_at = now() - interval '29 days' WHERE name = 'device 1'`)
	_, err := ann.CreateUserDevice(ctx, sdk.Me, sdk.CreateUserDeviceRequest{Name: "new", PublicKey: newKey(t).String()})
	coderdtest.WantCode(t, "a device that expired this month is still listed", err, fault.Conflict)
	s.Exec(`UPDATE user_devices SET expires_at = now() - interval '31 days' WHERE name = 'device 1'`)
	add(t, ann, "new", newKey(t), 0)

	key := newKey(t)
	won := make(chan string, 4)
	for _, name := range []string{"bob", "cid", "dan", "eve"} {
		client := s.As(name)
		adding.Go(func() {
			if _, err := client.CreateUserDevice(ctx, sdk.Me, sdk.CreateUserDeviceRequest{Name: name, PublicKey: key.String()}); err == nil {
				won <- name
			}
		})
	}
	adding.Wait()
	if len(won) != 1 {
		t.Fatalf("%d users have the key", len(won))
	}
	if winner := <-won; active(t, s)[winner].User != s.User(winner) {
		t.Errorf("%s has not got the key that they added", winner)
	}
}
