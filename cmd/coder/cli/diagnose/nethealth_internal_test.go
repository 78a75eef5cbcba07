package diagnose

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestRelayHealth checks the names and types that editors require, and the judgment.
func TestRelayHealth(t *testing.T) {
	t.Parallel()
	varies := true
	near := tailnet.RegionReport{RelayLink: tailnet.RelayLink{ID: 1, Code: "near", Connected: true, Latency: 12 * time.Millisecond}, LatencyV4: 12 * time.Millisecond}
	far := tailnet.RegionReport{RelayLink: tailnet.RelayLink{ID: 2, Code: "far", Err: "connection refused"}}
	for name, c := range map[string]struct {
		report   tailnet.Report
		severity severity
		codes    []string
	}{
		"good":           {tailnet.Report{UDP: true, IPv4: true, PreferredRegion: 1, Regions: []tailnet.RegionReport{near}}, severityOK, nil},
		"one is away":    {tailnet.Report{UDP: true, Regions: []tailnet.RegionReport{near, far}}, severityWarning, []string{"EDERP01"}},
		"none answers":   {tailnet.Report{UDP: true, Regions: []tailnet.RegionReport{far}}, severityError, nil},
		"no relays":      {tailnet.Report{UDP: true}, severityError, nil},
		"UDP is blocked": {tailnet.Report{Regions: []tailnet.RegionReport{near}, MappingVariesByDest: &varies}, severityWarning, []string{"ESTUN01", "ESTUN02"}},
	} {
		got := checkRelays(c.report)
		var codes []string
		for _, w := range got.Warnings {
			codes = append(codes, w.Code)
		}
		if got.Severity != c.severity || got.Healthy != (c.severity != severityError) || !cmp.Equal(codes, c.codes) {
			t.Errorf("%s: got %s %v %v, want %s %v", name, got.Severity, got.Healthy, codes, c.severity, c.codes)
		}
	}
	interfaces, err := checkInterfaces()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(networkReport{Server: "https://coder.example.com", DERP: checkRelays(tailnet.Report{UDP: true, PreferredRegion: 1, Regions: []tailnet.RegionReport{near, far}}), Interfaces: interfaces})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"derp":{"healthy":true,"severity":"warning","warnings":[{"code":"EDERP01","message":"1 of 2 relays do not answer"}],"error":null,"regions":{"1":{`,
		`"region":{"RegionID":1,"RegionCode":"near","RegionName":"near","EmbeddedRelay":true},"node_reports":[{`,
		`"can_exchange_messages":true`, `"round_trip_ping_ms":12`, `"stun":{"Enabled":true,"CanSTUN":true,"Error":null}`,
		`"UDP":true`, `"PreferredDERP":1`, `"RegionLatency":{"1":12000000}`, `"interfaces":{"healthy":true,"severity":"`, `"interfaces":[`,
		`"error":"relay far does not answer: connection refused"`,
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the report lacks %s:\n%s", part, text)
		}
	}
}
