package users

import (
	"fmt"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// statusDays is how many days the report of users by status has, today included.
const statusDays = 60

// statusCounts serves the number of users by status at the end of each of the last days, and now.
func (s *Service) statusCounts(w http.ResponseWriter, r *http.Request) error {
	zone, err := httpapi.Zone(r.URL.Query().Get("timezone"), r.URL.Query().Get("tz_offset"))
	if err != nil {
		return err
	}
	now := time.Now().In(zone)
	var ends []time.Time
	index := map[int64]int{} // of a day, by its end
	days := make([]time.Time, statusDays)
	for i := range statusDays {
		// A day of summer time may have 23 or 25 hours.
		days[i] = time.Date(now.Year(), now.Month(), now.Day()-statusDays+1+i, 0, 0, 0, 0, zone)
		end := time.Date(now.Year(), now.Month(), now.Day()-statusDays+2+i, 0, 0, 0, 0, zone)
		ends = append(ends, end)
		index[end.Unix()] = i
	}
	rows, err := s.db.CountUserStatuses(r.Context(), ends)
	if err != nil {
		return fmt.Errorf("count users by status: %w", err)
	}
	out := sdk.UserStatusCountsResponse{StatusCounts: sdk.Map[sdk.List[sdk.UserStatusCount]]{}}
	for _, status := range []sdk.UserStatus{sdk.UserActive, sdk.UserDormant, sdk.UserSuspended} {
		list := make(sdk.List[sdk.UserStatusCount], statusDays)
		for i, day := range days {
			list[i].Date = day
		}
		out.StatusCounts[string(status)] = list
	}
	for _, row := range rows {
		out.StatusCounts[row.Status][index[row.At.Unix()]].Count = row.Users
	}
	return httpapi.Write(w, http.StatusOK, out)
}
