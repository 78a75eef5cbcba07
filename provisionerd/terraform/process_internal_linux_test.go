package terraform

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
)

// TestOfferedProcessIsOwned: a socket that cannot be given to the job is not offered. The abstract socket here has no file whose mode could
// be set.
func TestOfferedProcessIsOwned(t *testing.T) {
	t.Parallel()
	s := &slot{dir: "@" + filepath.Base(t.TempDir()) + t.Name()}
	p, err := s.serveProcess(uuid.New())
	if p != nil {
		s.process = p
		if err := s.closeProcess(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("offered a socket without a mode: %v", err)
	}

	s = &slot{dir: t.TempDir()}
	if s.process, err = s.serveProcess(uuid.New()); err != nil {
		t.Fatalf("offer a socket: %v", err)
	}
	if err := s.closeProcess(); err != nil {
		t.Error(err)
	}
}
