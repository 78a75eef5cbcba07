package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRequest sends an HTTP request as programs without our client do: with the content of a file as bearer token. It compares the status;
// the answer's body is the standard output.
func cmdRequest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || len(args) > 5 {
		ts.Fatalf("usage: request STATUS TOKEN-FILE|- METHOD PATH [BODY]")
	}
	srv := ts.Value("server").(*server)
	var body io.Reader
	if len(args) == 5 {
		body = strings.NewReader(args[4])
	}
	req, err := http.NewRequest(args[2], srv.url()+args[3], body)
	ts.Check(err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if args[1] != "-" {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(args[1])))
	}
	resp, err := srv.web.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", text)
	if fmt.Sprint(resp.StatusCode) != args[0] {
		ts.Fatalf("%s %s: status %d, want %s: %s", args[2], args[3], resp.StatusCode, args[0], text)
	}
}

// cmdKeep keeps a member of the JSON object on the standard output of the command before in a variable of the script.
func cmdKeep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keep VARIABLE MEMBER")
	}
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &object))
	value, is := object[args[1]].(string)
	if !is {
		ts.Fatalf("the answer has no text %q", args[1])
	}
	ts.Setenv(args[0], value)
}
