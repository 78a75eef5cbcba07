package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// documented returns the configuration of a load balancer, nginx or HAProxy, from a page of the documentation: it
// listens at an address, and leads to the given servers instead of the documented ones, whose addresses begin with
// prefix.
func documented(t *testing.T, page, program, listen, prefix string, servers ...string) string {
	t.Helper()
	data, err := os.ReadFile("../docs/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "<!-- "+program+" -->\n```"+program+"\n")
	text, _, ok := strings.Cut(text, "```\n<!-- end -->")
	addresses := [][2]string{{"listen 80;", "listen " + listen + ";"}, {"bind :80\n", "bind " + listen + "\n"}}
	addresses = slices.DeleteFunc(addresses, func(a [2]string) bool { return !strings.Contains(text, a[0]) })
	ok = ok && len(addresses) == 1
	for i, server := range servers {
		addresses = append(addresses, [2]string{fmt.Sprintf("%s%d:3000", prefix, i+1), server})
	}
	for _, a := range addresses {
		ok = ok && strings.Count(text, a[0]) == 1
		text = strings.Replace(text, a[0], a[1], 1)
	}
	if !ok {
		t.Fatalf("docs/%s.md has no configuration of %s for %d servers", page, program, len(servers))
	}
	return text
}

// frontArgs returns the arguments with which a load balancer runs in the foreground, with a configuration and its other
// files in dir, which it makes.
func frontArgs(t *testing.T, dir, program, config string) []string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-db", "-f", filepath.Join(dir, "conf")}
	if program == "nginx" {
		account := ""
		if os.Geteuid() == 0 {
			account = "user root;\n"
		}
		temp := ""
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
		}
		config = fmt.Sprintf("%sdaemon off; worker_processes 2; pid %[2]s/pid; error_log %[2]s/log;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", account, dir, temp, config)
		args = []string{"-c", filepath.Join(dir, "conf"), "-p", dir}
	}
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return args
}
