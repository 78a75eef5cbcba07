package account

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestManyDeliveries checks that a list goes on after the most deliveries that one answer has.
func TestManyDeliveries(t *testing.T) {
	t.Parallel()
	const all = 231 // their ids are 1 to 231
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		next, _ := strconv.ParseInt(r.URL.Query().Get("before"), 10, 64)
		if limit > 100 {
			http.Error(w, `{"message": "too many"}`, http.StatusBadRequest)
			return
		}
		if next == 0 {
			next = all + 1
		}
		page := []sdk.WebhookDelivery{}
		for next--; next > 0 && len(page) < limit; next-- {
			page = append(page, sdk.WebhookDelivery{ID: next})
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(at, "", sdk.Options{})
	defer client.HTTP().CloseIdleConnections()
	for most, want := range map[int]int{math.MaxInt: all, 0: 0, 25: 25, 100: 100, 101: 101} {
		list, err := listDeliveries(t.Context(), client, uuid.New(), most, 0)
		if err != nil || len(list) != want {
			t.Errorf("at most %d: %d deliveries, %v; want %d", most, len(list), err, want)
		}
		for i, d := range list {
			if d.ID != int64(all-i) {
				t.Fatalf("at most %d: delivery %d has the id %d", most, i, d.ID)
			}
		}
	}
	if list, err := listDeliveries(t.Context(), client, uuid.New(), 101, 130); err != nil || len(list) != 101 ||
		list[0].ID != 129 {
		t.Errorf("before 130: %d deliveries, %v", len(list), err)
	}
	if _, err := listDeliveries(t.Context(), client, uuid.New(), -1, 0); err == nil {
		t.Error("a negative limit is accepted")
	}
}
