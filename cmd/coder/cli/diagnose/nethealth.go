package diagnose

import (
	"fmt"
	"net"
	"strconv"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// severity is how well a part of the network works. Editors know these values only.
type severity string

const (
	severityOK      severity = "ok"
	severityWarning severity = "warning"
	severityError   severity = "error"
)

// warning is a problem with a code for programs and a sentence for people.
type warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// sectionHealth begins each section. Severity error comes with Error, warning with Warnings.
type sectionHealth struct {
	Healthy  bool      `json:"healthy"`
	Severity severity  `json:"severity"`
	Warnings []warning `json:"warnings"` // never nil
	Error    *string   `json:"error"`
}

func (h *sectionHealth) warn(code, format string, args ...any) {
	h.Warnings = append(h.Warnings, warning{code, fmt.Sprintf(format, args...)})
	if h.Severity == severityOK {
		h.Severity = severityWarning
	}
}

func (h *sectionHealth) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	h.Healthy, h.Severity, h.Error = false, severityError, &text
}

func healthy() sectionHealth {
	return sectionHealth{Healthy: true, Severity: severityOK, Warnings: []warning{}}
}

// relayHealth is the report on the relays. Its names are those of DERP, whose role the relays have.
type relayHealth struct {
	sectionHealth
	Regions     map[string]regionHealth `json:"regions"` // by id
	Netcheck    *connectivity           `json:"netcheck"`
	NetcheckErr *string                 `json:"netcheck_err"`
}

type regionHealth struct {
	sectionHealth
	Region      region       `json:"region"`
	NodeReports []nodeHealth `json:"node_reports"`
}

type region struct {
	RegionID      int
	RegionCode    string
	RegionName    string
	EmbeddedRelay bool
}

type nodeHealth struct {
	sectionHealth
	CanExchangeMessages bool     `json:"can_exchange_messages"`
	RoundTripPing       string   `json:"round_trip_ping"`
	RoundTripPingMs     int      `json:"round_trip_ping_ms"`
	UsesWebsocket       bool     `json:"uses_websocket"`
	STUN                nodeSTUN `json:"stun"`
}

type nodeSTUN struct {
	Enabled bool
	CanSTUN bool
	Error   *string
}

// connectivity describes the network. Latencies are in nanoseconds, by region.
type connectivity struct {
	UDP                   bool
	IPv4                  bool
	IPv6                  bool
	MappingVariesByDestIP *bool
	PreferredDERP         int // 0 if no relay answered
	RegionLatency         map[string]int64
	RegionV4Latency       map[string]int64
	RegionV6Latency       map[string]int64
	GlobalV4              string
	GlobalV6              string
}

// checkRelays judges a measurement. One usable relay suffices: without any, no connection begins.
func checkRelays(report tailnet.Report) relayHealth {
	out := relayHealth{sectionHealth: healthy(), Regions: map[string]regionHealth{}}
	out.Netcheck = &connectivity{
		UDP: report.UDP, IPv4: report.IPv4, IPv6: report.IPv6, MappingVariesByDestIP: report.MappingVariesByDest,
		PreferredDERP: report.PreferredRegion,
		RegionLatency: map[string]int64{}, RegionV4Latency: map[string]int64{}, RegionV6Latency: map[string]int64{},
	}
	if report.PublicIPv4.IsValid() {
		out.Netcheck.GlobalV4 = report.PublicIPv4.String()
	}
	if report.PublicIPv6.IsValid() {
		out.Netcheck.GlobalV6 = report.PublicIPv6.String()
	}
	usable := 0
	for _, r := range report.Regions {
		id := strconv.Itoa(r.ID)
		health := checkRelay(r)
		if health.Severity != severityError {
			usable++
		}
		out.Regions[id] = health
		for into, latency := range map[*map[string]int64]int64{
			&out.Netcheck.RegionLatency: int64(r.Latency), &out.Netcheck.RegionV4Latency: int64(r.LatencyV4), &out.Netcheck.RegionV6Latency: int64(r.LatencyV6),
		} {
			if latency > 0 {
				(*into)[id] = latency
			}
		}
	}
	switch {
	case usable == 0:
		out.fail("no relay answers: workspaces cannot be reached")
	case usable < len(report.Regions):
		out.warn("EDERP01", "%d of %d relays do not answer", len(report.Regions)-usable, len(report.Regions))
	}
	if !report.UDP {
		out.warn("ESTUN01", "UDP is blocked: connections take the relay")
	}
	if varies := report.MappingVariesByDest; varies != nil && *varies {
		out.warn("ESTUN02", "this network maps each destination to another port: connections often take the relay")
	}
	return out
}

// checkRelay judges one relay: it is usable if it is connected or was measured.
func checkRelay(r tailnet.RegionReport) regionHealth {
	node := nodeHealth{sectionHealth: healthy(), CanExchangeMessages: r.Connected, UsesWebsocket: r.Websocket, STUN: nodeSTUN{Enabled: true, CanSTUN: r.LatencyV4 > 0 || r.LatencyV6 > 0}}
	node.RoundTripPing, node.RoundTripPingMs = r.Latency.String(), int(r.Latency.Milliseconds())
	if r.Websocket {
		node.warn("EDERP02", "relay %s is reached over a websocket, which is slower", r.Code)
	}
	if !r.Connected && r.Latency == 0 {
		node.fail("relay %s does not answer: %s", r.Code, orUnknown(r.Err))
	}
	return regionHealth{sectionHealth: node.sectionHealth, Region: region{r.ID, r.Code, r.Code, true}, NodeReports: []nodeHealth{node}}
}

func orUnknown(problem string) string {
	if problem == "" {
		return "it was not measured"
	}
	return problem
}

// interfacesHealth is the report on the network interfaces that are up.
type interfacesHealth struct {
	sectionHealth
	Interfaces []networkInterface `json:"interfaces"` // never nil
}

type networkInterface struct {
	Name      string   `json:"name"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses"` // with prefix lengths
}

// minMTU is the least MTU that carries WireGuard's packets of a tunnel of 1280 bytes, the minimum of IPv6: 80 bytes
// more.
const minMTU = 1360

// checkInterfaces lists the interfaces of this machine that are up, without loopback.
func checkInterfaces() (interfacesHealth, error) {
	all, err := net.Interfaces()
	if err != nil {
		return interfacesHealth{}, fault.New(fault.Unavailable, "cannot list the network interfaces: %w", err)
	}
	out := interfacesHealth{sectionHealth: healthy(), Interfaces: []networkInterface{}}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			out.warn("EIF01", "the addresses of the interface %s cannot be read: %v", i.Name, err)
		}
		shown := networkInterface{Name: i.Name, MTU: i.MTU, Addresses: []string{}}
		for _, a := range addresses {
			shown.Addresses = append(shown.Addresses, a.String())
		}
		out.Interfaces = append(out.Interfaces, shown)
		if i.MTU < minMTU && len(addresses) > 0 {
			out.warn("EIF02", "the interface %s has an MTU of %d bytes, less than the %d that direct connections need",
				i.Name, i.MTU, minMTU)
		}
	}
	return out, nil
}
