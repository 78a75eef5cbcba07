package templates

import (
	"fmt"
	"math/rand/v2"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/lazyregexp"
)

var (
	templateName = lazyregexp.New(`^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$`)
	versionName  = lazyregexp.New(`^[a-zA-Z0-9]+([_.-][a-zA-Z0-9]+)*$`)
)

// Limits of what people enter, in bytes.
const (
	maxTemplateName = 32
	maxVersionName  = 64
	maxDisplayName  = 64
	maxDescription  = 128 << 10
	maxIcon         = 256
	maxMessage      = 1 << 20
)

// CheckName returns a fault if a template cannot have the name.
func CheckName(name string) error {
	if len(name) > maxTemplateName || !templateName().MatchString(name) {
		return fault.New(fault.Invalid, "%q is not a valid template name.", name).
			WithField("name", fmt.Sprintf("must be letters and digits with single hyphens or underscores between them, at most %d", maxTemplateName))
	}
	return nil
}

// CheckVersionName returns a fault if a version cannot have the name.
func CheckVersionName(name string) error {
	if len(name) > maxVersionName || !versionName().MatchString(name) {
		return fault.New(fault.Invalid, "%q is not a valid name for a template version.", name).
			WithField("name", fmt.Sprintf("must be letters and digits with single hyphens, dots or underscores between them, at most %d", maxVersionName))
	}
	return nil
}

var (
	firstWords = []string{
		"amber", "brave", "brisk", "calm", "clear", "clever", "cosmic", "crisp", "daring", "eager", "early", "fair", "fancy", "fleet",
		"fresh", "gentle", "golden", "grand", "happy", "honest", "humble", "jolly", "keen", "kind", "light", "lively", "lucid", "lucky",
		"mellow", "merry", "mighty", "modest", "neat", "nimble", "noble", "patient", "plain", "polite", "proud", "quick", "quiet", "rapid",
		"ready", "rustic", "sharp", "shiny", "silent", "silver", "simple", "sleek", "smooth", "snowy", "solid", "steady", "sunny", "swift",
		"tidy", "tranquil", "upbeat", "vivid", "warm", "wise", "witty", "young",
	}
	secondWords = []string{
		"acorn", "badger", "beacon", "birch", "bison", "breeze", "brook", "canyon", "cedar", "comet", "coral", "crane", "creek", "dolphin",
		"dune", "eagle", "ember", "falcon", "fern", "finch", "fjord", "forest", "fox", "garnet", "glacier", "harbor", "hazel", "heron",
		"island", "ivy", "jasper", "juniper", "kestrel", "lagoon", "lark", "lynx", "maple", "marsh", "meadow", "meteor", "moss", "nebula",
		"oak", "orchid", "osprey", "otter", "owl", "pebble", "pine", "planet", "puffin", "quartz", "raven", "reef", "ridge", "river",
		"sparrow", "spruce", "summit", "thistle", "tundra", "valley", "willow", "wren",
	}
)

// newVersionName returns a name for a version without one: two words and two digits, one of 409 600.
func newVersionName() string {
	return fmt.Sprintf("%s_%s%02d", firstWords[rand.N(len(firstWords))], secondWords[rand.N(len(secondWords))],
		rand.N(100))
}
