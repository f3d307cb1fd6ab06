package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/proc/footprint"
	"atys.dev/atys/test/process"
)

// daemon is a server that is watched: ours, or Prometheus.
type daemon struct{ *process.Process }

func startDaemon(address, name string, args ...string) (*daemon, error) {
	p, err := process.StartServer(address, name, args...)
	if err != nil {
		return nil, err
	}
	return &daemon{p}, nil
}

// watched is what a process took over some time.
type watched struct {
	mean, peak int64     // bytes of memory
	cores      float64   // of CPU time
	minutes    []float64 // the same in each whole minute
	last       int64     // bytes at the end
}

// watch measures a process each second until the context ends.
func (p *daemon) watch(ctx context.Context) (w watched, err error) {
	began, err := p.used()
	if err != nil {
		return w, err
	}
	minute := began
	var sum, times int64
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if w.last, err = resident(p.PID()); err != nil {
				return w, err
			}
			sum, times, w.peak = sum+w.last, times+1, max(w.peak, w.last)
			if times%60 == 0 {
				now, err := p.used()
				if err != nil {
					return w, err
				}
				w.minutes = append(w.minutes, now.since(minute))
				minute = now
			}
		case <-p.Ended():
			return w, fmt.Errorf("a server ended: %w: %s", p.Err(), p.Log())
		case <-ctx.Done():
			now, err := p.used()
			w.cores = now.since(began)
			w.mean = sum / max(times, 1)
			return w, err
		}
	}
}

// used is what a process has used of processors until some time.
type used struct {
	at  time.Time
	cpu time.Duration
}

func (p *daemon) used() (u used, err error) {
	u.at = time.Now()
	u.cpu, err = footprint.CPU(p.PID())
	return u, err
}

// since is how many processors that were since an earlier time.
func (u used) since(before used) float64 {
	return (u.cpu - before.cpu).Seconds() / u.at.Sub(before.at).Seconds()
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
