package coderd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/codermesh/codermesh/v2/coderd/mesh"
	"github.com/codermesh/codermesh/v2/provisionerd"
)

// startBuiltIn starts the built-in provisioners: nodes of the mesh like any other, that dial out to this server.
func (s *Server) startBuiltIn() error {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	for i, executor := range s.opts.Executors {
		// A provisioner's id follows from its name. Servers on one host differ in their ports, servers in containers in
		// their hosts.
		name := mesh.BuiltInName(fmt.Sprintf("%d@%.40s:%s", i, host, s.replicaURL().Port()))
		header := s.Mesh.BuiltInHeader(name)
		member, err := provisionerd.Join(provisionerd.RunOptions{
			Options: provisionerd.Options{
				Logger: s.log, Name: name, StateDir: filepath.Join(s.opts.StateDir, fmt.Sprint(i)), Executor: executor,
				Tracer: s.opts.Tracer,
			},
			URL:    s.Mesh.LocalURL(),
			Header: func(context.Context) (http.Header, error) { return header.Clone(), nil },
		})
		if err != nil {
			return fmt.Errorf("start built-in provisioner: %w", err)
		}
		s.builtIn = append(s.builtIn, member)
		s.running.Go(func() {
			<-member.Done()
			if err := member.Err(); err != nil {
				s.fail(fmt.Errorf("built-in provisioner %s: %w", name, err))
			}
		})
	}
	return nil
}

// stopBuiltIn drains the built-in provisioners, all at once. When ctx ends their jobs are interrupted.
func (s *Server) stopBuiltIn(ctx context.Context) error {
	errs := make([]error, len(s.builtIn))
	var stopping sync.WaitGroup
	for i, member := range s.builtIn {
		stopping.Go(func() { errs[i] = member.Stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}
