package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// use returns samples of one process for an hour: memory that begins with 100 MB and grows, beside noise that lasts for minutes.
func use(grows float64) (samples []sample) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := 0.0
	for i := range 720 {
		noise = 0.9*noise + r.NormFloat64()
		hours := float64(i) / 720
		used := [len(quantities)]float64{100 + noise + grows*hours, -1, -1, 40}
		samples = append(samples, sample{"server 0", time.Duration(i) * 5 * time.Second, used})
	}
	return samples
}

// TestSlope tells growth from noise.
func TestSlope(t *testing.T) {
	t.Parallel()
	for _, grows := range []float64{0, 20, -20} {
		growth, margin, ok := of(use(grows), 0, 0)[0].slope()
		if !ok || growth < grows-margin || growth > grows+margin || margin > 10 {
			t.Errorf("growth by %g an hour is measured as %g ± %g", grows, growth, margin)
		}
	}
	if _, _, ok := of(use(0)[:20], 0, 0)[0].slope(); ok {
		t.Error("twenty samples are enough")
	}
	if all := of(use(0), 1, 0); len(all) != 0 {
		t.Errorf("a quantity that is not known has %d series", len(all))
	}
	if s := of(use(0), 3, 30*time.Minute)[0]; len(s.x) != 360 {
		t.Errorf("half an hour has %d samples", len(s.x))
	}
}

// TestReport says what grows, and plots it.
func TestReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report(&out, use(20), 0)
	if text := out.String(); strings.Count(text, "grows") != 1 || strings.Count(text, "does not differ from zero") != 1 {
		t.Errorf("reported %s", text)
	}
	d := xml.NewDecoder(strings.NewReader(plot(use(20))))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d lines are plotted", lines)
	}
}
