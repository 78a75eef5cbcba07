package terminal

import (
	"encoding/json"

	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

func parseSize(payload []byte) (ptywire.Size, bool) {
	var size ptywire.Size
	err := json.Unmarshal(payload, &size)
	return size, err == nil && size.Height > 0 && size.Width > 0
}
