package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/internal/fault"
)

func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	got, err := trustedProxies([]string{"10.1.2.3/8", " 192.0.2.1", "2001:db8::/32"}, []string{"X-Real-Ip"})
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if got, err := trustedProxies(nil, nil); err != nil || got != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	for name, given := range map[string][2][]string{
		"a header from everywhere": {nil, {"X-Forwarded-For"}},
		"a name":                   {{"proxy.example.com"}, nil},
		"too long":                 {{"10.0.0.0/40"}, nil},
		"a zone":                   {{"fe80::1%eth0"}, nil},
		"no header's name":         {{"10.0.0.0/8"}, {"X-Forwarded-For: 1"}},
	} {
		if got, err := trustedProxies(given[0], given[1]); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
