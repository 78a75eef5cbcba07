package dbtest_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTestHasItsOwn(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			want := []byte(t.Name())
			if err := db.InsertSettingOnce(t.Context(), dbsqlc.InsertSettingOnceParams{Key: "k", Value: want}); err != nil {
				t.Fatal(err)
			}
			got, err := db.GetSetting(t.Context(), "k")
			if err != nil || string(got) != string(want) {
				t.Errorf("setting: got %q, %v, want %q: databases are shared", got, err, want)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		dbtest.New(b)
	}
}
