package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"atys.dev/atys/internal/proc/footprint"
)

// process is a server that is watched: ours, or Prometheus.
type process struct {
	command *exec.Cmd
	ended   chan error
	address string
	output  *os.File
}

// startProcess starts a server, and waits until it takes connections.
func startProcess(dir, address, name string, args ...string) (*process, error) {
	output, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.Command(name, args...), ended: make(chan error, 1), address: address, output: output}
	p.command.Stdout, p.command.Stderr = output, output
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(err, output.Close())
	}
	go func() { p.ended <- p.command.Wait() }()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			return p, c.Close()
		}
	}
	return nil, errors.Join(fmt.Errorf("%s does not answer: %s", name, output.Name()), p.end())
}

// end asks it to end, and waits.
func (p *process) end() error {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-p.ended:
		return errors.Join(err, p.output.Close())
	case <-time.After(time.Minute):
		_ = p.command.Process.Kill()
		return errors.Join(fmt.Errorf("%s does not end", p.command.Path), <-p.ended, p.output.Close())
	}
}

// watched is what a process took over some time.
type watched struct {
	mean, peak int64   // bytes of memory
	cores      float64 // of CPU time
	last       int64   // bytes at the end
}

// watch measures a process each second until the context ends.
func (p *process) watch(ctx context.Context) (w watched, err error) {
	began := time.Now()
	before, err := footprint.CPU(p.command.Process.Pid)
	if err != nil {
		return w, err
	}
	var sum, times int64
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if w.last, err = resident(p.command.Process.Pid); err != nil {
				return w, err
			}
			sum, times, w.peak = sum+w.last, times+1, max(w.peak, w.last)
		case err := <-p.ended:
			p.ended <- err
			return w, fmt.Errorf("%s ended: %w: %s", p.command.Path, err, p.output.Name())
		case <-ctx.Done():
			after, err := footprint.CPU(p.command.Process.Pid)
			w.cores = (after - before).Seconds() / time.Since(began).Seconds()
			w.mean = sum / max(times, 1)
			return w, err
		}
	}
}

// resident is how much memory a process has.
func resident(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no memory", pid)
}

// sizeOf is what a directory takes.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// freePort is one that nobody listens at.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
