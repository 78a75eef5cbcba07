package templates_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func archive(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const dynamicSource = `
data "coder_parameter" "cpus" {
  name = "cpus"
}
data "coder_parameter" "zone" {
  name    = "zone"
  default = data.coder_parameter.cpus.value
}
data "coder_parameter" "gpu" {
  count = data.coder_parameter.cpus.value > 4 ? 1 : 0
  name  = "gpu"
}
`

// zones answers like dynamicSource: many processors are in zone b only, and may have a GPU.
func zones(q templates.Question) (templates.Answer, error) {
	a := templates.Answer{Values: map[string]string{"cpus": "2", "zone": "a"}, Refused: map[string]string{}}
	zone := "a"
	for _, v := range q.Parameters {
		if v.GetName() == "cpus" {
			a.Values["cpus"] = v.GetValue()
		}
		if v.GetName() == "cpus" && v.GetValue() == "8" {
			zone = "b"
			a.Values["zone"] = "b"
			a.Parameters = append(a.Parameters, &provisionerpb.Parameter{Name: "gpu", Type: "bool", Order: 3, DefaultValue: "false", Styling: `{"label":"GPU"}`})
		}
	}
	for _, v := range q.Parameters {
		if v.GetName() == "zone" && v.GetValue() != zone {
			a.Refused["zone"] = "must be one of " + zone
		}
	}
	a.Parameters = append(a.Parameters,
		&provisionerpb.Parameter{Name: "cpus", Type: "number", Order: 1, DefaultValue: "2", Validation: &provisionerpb.ParameterValidation{Max: ptr[int64](8)}},
		&provisionerpb.Parameter{Name: "zone", Type: "string", Order: 2, DefaultValue: zone, Options: []*provisionerpb.ParameterOption{{Name: zone, Value: zone}}},
	)
	return a, nil
}

// active returns the version of a template that is open to everyone.
func active(t *testing.T, w *coderdtest.Server) sdk.TemplateVersion {
	t.Helper()
	v, err := w.As("tom").TemplateVersion(t.Context(), w.Template("process", found()).ActiveVersionID)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func evaluate(t *testing.T, w *coderdtest.Server, user string, version uuid.UUID, inputs map[string]string) (sdk.EvaluateParametersResponse, map[string]sdk.PreviewParameter) {
	t.Helper()
	got, err := w.As(user).EvaluateParameters(t.Context(), version, sdk.EvaluateParametersRequest{ID: 7, Inputs: inputs})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]sdk.PreviewParameter{}
	for _, p := range got.Parameters {
		by[p.Name] = p
	}
	return got, by
}

func TestEvaluateDynamic(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Archive = archive(t, dynamicSource)
	asked := atomic.Int32{}
	w.Evaluate = func(q templates.Question) (templates.Answer, error) {
		asked.Add(1)
		if q.Metadata.GetOwnerName() != "ann" || q.Metadata.GetOwnerSessionToken() != "" || q.Metadata.GetOwnerSshPrivateKey() != "" {
			t.Errorf("asked with %v", q.Metadata)
		}
		if data, err := q.Source(context.Background()); err != nil || !bytes.Equal(data, w.Archive) {
			t.Errorf("the source has %d bytes, %v", len(data), err)
		}
		return zones(q)
	}
	v := active(t, w)
	got, by := evaluate(t, w, "ann", v.ID, nil)
	if got.ID != 7 || len(got.Diagnostics) != 0 || len(got.Parameters) != 2 || got.Parameters[0].Name != "cpus" || by["zone"].Value.Value != "a" || !by["zone"].Value.Valid {
		t.Errorf("the first form: %+v", got)
	}
	got, by = evaluate(t, w, "ann", v.ID, map[string]string{"cpus": "8", "zone": "a"})
	if len(got.Parameters) != 3 || by["zone"].Options[0].Value.Value != "b" || by["zone"].Value.Value != "b" || len(by["zone"].Diagnostics) != 1 ||
		by["gpu"].Value.Value != "false" || string(by["gpu"].Styling) != `{"label":"GPU"}` || string(by["cpus"].Styling) != "{}" {
		t.Errorf("another form: %+v", got)
	}
	if _, by = evaluate(t, w, "ann", v.ID, map[string]string{"cpus": "9"}); len(by["cpus"].Diagnostics) != 1 || by["cpus"].Value.Value != "9" || *by["cpus"].Validations[0].Max != 8 {
		t.Errorf("a value that is too large: %+v", by["cpus"])
	}
	before := asked.Load()
	evaluate(t, w, "ann", v.ID, map[string]string{"cpus": "8", "zone": "a"})
	if asked.Load() != before {
		t.Error("the same question was worked out twice")
	}
	// The import's parameters are marked as incomplete.
	listed, err := w.As("ann").TemplateVersionParameters(t.Context(), v.ID)
	if err != nil || len(listed) != 2 || listed[0].Dynamic || !listed[1].Dynamic {
		t.Errorf("listed: %+v, %v", listed, err)
	}
	// A workspace can be created from the values that a form offers, although the import found neither parameter.
	ws := w.Workspace("ann", "dev", *v.TemplateID, sdk.ParameterValue{Name: "cpus", Value: "8"}, sdk.ParameterValue{Name: "zone", Value: "b-2"}, sdk.ParameterValue{Name: "gpu", Value: "true"})
	values, err := w.As("ann").BuildParameters(t.Context(), ws.LatestBuild.ID)
	if err != nil || len(values) != 3 {
		t.Errorf("the workspace has %v, %v", values, err)
	}
}

func TestEvaluateTrouble(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Archive = archive(t, dynamicSource)
	v := active(t, w)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a template's mistake": {fault.New(fault.Invalid, "main.tf:3: no such thing"), "main.tf:3"},
		"time":                 {context.DeadlineExceeded, "too long"},
	} {
		w.Evaluate = func(templates.Question) (templates.Answer, error) { return templates.Answer{}, c.err }
		got, by := evaluate(t, w, "ann", v.ID, map[string]string{"cpus": "4", "case": name})
		if len(got.Diagnostics) != 1 || !strings.Contains(got.Diagnostics[0].Summary+got.Diagnostics[0].Detail, c.want) || len(by) != 2 || by["cpus"].Value.Value != "4" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w.Evaluate = func(templates.Question) (templates.Answer, error) { return templates.Answer{}, errors.New("disk full") }
	if _, err := w.As("ann").EvaluateParameters(t.Context(), v.ID, sdk.EvaluateParametersRequest{}); fault.CodeOf(err) != fault.Internal || strings.Contains(err.Error(), "disk") {
		t.Errorf("the server's own trouble: %v", err)
	}
	large := map[string]string{"cpus": strings.Repeat("x", 600<<10)}
	if _, err := w.As("ann").EvaluateParameters(t.Context(), v.ID, sdk.EvaluateParametersRequest{Inputs: large}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("too much: %v", err)
	}
	if _, err := w.As("ann").EvaluateParameters(t.Context(), v.ID, sdk.EvaluateParametersRequest{Inputs: map[string]string{"cpus": "1\x00"}}); err != nil {
		t.Errorf("a NUL is a mistake in a value and not of the request: %v", err)
	}
	// A form without dependencies is not evaluated.
	w.Archive = archive(t, "data \"coder_parameter\" \"cpus\" {\n  name = \"cpus\"\n}\n")
	fixed := w.Version(nil, found())
	w.Evaluate = func(templates.Question) (templates.Answer, error) {
		t.Error("a fixed form was worked out")
		return templates.Answer{}, nil
	}
	if _, by := evaluate(t, w, "tom", fixed.ID, map[string]string{"zone": "b"}); by["zone"].Value.Value != "b" || by["cpus"].Value.Value != "2" {
		t.Errorf("a fixed form: %+v", by)
	}
}

// TestEvaluateForOthers checks that a user cannot learn what a template reads about another user.
func TestEvaluateForOthers(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Archive = archive(t, dynamicSource)
	v := active(t, w)
	var owners []string
	w.Evaluate = func(q templates.Question) (templates.Answer, error) {
		owners = append(owners, q.Metadata.GetOwnerName())
		return zones(q)
	}
	for _, c := range []struct {
		user, owner string
		code        fault.Code
	}{{"ann", "ann", ""}, {"ann", "bob", fault.NotFound}, {"tom", "bob", fault.NotFound}, {"olga", "bob", ""}, {"ann", "", fault.NotFound}} {
		id := uuid.New()
		if c.owner != "" {
			id = w.User(c.owner)
		}
		_, err := w.As(c.user).EvaluateParameters(t.Context(), v.ID, sdk.EvaluateParametersRequest{OwnerID: id})
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s for %q: %v, want %q", c.user, c.owner, err, c.code)
		}
	}
	if !slices.Equal(owners, []string{"ann", "bob"}) {
		t.Errorf("asked for %v", owners)
	}
	if _, err := w.As("ann").EvaluateParameters(t.Context(), uuid.New(), sdk.EvaluateParametersRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a version that is not there: %v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL.JoinPath("/api/v2/templateversions/"+v.ID.String()+"/dynamic-parameters/evaluate").String(), strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("nobody: %d", resp.StatusCode)
	}
}

