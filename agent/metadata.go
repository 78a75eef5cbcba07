package agent

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/metadata"
	"github.com/codermesh/codermesh/v2/agent/script"
)

// setMetadata passes the manifest's items to the collector.
func setMetadata(c *metadata.Collector, m *agentpb.ManifestResponse) {
	var items []metadata.Item
	for _, item := range m.GetMetadata() {
		items = append(items, metadata.Item{
			Key: item.GetKey(), Script: item.GetScript(),
			Interval: time.Duration(item.GetIntervalSeconds()) * time.Second,
			Timeout:  time.Duration(item.GetTimeoutSeconds()) * time.Second,
		})
	}
	c.Set(items)
}

// metadataSpace is the namespace for ids of metadata scripts, which have none in the manifest.
var metadataSpace = uuid.MustParse("6f1c2b0e-0f55-4d3a-9b0e-52a6f3c4d1aa")

// runMetadata runs one metadata script.
func (d *daemon) runMetadata(ctx context.Context, item metadata.Item) (string, error) {
	w, m := d.current()
	return w.scripts.Output(ctx, script.Script{ID: uuid.NewSHA1(metadataSpace, []byte(item.Key)), Name: item.Key,
		Text: item.Script},
		w.scriptEnvironment(m), metadata.MaxValue*2)
}
