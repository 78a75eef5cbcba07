package keyring

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

// notSealed are the columns of bytes that the keys do not encrypt, and why.
var notSealed = map[string]string{
	"api_keys.secret_hash":                "a hash",
	"app_codes.hash":                      "a hash",
	"creation_keys.key_hash":              "a hash of random text",
	"creation_keys.request_hash":          "an HMAC with the key, which is not stored",
	"files.data":                          "templates, which their readers may read",
	"forgotten_state_keys.key_id":         "ids of keys",
	"login_requests.secret_hash":          "a hash",
	"one_time_passcodes.hash":             "a hash",
	"prebuilt_workspaces.claim_plan":      "what agents get, without tokens; workspace_agents has it as it is, too",
	"provisioner_job_changes.digest":      "a hash of an address",
	"provisioner_keys.secret_hash":        "a hash",
	"user_devices.public_key":             "public keys",
	"user_ssh_keys.public_key":            "public keys",
	"workspace_agents.token_hash":         "a hash",
	"workspace_agents.offline_token_hash": "a hash",
	"workspace_agents.return_token_hash":  "a hash",
	"workspace_builds.state_key":          "the key's id, which the database copies from the state",
	"workspace_proxies.token_hash":        "a hash",
}

// TestKindsAreComplete checks that every column that may hold encrypted values is one of a kind, so that it follows a new key. A new
// column of bytes must be named here or in kinds.
func TestKindsAreComplete(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	rows, err := db.Pool.Query(t.Context(), `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = current_schema() AND data_type = 'bytea' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(columns) == 0 {
		t.Fatal("the schema has no columns of bytes")
	}
	var sealed []string
	for _, k := range kinds {
		sealed = append(sealed, k.column)
		if k.Kind == "" || k.reseal == nil || !slices.Contains(columns, k.column) {
			t.Errorf("the kind %q is incomplete: column %q", k.Kind, k.column)
		}
	}
	for _, column := range columns {
		_, plain := notSealed[column]
		if plain == slices.Contains(sealed, column) {
			t.Errorf("%s: either kinds or notSealed must name it", column)
		}
	}
	for column := range notSealed {
		if !slices.Contains(columns, column) {
			t.Errorf("notSealed names %s, which the schema does not have", column)
		}
	}
}
