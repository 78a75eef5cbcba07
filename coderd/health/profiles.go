package health

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// maxProfiled bounds how long a profile of the processor is recorded, in seconds: it costs all requests some time.
const maxProfiled = 30

// profile answers with a profile of this process, as "go tool pprof" reads it: GET …/debug/pprof/{profile}. Profiles
// have names of functions, and no content of the memory.
func (s *Service) profile(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("profile")
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", "attachment; filename="+strconv.Quote(name+".pb.gz"))
	httpapi.NoStore(h)
	switch {
	case name == sdk.CPUProfile:
		return recordCPU(w, r)
	case !slices.Contains(sdk.Profiles, name):
		h.Del("Content-Disposition")
		return fault.New(fault.NotFound, "There is no such profile.").
			WithDetail("Profiles are: %v.", append([]string{sdk.CPUProfile}, sdk.Profiles...))
	case name == "heap":
		runtime.GC() // what is garbage is not in use
	}
	w.WriteHeader(http.StatusOK)
	if err := pprof.Lookup(name).WriteTo(w, 0); err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return nil
}

// recordCPU answers with what the processor does in the next seconds, or until the caller leaves.
func recordCPU(w http.ResponseWriter, r *http.Request) error {
	seconds := 10
	if text := r.URL.Query().Get("seconds"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 || seconds > maxProfiled {
			w.Header().Del("Content-Disposition")
			return fault.New(fault.Invalid, "The query parameter seconds cannot be %q.", text).
				WithField("seconds", "must be 1 to 30")
		}
	}
	if err := pprof.StartCPUProfile(w); err != nil {
		w.Header().Del("Content-Disposition")
		return fault.New(fault.Conflict, "This server is being profiled already.").
			WithDetail("Try again in 30 seconds.")
	}
	defer pprof.StopCPUProfile()
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil { // the answer begins now
		return fmt.Errorf("begin answer: %w", err)
	}
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return nil
}
