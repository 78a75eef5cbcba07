package laptop

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// overlaps returns the routes that share addresses with a prefix, from the output of "ip -6 -j route show table all".
// Other VPNs have such routes if they use the same range. Routes to everywhere do not count, nor those of a device.
func overlaps(routes []byte, prefix netip.Prefix, device string) ([]string, error) {
	var all []struct {
		Type, Dst, Dev string
		Table          any // a name or a number
	}
	if err := json.Unmarshal(routes, &all); err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var found []string
	for _, r := range all {
		to, err := netip.ParsePrefix(r.Dst)
		if err != nil {
			addr, err := netip.ParseAddr(r.Dst)
			if err != nil {
				continue // "default"
			}
			to = netip.PrefixFrom(addr, addr.BitLen())
		}
		if r.Dev != device && to.Bits() > 0 && to.Overlaps(prefix) {
			found = append(found, fmt.Sprintf("%s dev %s", to, r.Dev))
		}
	}
	return found, nil
}
