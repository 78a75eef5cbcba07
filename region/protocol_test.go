package region_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/region"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// FuzzDecodeHello checks that what a proxy announces is bounded and that its URL can be requested.
func FuzzDecodeHello(f *testing.F) {
	check := strings.Repeat("c", region.CheckLength)
	f.Add([]byte(`{"url":"https://eu.example.com","stun_port":3478,"version":"v1","check":"` + check + `"}`))
	f.Add([]byte(`{"url":"ftp://eu.example.com","check":"` + check + `"}`))
	f.Add([]byte(`{"url":"https://u:p@eu.example.com","check":"` + check + `"}`))
	f.Add([]byte(`{"url":"https://eu.example.com","ssh_address":"eu.example.com:2222","check":"` + check + `"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := region.DecodeHello(data)
		if err != nil {
			return
		}
		if len(data) > region.MaxHello || region.CheckURL(h.URL) != nil || h.STUNPort < 0 || h.STUNPort > 65535 || len(h.Check) != region.CheckLength {
			t.Fatalf("accepted %q as %+v", data, h)
		}
		if h.WireGuardAddress != "" && region.CheckGatewayAddress(h.WireGuardAddress) != nil {
			t.Errorf("accepted the address %q", h.WireGuardAddress)
		}
		if h.SSHAddress != "" && region.CheckGatewayAddress(h.SSHAddress) != nil {
			t.Fatalf("accepted %q as %+v", data, h)
		}
	})
}

// FuzzDecodeUpdate checks that what a server sends is bounded, and survives encoding.
func FuzzDecodeUpdate(f *testing.F) {
	data, err := json.Marshal(region.Update{Admit: []tailnet.PublicKey{{1}}, Revoke: []tailnet.PublicKey{{2}}, Synced: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"admit":["nodekey:00"]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := region.DecodeUpdate(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > region.MaxUpdate || len(u.Admit)+len(u.Revoke) > region.MaxKeys || len(u.Owners) > region.MaxOwners || len(again) == 0 {
			t.Fatalf("accepted %q", data)
		}
	})
}

// The longest updates that a server sends are ones that a proxy reads.
func TestLongestUpdate(t *testing.T) {
	owners, err := json.Marshal(region.Update{Recheck: true, Owners: make([]uuid.UUID, region.MaxOwners)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := region.DecodeUpdate(owners); err != nil || len(got.Owners) != region.MaxOwners {
		t.Fatalf("%d bytes: %d owners, %v", len(owners), len(got.Owners), err)
	}
	u := region.Update{Synced: true}
	for i := range region.MaxKeys {
		u.Admit = append(u.Admit, tailnet.PublicKey{byte(i), byte(i >> 8)})
	}
	data, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := region.DecodeUpdate(data); err != nil || len(got.Admit) != region.MaxKeys {
		t.Fatalf("%d bytes: %d keys, %v", len(data), len(got.Admit), err)
	}
}

func TestCheckURL(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://eu.example.com": true, "http://127.0.0.1:3001": true, "https://eu.example.com/below": true,
		"": false, "eu.example.com": false, "https://": false, "ftp://eu.example.com": false, "https://u:p@eu.example.com": false,
		"https://eu.example.com?x=1": false, "https://eu.example.com#x": false,
	} {
		if err := region.CheckURL(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The address of an SSH gateway is part of a command that users copy.
func TestCheckGatewayAddress(t *testing.T) {
	for text, ok := range map[string]bool{
		"ssh.eu.example.com:22": true, "192.0.2.1:2222": true, "[2001:db8::1]:2222": true, "[::1]:2222": true, "localhost:2222": true,
		"": false, "eu.example.com": false, ":2222": false, "eu.example.com:0": false, "eu.example.com:65536": false, "-oProxyCommand=x:22": false,
		"a b:22": false, "a;b:22": false, "$(a):22": false, "a\n:22": false, strings.Repeat("a", 254) + ":22": false,
	} {
		if err := region.CheckGatewayAddress(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
