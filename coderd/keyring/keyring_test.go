package keyring_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// text returns the nth key as operators write it.
func text(n byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)) }

func ring(t *testing.T, numbers ...byte) *keyring.Ring {
	t.Helper()
	var words []string
	for _, n := range numbers {
		words = append(words, text(n))
	}
	r, err := keyring.Parse(strings.Join(words, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	workspace, state := uuid.New(), []byte(`{"resources": ["a password"]}`)
	sealed := ring(t, 1).Seal(workspace, state)
	if bytes.Contains(sealed, []byte("password")) {
		t.Error("the state can be read")
	}
	if again := ring(t, 1).Seal(workspace, state); bytes.Equal(again, sealed) {
		t.Error("the same state looks the same")
	}
	for name, c := range map[string]struct {
		ring      *keyring.Ring
		workspace uuid.UUID
		stored    []byte
		want      string
		says      string // part of the error
	}{
		"the key":             {ring(t, 1), workspace, sealed, string(state), ""},
		"a second key":        {ring(t, 2, 1), workspace, sealed, string(state), ""},
		"another key":         {ring(t, 2), workspace, sealed, "", "does not have"},
		"another workspace":   {ring(t, 1), uuid.New(), sealed, "", "another workspace"},
		"cut off":             {ring(t, 1), workspace, sealed[:len(sealed)-1], "", "damaged"},
		"the header alone":    {ring(t, 1), workspace, sealed[:7], "", "damaged"},
		"changed":             {ring(t, 1), workspace, append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1), "", "damaged"},
		"never encrypted":     {ring(t, 1), workspace, state, string(state), ""},
		"nothing":             {ring(t, 1), workspace, ring(t, 1).Seal(workspace, nil), "", ""},
		"by an older release": {ring(t, 1), workspace, []byte("{}"), "{}", ""},
	} {
		got, err := c.ring.Open(c.workspace, c.stored)
		if string(got) != c.want || (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %q, %v; want %q, an error with %q", name, got, err, c.want, c.says)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		good bool
	}{
		"one":           {text(1) + "\n", true},
		"several":       {text(1) + "," + text(2) + "\n\t" + text(3), true},
		"none":          {" \n", false},
		"too short":     {base64.StdEncoding.EncodeToString([]byte("short")), false},
		"not base64":    {"a password", false},
		"the same once": {text(1) + " " + text(1), false},
	} {
		if _, err := keyring.Parse(c.text); (err == nil) != c.good || err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := keyring.Parse(c.text); err != nil && strings.Contains(err.Error(), strings.TrimSpace(c.text)) && strings.TrimSpace(c.text) != "" {
			t.Errorf("%s: the error tells the key: %v", name, err)
		}
	}
}

func TestReadOrMake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "below", "state.key")
	if _, err := keyring.Read(path); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a file that is not there: %v", err)
	}
	workspace := uuid.New()
	var first *keyring.Ring
	makers := 0
	var mu sync.Mutex
	var racing sync.WaitGroup
	for range 8 { // the first one creates the file, the others read it or ask for a restart
		racing.Go(func() {
			r, keep, err := keyring.ReadOrMake(path)
			if err == nil && keep != nil {
				if err = keep(); fault.CodeOf(err) == fault.Conflict {
					r, keep, err = keyring.ReadOrMake(path)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			if keep != nil {
				makers++
			}
			if first == nil {
				first = r
			}
			if got, err := r.Open(workspace, first.Seal(workspace, []byte("x"))); err != nil || string(got) != "x" {
				t.Errorf("two keys were made: %v", err)
			}
		})
	}
	racing.Wait()
	if makers != 1 {
		t.Errorf("%d made it, want 1", makers)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(path + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, keep, err := keyring.ReadOrMake(path); keep != nil || fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a file without a key: made %t, %v", keep != nil, err)
	}
	// A start that fails before the key is kept leaves none.
	unused := filepath.Join(t.TempDir(), "state.key")
	if _, keep, err := keyring.ReadOrMake(unused); keep == nil || err != nil {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(unused); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before the key is kept: %v", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Error("the operator's file was removed")
	}
}

func FuzzOpen(f *testing.F) {
	key, err := keyring.Parse(text(1))
	if err != nil {
		f.Fatal(err)
	}
	workspace := uuid.New()
	f.Add(key.Seal(workspace, []byte("{}")))
	f.Add([]byte("\x00cms\x01"))
	f.Fuzz(func(t *testing.T, stored []byte) {
		got, err := key.Open(workspace, stored)
		if err == nil && bytes.HasPrefix(stored, []byte("\x00cms\x01")) {
			if again, err := key.Open(workspace, key.Seal(workspace, got)); err != nil || !bytes.Equal(again, got) {
				t.Errorf("%q does not come back: %v", got, err)
			}
		}
	})
}

// builds holds the states of workspaces with one build each, without the rows that the schema requires around them.
type builds struct {
	t  *testing.T
	db *database.DB
}

func newBuilds(t *testing.T) *builds {
	t.Helper()
	return &builds{t, dbtest.New(t)}
}

func (b *builds) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// add stores a build of a workspace with the state exactly as given.
func (b *builds) add(workspace uuid.UUID, state []byte) uuid.UUID {
	b.t.Helper()
	id, user, file, template, version, job := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	name := "n" + strings.ReplaceAll(id.String(), "-", "")[:20]
	tx, err := b.db.Pool.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	defer tx.Rollback(b.t.Context())
	for _, s := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO users (id, username, email) VALUES ($1, $2, $2 || '@example.com')`, []any{user, name}},
		{`INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES ($1, $2, 'application/x-tar', '', $3)`, []any{file, name, user}},
		{`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id) SELECT unnest($1::uuid[]), id, $2, 'workspace_build', $3 FROM organizations`, []any{[]uuid.UUID{job, version}, user, file}},
		{`INSERT INTO templates (id, organization_id, name, active_version_id, created_by) SELECT $1, id, $2, $3, $4 FROM organizations`, []any{template, name, version, user}},
		{`INSERT INTO template_versions (id, organization_id, template_id, job_id, name, created_by) SELECT $1, id, $2, $1, $3, $4 FROM organizations`, []any{version, template, name, user}},
		{`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) SELECT $1, id, $2, $3, $4 FROM organizations`, []any{workspace, user, template, name}},
		{`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id, state) VALUES ($1, $2, 1, $3, $4, 'start', $5, $6)`,
			[]any{id, workspace, version, job, user, state}},
	} {
		if _, err := tx.Exec(b.t.Context(), s.sql, s.args...); err != nil {
			b.t.Fatalf("%s: %v", s.sql, err)
		}
	}
	if err := tx.Commit(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *builds) state(id uuid.UUID) []byte {
	b.t.Helper()
	state, err := b.db.GetBuildState(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return state
}

// TestRotation checks that keys change without losing a state, whatever state a row is in.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	old, both, fresh := ring(t, 1), ring(t, 2, 1), ring(t, 2)
	workspaces := map[string]uuid.UUID{"plain": uuid.New(), "old": uuid.New(), "new": uuid.New(), "empty": uuid.New(), "damaged": uuid.New()}
	broken := old.Seal(uuid.New(), []byte("of another workspace"))
	ids := map[string]uuid.UUID{
		"plain":   b.add(workspaces["plain"], []byte(`{"from": "an older release"}`)),
		"old":     b.add(workspaces["old"], old.Seal(workspaces["old"], []byte("old"))),
		"new":     b.add(workspaces["new"], fresh.Seal(workspaces["new"], []byte("new"))),
		"empty":   b.add(workspaces["empty"], []byte{}),
		"damaged": b.add(workspaces["damaged"], broken),
	}
	// The old key alone lacks one, and the error names it.
	err := old.Check(t.Context(), b.db)
	if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "(states: 1)") || !strings.Contains(err.Error(), "Nothing was changed") {
		t.Errorf("check with a key missing: %v", err)
	}
	if err := both.Check(t.Context(), b.db); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again is harmless
		rotate(t, b, both)
	}
	for name, want := range map[string]string{"plain": `{"from": "an older release"}`, "old": "old", "new": "new", "empty": ""} {
		if got, err := fresh.Open(workspaces[name], b.state(ids[name])); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
	if got := b.state(ids["damaged"]); !bytes.Equal(got, broken) {
		t.Error("what could not be read was replaced")
	}
	if got := b.state(ids["plain"]); bytes.Contains(got, []byte("release")) {
		t.Error("the old release's state is still readable")
	}
	b.exec("UPDATE workspace_builds SET state = '' WHERE id = $1", ids["damaged"])
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Errorf("the old key is still needed: %v", err)
	}
}

// BenchmarkSeal measures what encryption adds to a checkpoint.
func BenchmarkSeal(b *testing.B) {
	key := coderdtest.Keyring(b)
	workspace := uuid.New()
	for _, size := range []int{50 << 10, 5 << 20} {
		state := bytes.Repeat([]byte("x"), size)
		b.Run(fmt.Sprint(size>>10, " KiB"), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				if got, err := key.Open(workspace, key.Seal(workspace, state)); err != nil || len(got) != size {
					b.Fatal(err)
				}
			}
		})
	}
}