// TestFormSocket asks as dashboards for Coder do: the first form comes unasked, each question has an answer, and a wrong question ends nothing.
func TestFormSocket(t *testing.T) {
	t.Parallel()
	w := coderdtest.Start(t)
	w.Archive, w.Evaluate = archive(t, dynamicSource), zones
	v := active(t, w)
	dial := func(user, query string) (*websock.Conn, error) {
		at := w.URL.JoinPath("/api/v2/templateversions/" + v.ID.String() + "/dynamic-parameters")
		at.RawQuery = query
		return websock.Dial(t.Context(), at, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {w.Token(user)}}, ReadLimit: 1 << 20})
	}
	for user, query := range map[string]string{"ann": "user_id=x", "bob": "user_id=" + w.User("ann").String()} {
		if conn, err := dial(user, query); err == nil {
			conn.CloseNow()
			t.Errorf("%s with %s is answered", user, query)
		}
	}
	conn, err := dial("ann", "user_id=me")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	next := func(id, problems int, zone string) {
		t.Helper()
		var got sdk.EvaluateParametersResponse
		if err := conn.ReadJSON(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		shown := ""
		for _, p := range got.Parameters {
			if p.Name == "zone" {
				shown = p.Value.Value
			}
		}
		if got.ID != id || len(got.Diagnostics) != problems || shown != zone {
			t.Errorf("form %d has %d problems and zone %q, want %d, %d and %q", got.ID, len(got.Diagnostics), shown, id, problems, zone)
		}
	}
	ask := func(req sdk.EvaluateParametersRequest) {
		t.Helper()
		if err := conn.WriteJSON(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	next(-1, 0, "a")
	ask(sdk.EvaluateParametersRequest{ID: 1, Inputs: map[string]string{"cpus": "8"}})
	next(1, 0, "b")
	ask(sdk.EvaluateParametersRequest{ID: 2, OwnerID: w.User("bob")})
	next(2, 1, "")
	ask(sdk.EvaluateParametersRequest{ID: 3})
	next(3, 0, "a")
	w.Exec(`DELETE FROM api_keys WHERE user_id = $1`, w.User("ann"))
	if _, err := conn.Read(t.Context()); err == nil {
		t.Error("the form outlived its session")
	}
}
