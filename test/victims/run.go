package victims

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"atys.dev/atys/test/process"
)

// patience is how long a victim may take to get ready: a loaded machine is
// slow, a stuck victim is an error.
const patience = 2 * time.Minute

// Victim is a running victim.
type Victim struct {
	PID  int
	cmd  *exec.Cmd
	log  bytes.Buffer // the ready line, then the rest when done is closed
	done chan struct{}
	err  error // of reading or waiting, valid when done is closed
}

// Start runs a victim and returns when it has printed its ready line. The
// victim is killed when ctx ends.
func Start(ctx context.Context, path string, args ...string) (*Victim, error) {
	v := &Victim{cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	v.cmd.Stderr = os.Stderr
	v.cmd.WaitDelay = time.Second
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start victim %q: %w", path, err)
	}
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start victim %q: %w", path, err)
	}
	ready := make(chan error, 1)
	go v.read(out, ready)
	select {
	case err = <-ready:
	case <-time.After(patience):
		err = errors.New("not ready in time")
	}
	if err != nil {
		v.kill()
		return nil, fmt.Errorf("start victim %q: %w", path, err)
	}
	return v, nil
}

// read keeps what the victim prints, and reaps it.
func (v *Victim) read(out io.Reader, ready chan<- error) {
	defer close(v.done)
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n')
	if err == nil {
		var head struct{ PID int }
		if err = json.Unmarshal(line, &head); err == nil {
			v.PID = head.PID
		}
	}
	ready <- err
	v.log.Write(line)
	_, err = v.log.ReadFrom(r)
	v.err = errors.Join(err, v.cmd.Wait())
}

// Stop asks the victim to end, waits for it, and returns its log.
func (v *Victim) Stop() ([]byte, error) {
	// It may have ended by itself; then its log is complete anyway.
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, fmt.Errorf("stop victim %d: %w", v.PID, err)
	}
	return v.Wait()
}

// Wait waits for a victim that ends by itself, and returns its log.
func (v *Victim) Wait() ([]byte, error) {
	<-v.done
	if v.err != nil {
		return v.log.Bytes(), fmt.Errorf("victim %d: %w", v.PID, v.err)
	}
	return v.log.Bytes(), nil
}

// Ended tells whether a victim has ended, by itself or otherwise.
func (v *Victim) Ended() bool { return process.Closed(v.done) }

func (v *Victim) kill() {
	_ = v.cmd.Process.Kill() // it may be gone: then there is nothing to do
	<-v.done
}
