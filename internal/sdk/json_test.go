package sdk_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// answers are examples of what the API sends, one of each kind that contains lists, maps, times, raw JSON or pointers.
var answers = []any{
	sdk.WorkspacesResponse{}, sdk.Workspace{}, sdk.WorkspaceBuild{}, sdk.WorkspaceAgent{}, sdk.Template{}, sdk.TemplateVersion{}, sdk.TemplateACL{}, sdk.WorkspaceACL{}, sdk.Group{},
	sdk.TemplateVersionParameter{}, sdk.EvaluateParametersResponse{}, sdk.Preset{}, sdk.ProvisionerJob{}, sdk.ProvisionerDaemon{}, sdk.JobLog{},
	sdk.User{}, sdk.UsersResponse{}, sdk.Entitlements{}, sdk.ListeningPorts{}, sdk.BuildTimings{}, sdk.Response{}, sdk.APIKey{},
	[]sdk.WorkspaceBuild{}, []sdk.Workspace(nil), sdk.List[sdk.WorkspaceResource]{}, sdk.List[string](nil), sdk.Map[sdk.List[string]]{"b": nil, "a": {"<&>\u2028"}},
	map[string]any{"b": 1.5, "a": []any{nil, true, "\x7f\xff"}}, json.RawMessage(` {"a" : 1}`), "text", 12, nil,
}

// TestEncodeIsEncodingJSON: Encode writes what encoding/json does, whatever the values are, except for the escapes of characters that need
// none: those are the same to every reader.
func TestEncodeIsEncodingJSON(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, zero := range answers {
		values := []any{zero}
		if zero != nil {
			for range 20 {
				v := reflect.New(reflect.TypeOf(zero)).Elem()
				fillRandom(random, v, 0)
				values = append(values, v.Interface())
			}
		}
		for _, v := range values {
			var got, want bytes.Buffer
			if err := sdk.Encode(&got, v); err != nil {
				t.Fatalf("%T: %v", v, err)
			}
			plain := json.NewEncoder(&want)
			if err := plain.Encode(v); err != nil {
				t.Fatal(err)
			}
			var escaped bytes.Buffer
			json.HTMLEscape(&escaped, got.Bytes())
			if diff := cmp.Diff(strings.ReplaceAll(want.String(), `\ufffd`, "\ufffd"), escaped.String()); diff != "" {
				t.Fatalf("%T (-want +got):\n%s", v, diff)
			}
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for _, v := range []any{make(chan int), sdk.List[func()]{nil}, sdk.Map[chan int]{"a": nil}, json.RawMessage("{")} {
		if err := sdk.Encode(&bytes.Buffer{}, v); err == nil {
			t.Errorf("%T was encoded", v)
		}
	}
}

// fillRandom randomly sets everything in v that JSON can carry, or leaves it as it is.
func fillRandom(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<33), r.Int64N(1e9)).UTC()))
		return
	case uuid.UUID:
		v.Set(reflect.ValueOf(uuid.New()))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"z": [1, 2.50, "<b>"], "a":null}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"", "plain", "<b>&\"\\\n\u2028", "\xff\x00é"}[r.IntN(4)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(1<<31) - 1<<30)
	case reflect.Float64:
		v.SetFloat(r.NormFloat64() * 1e9)
	case reflect.Pointer:
		if r.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillRandom(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		for range max(0, r.IntN(4)-depth/3) {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			fillRandom(r, v.Index(v.Len()-1), depth+1)
		}
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String || r.IntN(3) == 0 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"b", "a", "Z<"}[:r.IntN(4)] {
			value := reflect.New(v.Type().Elem()).Elem()
			fillRandom(r, value, depth+1)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillRandom(r, v.Field(i), depth+1)
			}
		}
	}
}
