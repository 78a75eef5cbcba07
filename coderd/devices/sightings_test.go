package devices_test

import (
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

// TestSightings checks that gateways store where devices are, with the latest winning, and that their users count as seen.
func TestSightings(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx := t.Context()
	ann, bob := add(t, s.As("ann"), "anns", newKey(t), 0), add(t, s.As("bob"), "bobs", newKey(t), 0)
	s.Exec(`UPDATE users SET last_seen_at = now() - interval '90 days', status = 'dormant' WHERE id = $1`, s.User("ann"))
	first, now := time.Now().Add(-time.Hour), time.Now()
	home, away, six := netip.MustParseAddrPort("[::ffff:192.0.2.1]:4000"), netip.MustParseAddrPort("192.0.2.1:4001"), netip.MustParseAddrPort("[2001:db8::1]:4000")
	before := auditRows(t, s)
	see := func(sightings ...gateway.Sighting) {
		t.Helper()
		if err := s.Devices.Seen(ctx, sightings); err != nil {
			t.Fatal(err)
		}
	}
	at := func(endpoint string, want ...string) {
		t.Helper()
		list, err := s.Devices.AtEndpoint(ctx, netip.MustParseAddrPort(endpoint))
		got := []string{}
		for _, d := range list {
			got = append(got, d.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(append([]string{}, want...), got); err != nil || diff != "" {
			t.Errorf("at %s: %v (-want +got):\n%s", endpoint, err, diff)
		}
	}
	see()
	see(sighting(ann.ID, home, first), sighting(bob.ID, six, first), sighting(uuid.New(), away, first), sighting(bob.ID, netip.AddrPort{}, now))
	at("192.0.2.1:4000", "anns")
	at("[::ffff:192.0.2.1]:4000", "anns")
	at("[2001:db8::1]:4000", "bobs")
	at("192.0.2.1:4001")
	if d := active(t, s)["anns"]; d.Endpoint.String() != "192.0.2.1:4000" {
		t.Errorf("seen: %+v", d)
	}
	if used, err := s.As("ann").UserDevices(ctx, sdk.Me); err != nil || used[0].LastUsedAt == nil || used[0].LastUsedAt.Sub(first).Abs() > time.Millisecond {
		t.Errorf("used: %+v, %v", used, err)
	}
	var status string
	if err := s.DB.Pool.QueryRow(ctx, `SELECT status FROM users WHERE id = $1 AND last_seen_at > now() - interval '1 hour'`, s.User("ann")).Scan(&status); err != nil || status != "active" {
		t.Errorf("a dormant user whose device is seen is %s, %v", status, err)
	}
	// The later of two in one statement wins, and one that comes late changes nothing. A clock that is ahead does not block others.
	see(sighting(ann.ID, away, now), sighting(ann.ID, home, now.Add(-time.Minute)))
	see(sighting(ann.ID, home, first))
	at("192.0.2.1:4001", "anns")
	see(sighting(bob.ID, away, now.Add(time.Hour)))
	at("192.0.2.1:4001", "anns", "bobs")
	see(sighting(bob.ID, six, time.Now().Add(time.Hour)))
	at("[2001:db8::1]:4000", "bobs")
	if got := auditRows(t, s); got != before {
		t.Errorf("sightings left %d rows in the audit log", got-before)
	}
	list, err := s.As("ann").UserDevices(ctx, sdk.Me)
	if err != nil || list[0].LastUsedAt == nil || list[0].Endpoint != "192.0.2.1:4001" {
		t.Errorf("list: %+v, %v", list, err)
	}
	// A device that may not connect is nowhere.
	if _, err := s.As("olga").SuspendUser(ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	at("[2001:db8::1]:4000")
	s.Exec(`UPDATE user_devices SET expires_at = now() WHERE name = 'anns'`)
	at("192.0.2.1:4001")
}

// TestLeft checks that a process finds the devices of the one before it at the same URL, and not those of other servers or of long ago.
func TestLeft(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx := t.Context()
	at := func(address string) (u *url.URL) {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	server := func(address string) *coderdtest.Server {
		return coderdtest.New(t, coderdtest.WireGuard, func(o *coderd.Options) { o.DB, o.States, o.ReplicaURL = s.DB, s.States, at(address) })
	}
	a, b, next := server("http://192.0.2.1:3000"), server("http://192.0.2.2:3000"), server("http://192.0.2.1:3000")
	phone, tablet := add(t, s.As("ann"), "phone", newKey(t), 0), add(t, s.As("ann"), "tablet", newKey(t), 0)
	add(t, s.As("ann"), "unused", newKey(t), 0)
	endpoint := netip.MustParseAddrPort("198.51.100.1:4000")
	see := func(s *coderdtest.Server, id uuid.UUID, ago time.Duration) {
		t.Helper()
		if err := s.Devices.Seen(ctx, []gateway.Sighting{sighting(id, endpoint, time.Now().Add(-ago))}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(what string, s *coderdtest.Server, want ...string) {
		t.Helper()
		list, err := s.Devices.Active(ctx, uuid.Nil)
		got := []string{}
		for _, d := range list {
			if !d.Left {
				continue
			}
			if got = append(got, d.Name); d.Endpoint != endpoint {
				t.Errorf("%s: %s is at %s", what, d.Name, d.Endpoint)
			}
		}
		if diff := cmp.Diff(append([]string{}, want...), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	left("at first", next)
	see(a, phone.ID, 4*time.Minute)
	left("too long ago", next)
	see(a, phone.ID, time.Second)
	see(b, tablet.ID, time.Second)
	left("of its own", next, "phone")
	left("of the other server", b, "tablet")
	see(b, phone.ID, 0)
	left("after the phone moved to the other server", next)
	if _, err := s.As("olga").SuspendUser(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	left("of a suspended user", b)
}
