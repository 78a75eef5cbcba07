package forward

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// maxForwards bounds how many ports one command forwards.
const maxForwards = 1024

// Port is a forward from one local port to one remote port.
type Port struct {
	Network string // tcp, udp
	Local   netip.AddrPort
	Remote  uint16
}

// Parse parses the specifications of --tcp and --udp.
func Parse(tcp, udp []string) ([]Port, error) {
	var all []Port
	seen := map[string]bool{}
	for _, group := range []struct {
		network string
		specs   []string
	}{{"tcp", tcp}, {"udp", udp}} {
		for _, list := range group.specs {
			for spec := range strings.SplitSeq(list, ",") {
				forwards, err := parseForward(group.network, strings.TrimSpace(spec))
				if err != nil {
					return nil, fault.New(fault.Invalid, "--%s %q cannot be used: %w", group.network, spec, err)
				}
				for _, f := range forwards {
					key := f.Network + f.Local.String()
					if seen[key] {
						return nil, fault.New(fault.Invalid, "the local port %s is given twice", f.Local)
					}
					seen[key] = true
				}
				if all = append(all, forwards...); len(all) > maxForwards {
					return nil, fault.New(fault.Invalid, "at most %d ports can be forwarded at a time", maxForwards)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Invalid, "no ports given: --tcp or --udp is missing")
	}
	return all, nil
}

// parseForward parses [address:]local[:remote], where local and remote may be ranges. An IPv6 address is in brackets.
func parseForward(network, spec string) ([]Port, error) {
	addr, rest, err := cutAddress(spec)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(rest, ":")
	if len(parts) > 2 {
		return nil, errors.New("it has too many parts; want [address:]local[:remote]")
	}
	low, high, err := parseRange(parts[0])
	if err != nil {
		return nil, err
	}
	to := low
	if len(parts) == 2 {
		first, last, err := parseRange(parts[1])
		if err != nil {
			return nil, err
		}
		if last-first != high-low {
			return nil, errors.New("the two ranges differ in length")
		}
		to = first
	}
	if int(high-low) >= maxForwards {
		return nil, fmt.Errorf("at most %d ports can be forwarded at a time", maxForwards)
	}
	forwards := make([]Port, 0, int(high-low)+1)
	for i := range int(high-low) + 1 {
		forwards = append(forwards, Port{network, netip.AddrPortFrom(addr, low+uint16(i)), to + uint16(i)})
	}
	return forwards, nil
}

// cutAddress splits the address from a specification. The default address is 127.0.0.1.
func cutAddress(spec string) (netip.Addr, string, error) {
	if strings.HasPrefix(spec, "[") {
		text, rest, ok := strings.Cut(spec[1:], "]:")
		addr, err := netip.ParseAddr(text)
		if !ok || err != nil {
			return addr, "", errors.New("the address in brackets is not valid")
		}
		return addr, rest, nil
	}
	first, rest, ok := strings.Cut(spec, ":")
	if ok && first == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), rest, nil
	}
	if addr, err := netip.ParseAddr(first); ok && err == nil {
		return addr, rest, nil
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1}), spec, nil
}

func parseRange(text string) (low, high uint16, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if low, err = parsePort(first); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return low, low, nil
	}
	if high, err = parsePort(last); err != nil {
		return 0, 0, err
	}
	if high < low {
		return 0, 0, fmt.Errorf("the range %s ends before it begins", text)
	}
	return low, high, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port from 1 to 65535", text)
	}
	return uint16(n), nil
}
