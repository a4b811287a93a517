//go:build !linux

package backend

import (
	"errors"
	"os"
	"syscall"
)

// Elsewhere, no server is started: see the package comment.

const canStart = false

type account struct{ uid, gid int }

type process struct {
	pid   int
	ended chan struct{}
	state *os.ProcessState
}

func startProcess([]string, string, *account) (*process, error) { return nil, errors.ErrUnsupported }
func runToEnd([]string, string, *account) error                 { return errors.ErrUnsupported }
func unprivileged(...string) (*account, error)                  { return nil, errors.ErrUnsupported }

func (*process) signal(syscall.Signal) {}
func (*process) kill() error           { return errors.ErrUnsupported }
func (*process) freeze() error         { return errors.ErrUnsupported }
func (*process) thaw()                 {}
