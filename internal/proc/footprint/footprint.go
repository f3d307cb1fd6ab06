// Package footprint tells what a process takes from the machine: memory, file descriptors, CPU time, and its BPF maps and programs.
package footprint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Footprint is what a process holds at one moment, and has used so far.
type Footprint struct {
	CPU time.Duration // user and system, of threads that exited too

	// RSS counts pages of BPF maps that are mapped: RSSMaps of it. They are
	// part of MapBytes as well.
	RSS, RSSMaps int64

	FDs      int
	Maps     int
	MapBytes int64 // what the kernel charges for them

	Programs     int
	ProgramBytes int64
	// Runs and RunTime are of all programs, SampleRuns of those on perf
	// events. They count only while the kernel keeps BPF statistics.
	Runs, SampleRuns uint64
	RunTime          time.Duration
}

// Memory is what the process costs the machine, mapped maps counted once.
func (f Footprint) Memory() int64 { return f.RSS - f.RSSMaps + f.MapBytes }

// perfEvent is BPF_PROG_TYPE_PERF_EVENT.
const perfEvent = 7

// Of measures a process.
func Of(pid int) (f Footprint, err error) {
	if f.CPU, err = CPU(pid); err != nil {
		return f, err
	}
	if err := f.readMemory(pid); err != nil {
		return f, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	if err := f.readFiles(pid); err != nil {
		return f, fmt.Errorf("read the files of process %d: %w", pid, err)
	}
	return f, nil
}

// CPU is the time a process used so far, with the scheduler's precision.
func CPU(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED: of a whole process, as clock_getcpuclockid makes them
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// readMemory sums the resident pages of all mappings, maps apart.
func (f *Footprint) readMemory(pid int) error {
	file, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return err
	}
	defer file.Close()
	isMap := false
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0:
		case !strings.HasSuffix(fields[0], ":"): // a mapping's first line ends in its name
			isMap = strings.Contains(lines.Text(), "anon_inode:bpf-map") || strings.Contains(lines.Text(), "anon_inode:[bpf-map]")
		case fields[0] == "Rss:" && len(fields) > 1:
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return err
			}
			f.RSS += kb << 10
			if isMap {
				f.RSSMaps += kb << 10
			}
		}
	}
	return lines.Err()
}

// readFiles counts descriptors, and each BPF map and program once.
func (f *Footprint) readFiles(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fdinfo", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	maps, programs := map[int64]bool{}, map[int64]bool{}
	for _, e := range entries {
		info, err := readInfo(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return err
		}
		f.FDs++
		id, isMap := info["map_id"]
		if isMap && !maps[id] {
			maps[id] = true
			f.MapBytes += info["memlock"]
		}
		_, counted := info["run_cnt"] // links tell prog_id only
		if id := info["prog_id"]; counted && !programs[id] {
			programs[id] = true
			f.ProgramBytes += info["memlock"]
			f.Runs += uint64(info["run_cnt"])
			f.RunTime += time.Duration(info["run_time_ns"])
			if info["prog_type"] == perfEvent {
				f.SampleRuns += uint64(info["run_cnt"])
			}
		}
	}
	f.Maps, f.Programs = len(maps), len(programs)
	return nil
}

// readInfo reads the numbers of a descriptor's information: "name:\tvalue" lines.
func readInfo(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	info := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			info[name] = n
		}
	}
	return info, nil
}
