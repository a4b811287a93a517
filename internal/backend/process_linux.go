package backend

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const canStart = true

// account is a user whom a server runs as.
type account struct{ uid, gid int }

// unprivileged returns the first of the users that exists if we are root, else nil:
// PostgreSQL and MariaDB refuse to run as root.
func unprivileged(names ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		return &account{uid, gid}, errors.Join(err1, err2)
	}
	return nil, fmt.Errorf("there is no user among %q", names)
}

// command returns a command that runs as the account, in a directory that it can enter.
func command(argv []string, as *account) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return cmd
}

// process is a running server, with the processes that it has started.
type process struct {
	pid    int
	ended  chan struct{}
	state  *os.ProcessState // once it has ended
	frozen bool
	guard  func() // set while frozen, if there are descendants; ends what guards them
}

// startProcess starts a server that dies with this test binary. What it writes is added
// to the file log.
func startProcess(argv []string, log string, as *account) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := command(argv, as)
	cmd.Stdout, cmd.Stderr = out, out
	// A group of its own: what the terminal sends to the test is not for the server.
	cmd.SysProcAttr.Setpgid = true

	p := &process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The parent death signal is sent when the thread that started the process ends, not
		// when the last thread does. So this thread stays until the process has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the state tells the same
		p.state = cmd.ProcessState
		close(p.ended)
	}()
	return p, <-started
}

// signal sends a signal to the process itself, unless it has ended.
func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.ended: // the process ID may belong to another by now
	default:
		_ = syscall.Kill(p.pid, s)
	}
}

// kill ends the process and its descendants, and returns when they have ended. They are
// stopped first, so that none of them goes on for a while after its parent has died.
func (p *process) kill() error {
	err := p.stop()
	tree := p.tree()
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.ended
	for _, pid := range tree[min(1, len(tree)):] {
		err = errors.Join(err, await(pid, 'Z', 'X'))
	}
	p.unguard()
	return err
}

// freeze stops the process and its descendants, and returns when they have stopped.
//
// If this test binary is killed now, the process dies of the parent death signal, but its
// stopped descendants (PostgreSQL has many) would stay for ever. So a shell waits for the
// end of a pipe that we hold, and then lets them go on. They see that they are orphans,
// and leave.
func (p *process) freeze() error {
	if err := p.stop(); err != nil {
		return err
	}
	tree := p.tree()
	if p.frozen = true; p.guard != nil || len(tree) < 2 {
		return nil
	}
	args := []string{"-c", `read -r _; kill -CONT "$@"`, "sh"}
	for _, pid := range tree[1:] {
		args = append(args, strconv.Itoa(pid))
	}
	shell := exec.Command("/bin/sh", args...)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err == nil {
		p.guard = func() {
			_ = pipe.Close()
			_ = shell.Wait() // it fails if they have been killed
		}
	}
	return err
}

// stop sends SIGSTOP to the process and its descendants, and waits until they obey.
func (p *process) stop() error {
	stopped := map[int]bool{}
	for {
		more := false
		for _, pid := range p.tree() {
			if stopped[pid] {
				continue
			}
			stopped[pid], more = true, true
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			if err := await(pid, 'T', 't', 'Z', 'X'); err != nil {
				return err
			}
		}
		if !more { // no parent was left that could have started another
			return nil
		}
	}
}

// thaw lets all go on that freeze has stopped.
func (p *process) thaw() {
	if !p.frozen {
		return
	}
	p.frozen = false
	p.unguard()
	for _, pid := range p.tree() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

func (p *process) unguard() {
	if p.guard != nil {
		p.guard()
		p.guard = nil
	}
}

// tree returns the process and its descendants, parents first. It is empty if the process
// has ended.
func (p *process) tree() []int {
	select {
	case <-p.ended:
		return nil
	default:
	}
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if _, parent, ok := stat(path); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{p.pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// await returns when all threads of a process are in one of the states, or gone.
func await(pid int, states ...byte) error {
	return eventually(func() error {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
		for _, path := range threads {
			if state, _, ok := stat(path); ok && !bytes.Contains(states, []byte{state}) {
				return fmt.Errorf("process %d is in state %c", pid, state)
			}
		}
		return nil
	})
}

// stat reads the state and the parent of a process or thread: "pid (name) state parent …",
// where the name may contain anything.
func stat(path string) (state byte, parent int, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 || len(fields[0]) != 1 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], parent, err == nil
}

// runToEnd runs a command as the account, for at most startLimit.
func runToEnd(argv []string, input string, as *account) error {
	cmd := command(argv, as)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewBufferString(input), &out, &out
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // as in startProcess
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	timer := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(argv[0]), err, out.Bytes())
	}
	return nil
}
