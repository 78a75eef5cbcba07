package layout_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const decisionsFolder = "docs/decisions/"

var (
	decisionRow   = regexp.MustCompile(`(?m)^\| (\d+) \| \[([^\]]+)\]\(([^)]+)\) \| ([^|]+) \| ([^|]*)\|$`)
	decisionTitle = regexp.MustCompile(`^# (\d+)\. (.+)\n`)
	successorLink = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// checkDecisions compares the list of decisions with their pages, by path, and returns what differs. Each row has the number, the title and
// the successor of its page, and the rows are in the order of the numbers.
func checkDecisions(all map[string]string) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	listed := map[string]bool{}
	before := 0
	for _, row := range decisionRow.FindAllStringSubmatch(all[decisionsFolder+"README.md"], -1) {
		file, successor := row[3], strings.TrimSpace(row[5])
		listed[file] = true
		number, err := strconv.Atoi(row[1])
		if err != nil || number <= before {
			report("the list has %s after %d", row[1], before)
		}
		before = number
		page := all[decisionsFolder+file]
		title := decisionTitle.FindStringSubmatch(page)
		if title == nil {
			report("the list has %s, which is no page with a number and a title", file)
			continue
		}
		if title[1] != row[1] || title[2] != row[2] || !strings.HasPrefix(file, fmt.Sprintf("%04d-", number)) {
			report("the list calls %s %q, number %s", file, row[2], row[1])
		}
		whole := successor != "" && !strings.HasPrefix(successor, "in part by ")
		if replaced.MatchString(page) != whole {
			report("the list says that %s is superseded by %q, and its page does not agree", file, successor)
		}
		if link := successorLink.FindStringSubmatch(successor); successor != "" && (link == nil || !strings.Contains(page, "]("+link[1]+")")) {
			report("%s does not name its successor %s", file, successor)
		}
	}
	for name := range all {
		if file := path.Base(name); path.Dir(name)+"/" == decisionsFolder && file != "README.md" && !listed[file] {
			report("the list lacks %s", file)
		}
	}
	return wrong
}

// TestDecisionsAreListed: docs/decisions/README.md lists every decision.
func TestDecisionsAreListed(t *testing.T) {
	t.Parallel()
	for _, wrong := range checkDecisions(pages(t)) {
		t.Error(wrong)
	}
	got := checkDecisions(map[string]string{
		"docs/decisions/README.md": "| 2 | [Two](0002-two.md) | x | |\n| 1 | [Won](0001-one.md) | x | |\n| 4 | [Gone](0004-gone.md) | x | |\n" +
			"| 5 | [Five](0005-five.md) | x | [2](0002-two.md) |\n| 6 | [Six](0006-six.md) | x | |\n| 7 | [Seven](0007-seven.md) | x | in part by [2](0002-two.md) |\n",
		"docs/decisions/0001-one.md":    "# 1. One\n",
		"docs/decisions/0002-two.md":    "# 2. Two\n",
		"docs/decisions/0003-three.md":  "# 3. Three\n",
		"docs/decisions/0005-five.md":   "# 5. Five\n\n**Replaced** by [decision 1](0001-one.md).\n",
		"docs/decisions/0006-six.md":    "# 6. Six\n\n**Replaced** by [decision 2](0002-two.md).\n",
		"docs/decisions/0007-seven.md":  "# 7. Seven\n",
		"docs/decisions.md":             "# Not in the folder\n",
		"docs/decisions/deep/0008-x.md": "# 8. Not in the folder either\n",
	})
	want := []string{
		"the list has 1 after 2",
		`the list calls 0001-one.md "Won", number 1`,
		"the list has 0004-gone.md, which is no page with a number and a title",
		"0005-five.md does not name its successor [2](0002-two.md)",
		`the list says that 0006-six.md is superseded by "", and its page does not agree`,
		"0007-seven.md does not name its successor in part by [2](0002-two.md)",
		"the list lacks 0003-three.md",
	}
	if !slices.Equal(got, want) {
		t.Errorf("checkDecisions finds %q, want %q", got, want)
	}
}
