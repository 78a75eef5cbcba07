package provisioners

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestNewestJobs checks that the list goes on after the most jobs that one answer has.
func TestNewestJobs(t *testing.T) {
	t.Parallel()
	const all = 2101
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		if limit < 1 || limit > 1000 {
			http.Error(w, `{"message": "the server refuses this limit"}`, http.StatusBadRequest)
			return
		}
		page := make([]sdk.ProvisionerJob, max(0, min(limit, all-offset)))
		for i := range page {
			page[i].ID, page[i].QueuePosition = uuid.New(), offset+i
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
	for wanted, want := range map[int]int{0: all, 1: 1, 50: 50, 1000: 1000, 1500: 1500, all - 1: all - 1, all: all, 5000: all} {
		jobs, more, err := newestJobs(t.Context(), client, uuid.Nil.String(), sdk.JobsQuery{}, wanted)
		if err != nil || len(jobs) != want || more != (want < all) {
			t.Errorf("%d wanted: %d jobs, more %v, %v; want %d", wanted, len(jobs), more, err, want)
			continue
		}
		for i, j := range jobs {
			if j.QueuePosition != i {
				t.Fatalf("%d wanted: job %d is the server's %d", wanted, i, j.QueuePosition)
			}
		}
	}
}
