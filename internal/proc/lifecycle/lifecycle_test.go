package lifecycle

import (
	"encoding/binary"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
)

func record(kind uint32, misc uint16, body []byte, pid, tid uint32, at uint64) []byte {
	r := binary.LittleEndian.AppendUint32(nil, kind)
	r = binary.LittleEndian.AppendUint16(r, misc)
	r = binary.LittleEndian.AppendUint16(r, uint16(8+len(body)+trailer))
	r = append(r, body...)
	r = binary.LittleEndian.AppendUint32(r, pid)
	r = binary.LittleEndian.AppendUint32(r, tid)
	return binary.LittleEndian.AppendUint64(r, at)
}

func words32(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func mapBody(prot uint32, start, length uint64) []byte {
	b := words32(7, 8)
	b = binary.LittleEndian.AppendUint64(b, start)
	b = binary.LittleEndian.AppendUint64(b, length)
	b = binary.LittleEndian.AppendUint64(b, 0x2000)
	b = append(b, words32(254, 1)...)
	b = binary.LittleEndian.AppendUint64(b, 99)
	b = binary.LittleEndian.AppendUint64(b, 3)
	b = append(b, words32(prot, 2)...)
	return append(b, "/usr/lib/x.so\x00\x00\x00"...)
}

func TestParse(t *testing.T) {
	task := func(pid, ppid, tid, ptid uint32) []byte {
		return append(words32(pid, ppid, tid, ptid), make([]byte, 8)...)
	}
	exec := uint32(unix.PROT_READ | unix.PROT_EXEC)
	for _, c := range []struct {
		name   string
		record []byte
		want   Event
		ok     bool
	}{
		{"fork", record(unix.PERF_RECORD_FORK, 0, task(7, 6, 7, 6), 6, 6, 11), Event{Kind: Fork, Time: 11, PID: 7, TID: 7, Parent: 6}, true},
		{"new thread", record(unix.PERF_RECORD_FORK, 0, task(6, 6, 9, 6), 6, 6, 11), Event{Kind: Thread, Time: 11, PID: 6, TID: 9, Parent: 6}, true},
		{"exit", record(unix.PERF_RECORD_EXIT, 0, task(7, 6, 7, 6), 7, 7, 12), Event{Kind: Exit, Time: 12, PID: 7, TID: 7, Parent: 6}, true},
		{"exit of a thread", record(unix.PERF_RECORD_EXIT, 0, task(7, 6, 8, 6), 7, 8, 12), Event{}, false},
		{"exec", record(unix.PERF_RECORD_COMM, commExecMisc, append(words32(7, 7), "ls\x00"...), 7, 7, 13), Event{Kind: Exec, Time: 13, PID: 7, TID: 7}, true},
		{"renamed thread", record(unix.PERF_RECORD_COMM, 0, append(words32(7, 7), "x\x00"...), 7, 7, 13), Event{}, false},
		{"code mapped", record(unix.PERF_RECORD_MMAP2, 0, mapBody(exec, 0x1000, 0x3000), 7, 8, 14), Event{Kind: Map, Time: 14, PID: 7, TID: 8,
			Map: Mapping{Start: 0x1000, End: 0x4000, Offset: 0x2000, Major: 254, Minor: 1, Inode: 99, Path: "/usr/lib/x.so"}}, true},
		{"data mapped", record(unix.PERF_RECORD_MMAP2, 0, mapBody(unix.PROT_READ, 0x1000, 0x3000), 7, 8, 14), Event{}, false},
		{"a mapping that wraps around", record(unix.PERF_RECORD_MMAP2, 0, mapBody(exec, 1<<63, 1<<63+1), 7, 8, 14), Event{}, false},
		{"lost", record(unix.PERF_RECORD_LOST, 0, append(make([]byte, 8), 5, 0, 0, 0, 0, 0, 0, 0), 0, 0, 15), Event{Kind: Lost, Time: 15, Lost: 5}, true},
		{"a kind we do not know", record(77, 0, make([]byte, 64), 0, 0, 15), Event{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := parse(c.record)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("parsed %+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// Records come from the kernel, but a damaged ring must not crash us.
func FuzzParse(f *testing.F) {
	f.Add(record(unix.PERF_RECORD_MMAP2, 0, mapBody(4, 0x1000, 0x3000), 7, 8, 14))
	f.Add(record(unix.PERF_RECORD_FORK, 0, make([]byte, 24), 6, 6, 11))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, ok := parse(data)
		if ok && e.Kind == Map && (e.Map.End < e.Map.Start || len(e.Map.Path) > len(data)) {
			t.Errorf("impossible mapping %+v", e.Map)
		}
	})
}

// What a ring gives does not depend on where its records wrap around.
func TestRingWraps(t *testing.T) {
	for shift := range 128 {
		r := &ring{data: make([]byte, 256), meta: &unix.PerfEventMmapPage{}}
		tail := uint64(256*5 + shift)
		rec := record(unix.PERF_RECORD_FORK, 0, append(words32(7, 6, 7, 6), make([]byte, 8)...), 6, 6, 11)
		head := tail
		for range 3 {
			for i, b := range rec {
				r.data[(head+uint64(i))&255] = b
			}
			head += uint64(len(rec))
		}
		r.meta.Data_tail, r.meta.Data_head = tail, head
		if got := r.read(nil); len(got) != 3 || got[2].PID != 7 || r.meta.Data_tail != head {
			t.Fatalf("shift %d: %d events, tail %d of %d", shift, len(got), r.meta.Data_tail, head)
		}
	}
}

// A real process, from fork to exit, in order.
func TestWatch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cpus, err := proc.Machine{}.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	w, err := Open(cpus)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(time.Second); err != nil {
		t.Fatal(err)
	}
	var kinds []Kind
	mapped := 0
	for _, e := range w.Read(nil) {
		if e.PID != cmd.Process.Pid {
			continue
		}
		if e.Kind == Map {
			mapped++
		} else {
			kinds = append(kinds, e.Kind)
		}
	}
	if len(kinds) != 3 || kinds[0] != Fork || kinds[1] != Exec || kinds[2] != Exit || mapped < 3 {
		t.Errorf("kinds %v and %d mappings, want fork, exec, exit and at least true, ld.so, libc", kinds, mapped)
	}
}

// TestPause sleeps while events come, and no longer than until it is interrupted.
func TestPause(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w, err := Open([]int{0})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := exec.Command("true").Run(); err != nil { // there are events to wait for
		t.Fatal(err)
	}
	const pause = 50 * time.Millisecond
	began := time.Now()
	if w.Pause(pause); time.Since(began) < pause {
		t.Errorf("it was over after %v", time.Since(began))
	}
	w.Interrupt()
	began = time.Now()
	if w.Pause(time.Hour); time.Since(began) > time.Minute {
		t.Errorf("interrupted, it was over after %v", time.Since(began))
	}
}
