package sqltest

import (
	"fmt"
	"os"
	"time"
)

// Server is a private server, which a test may kill and start again.
type Server struct {
	kind *Kind
	*server
	gone chan error // how the process has ended
}

// Serve starts an empty server that listens at host:port. What a killed process has written is kept, what a machine
// without power would have written is not.
func (k *Kind) Serve(listen string) (*Server, error) {
	paths, err := k.paths()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", k.name, err)
	}
	s := &Server{kind: k, server: &server{listen: listen}}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if _, err := s.begin(k, paths); err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: %w", k.name, err)
	}
	s.watch()
	return s, nil
}

// Database makes a database, and returns its URL.
func (s *Server) Database(name string) (string, error) {
	db, err := s.kind.open(s.url.String())
	if err != nil {
		return "", err
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		return "", err
	}
	u := *s.url
	u.Path = "/" + name
	return u.String(), nil
}

// PID is the current process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

func (s *Server) watch() {
	gone, cmd := make(chan error, 1), s.cmd
	s.gone = gone
	go func() { gone <- cmd.Wait(); close(gone) }()
}

// Kill is kill -9. It returns when the process is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	for range s.gone {
	}
}

// Again starts it again, and waits until it answers. What its first process has left behind may delay the next for a
// moment.
func (s *Server) Again() (err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = s.run(); err != nil {
			continue
		}
		s.watch()
		answers := make(chan error, 1)
		go func() { answers <- s.await(s.kind.open) }()
		select {
		case err = <-s.gone:
			err = fmt.Errorf("%s ended at once: %w", s.kind.name, err)
		case err = <-answers:
			return err
		}
	}
	return err
}

// Stop stops it and removes its files.
func (s *Server) Stop() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}
