package cfi

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// A stopped process and a plain walker over its memory: what the BPF unwinder
// does with the rules, in the fewest lines, so that the rules can be judged by
// where they lead.
type victim struct {
	pid    int
	mem    *os.File
	maps   []mapping
	tables map[string]*rows.Table
	names  map[string]func(uint32) string
	made   bool // code made at run time keeps frame pointers
}

type mapping struct {
	low, high, off uint64
	path           string
}

func (v *victim) readMaps(t *testing.T) {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", v.pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v.maps = v.maps[:0]
	for sc := bufio.NewScanner(f); sc.Scan(); {
		p := strings.Fields(sc.Text())
		if len(p) < 6 || !strings.Contains(p[1], "x") {
			continue
		}
		var m mapping
		fmt.Sscanf(p[0], "%x-%x", &m.low, &m.high)
		m.off, _ = strconv.ParseUint(p[2], 16, 64)
		m.path = p[5]
		v.maps = append(v.maps, m)
	}
}

func (v *victim) open(m mapping) *rows.Table {
	if t, ok := v.tables[m.path]; ok {
		return t
	}
	var f *elf.File
	var err error
	if m.path == "[vdso]" {
		b := make([]byte, m.high-m.low)
		v.mem.ReadAt(b, int64(m.low))
		f, err = elf.NewFile(strings.NewReader(string(b)))
	} else {
		f, err = elf.Open(m.path)
	}
	if err != nil {
		v.tables[m.path] = nil
		return nil
	}
	t, _ := Build(f)
	v.tables[m.path] = t
	v.names[m.path] = namer(f)
	return t
}

// namer names file offsets by the symbol table, for messages.
func namer(f *elf.File) func(uint32) string {
	syms, _ := f.Symbols()
	im := newImage(f)
	known := map[uint32]string{}
	find := func(off uint32) string {
		for _, s := range syms {
			if o, _, ok := im.offset(s.Value); ok && o <= off && uint64(off) < uint64(o)+max(s.Size, 1) {
				return fmt.Sprintf("%s+%#x", s.Name, off-o)
			}
		}
		return fmt.Sprintf("+%#x", off)
	}
	return func(off uint32) string {
		if _, ok := known[off]; !ok {
			known[off] = find(off)
		}
		return known[off]
	}
}

func (v *victim) word(addr uint64) (uint64, bool) {
	var b [8]byte
	_, err := v.mem.ReadAt(b[:], int64(addr))
	return binary.LittleEndian.Uint64(b[:]), err == nil
}

func (v *victim) pair(addr uint64) (p [2]uint64, ok bool) {
	if p[0], ok = v.word(addr); ok {
		p[1], ok = v.word(addr + 8)
	}
	return p, ok
}

// restored is the caller's rbp. lost is what it was before, if rbp is not
// saved in this frame.
func (v *victim) restored(r rows.Rule, bp, cfa uint64, lost bool) (_ uint64, nowLost, ok bool) {
	switch n := r.RBP(); {
	case n == rows.RBPLost:
		return bp, true, true
	case n == rows.RBPAtRBP:
		bp, ok = v.word(bp)
		return bp, lost, ok
	case n != rows.RBPSame:
		bp, ok = v.word(cfa - 8*uint64(n))
		return bp, false, ok
	}
	return bp, lost, true
}

// walk follows the rules. It returns the frames passed and how it ended.
func (v *victim) walk(r syscall.PtraceRegs) (frames []string, end string) {
	ip, sp, bp := r.Rip, r.Rsp, r.Rbp
	dwarf := [16]uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15}
	exact, lost := uint64(0), false
	for len(frames) < 500 {
		var m *mapping
		look := ip - exact
		for i := range v.maps {
			if look >= v.maps[i].low && look < v.maps[i].high {
				m = &v.maps[i]
			}
		}
		if m == nil && v.made {
			frames = append(frames, "made")
			pair, ok := v.pair(bp)
			if !ok || lost {
				return frames, "no frame below made code"
			}
			sp, bp, ip, exact = bp+16, pair[0], pair[1], 1
			continue
		}
		if m == nil {
			return frames, fmt.Sprintf("no mapping for %#x", look)
		}
		t := v.open(*m)
		if t == nil {
			return frames, "no table for " + m.path
		}
		off := uint32(look - m.low + m.off)
		rule, _ := t.Find(off)
		frames = append(frames, fmt.Sprintf("%s(%d)", v.names[m.path](off), rule.Type()))
		var cfa uint64
		ok := true
		switch rule.Type() {
		case rows.End:
			return frames, "end"
		case rows.SP, rows.Fork:
			cfa = sp + 8*uint64(rule.CFA())
		case rows.BP:
			if lost {
				return frames, "rbp lost"
			}
			cfa = bp + 8*uint64(rule.CFA())
		case rows.PLT:
			cfa = sp + 8
			if uint32(ip&15) >= rule.CFA() {
				cfa += 8
			}
		case rows.FramePointer:
			cfa = bp + 16
			bp, ok = v.word(bp)
		case rows.BPDeref:
			cfa, ok = v.word(bp + 8*uint64(int64(rule.Low())))
			cfa += 8 * uint64(rule.High())
		case rows.SPDeref:
			cfa, ok = v.word(sp + 8*uint64(int64(rule.Low())))
			cfa += 8 * uint64(rule.High())
		case rows.LeafReg:
			if exact != 0 {
				return frames, "leaf register in a caller"
			}
			cfa = dwarf[rule.High()] + 8*uint64(int64(rule.Low()))
		case rows.ReturnReg:
			if exact != 0 {
				return frames, "return register in a caller"
			}
			cfa = sp + 8*uint64(int64(rule.Low()))
		case rows.Signal:
			bp, _ = v.word(sp + 120)
			ip, _ = v.word(sp + 168)
			sp, _ = v.word(sp + 160)
			exact, lost = 0, false
			continue
		default:
			return frames, fmt.Sprintf("type %d", rule.Type())
		}
		var ok2, ok3 bool
		bp, lost, ok3 = v.restored(rule, bp, cfa, lost)
		if ip, ok2 = v.word(cfa - 8); rule.Type() == rows.ReturnReg {
			ip = dwarf[rule.High()]
		}
		if !ok || !ok2 || !ok3 {
			return frames, "unreadable memory"
		}
		// The kernel or the runtime made these calls, at no call instruction.
		injected := strings.Contains(frames[len(frames)-1], "asyncPreempt") || strings.Contains(frames[len(frames)-1], "sigpanic")
		if !injected && !v.called(ip) {
			return frames, fmt.Sprintf("%#x is not behind a call", ip)
		}
		sp, exact = cfa, 1
	}
	return frames, "too deep"
}

// called reports whether a call instruction ends at addr: whether addr looks
// like a return address. The runtime's own pretences count.
func (v *victim) called(addr uint64) bool {
	var b [8]byte
	v.mem.ReadAt(b[:7], int64(addr-7))
	if b[2] == 0xe8 {
		return true
	}
	for n := 2; n <= 7; n++ { // ff /2 with its operand
		if b[7-n] == 0xff && b[7-n+1]>>3&7 == 2 {
			return true
		}
	}
	for _, m := range v.maps {
		if addr >= m.low && addr < m.high && v.open(m) != nil {
			name := v.names[m.path](uint32(addr - m.low + m.off))
			for _, pretence := range []string{"goexit", "sigreturn", "restore_rt", "clone"} {
				if strings.Contains(name, pretence) {
					return true
				}
			}
			off := uint32(addr - 1 - m.low + m.off)
			r, _ := v.tables[m.path].Find(off)
			return r.Type() == rows.Signal || r.Type() == rows.End
		}
	}
	return false
}

func newVictim(t *testing.T, pid int) *victim {
	t.Helper()
	v := &victim{pid: pid, tables: map[string]*rows.Table{}, names: map[string]func(uint32) string{}}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { mem.Close() })
	v.mem = mem
	v.readMaps(t)
	return v
}

// watch stops each thread of a running program n times and walks its stack.
func watch(t *testing.T, n int, path string, args ...string) map[string]int {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	time.Sleep(100 * time.Millisecond)
	v := newVictim(t, cmd.Process.Pid)
	v.made = strings.HasSuffix(path, "node")
	ends, examples, depth := map[string]int{}, map[string]bool{}, 0
	roots := map[string]int{}
	for range n {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", v.pid))
		tid, _ := strconv.Atoi(tasks[rand.IntN(len(tasks))].Name())
		if v.made {
			tid = v.pid // the other threads only wait
		}
		regs, err := stop(tid)
		if err != nil {
			ends[err.Error()]++
			continue
		}
		frames, end := v.walk(regs)
		syscall.PtraceDetach(tid)
		if len(frames) == 0 {
			frames = []string{"nothing"}
		}
		ends[end]++
		depth += len(frames)
		root, _, _ := strings.Cut(frames[len(frames)-1], "+")
		roots[root+" "+end]++
		if end != "end" && !examples[end+frames[len(frames)-1]] && len(examples) < 12 {
			examples[end+frames[len(frames)-1]] = true
			t.Logf("%s: %s", end, strings.Join(frames, " < "))
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	t.Logf("%s: %v, %d frames on average, roots %v", filepath.Base(path), ends, depth/n, roots)
	return ends
}

const (
	ptraceSeize     = 0x4206
	ptraceInterrupt = 0x4207
)

func stop(tid int) (regs syscall.PtraceRegs, err error) {
	if _, _, e := syscall.Syscall6(syscall.SYS_PTRACE, ptraceSeize, uintptr(tid), 0, 0, 0, 0); e != 0 {
		return regs, fmt.Errorf("seize: %w", e)
	}
	syscall.Syscall6(syscall.SYS_PTRACE, ptraceInterrupt, uintptr(tid), 0, 0, 0, 0)
	for {
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(tid, &ws, syscall.WALL, nil); err != nil {
			return regs, fmt.Errorf("wait: %w", err)
		}
		if ws.Stopped() && ws.StopSignal() == syscall.SIGTRAP {
			break
		}
		// A signal on its way to the program: deliver it and wait on.
		syscall.PtraceCont(tid, int(ws.StopSignal()))
	}
	return regs, syscall.PtraceGetRegs(tid, &regs)
}

// TestLive walks running programs and wants every stack complete.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("runs programs")
	}
	for _, c := range []struct {
		name  string
		build []string
		share float64
	}{
		{"go", []string{"go", "build", "-o", "OUT", "testdata/govictim/main.go"}, 0.995},
		{"go-pie", []string{"go", "build", "-buildmode=pie", "-ldflags=-s -w", "-o", "OUT", "testdata/govictim/main.go"}, 0.995},
		{"cgo", []string{"go", "build", "-o", "OUT", "testdata/cgovictim/main.go"}, 0.995},
		{"c", []string{"gcc", "-O2", "-pthread", "-o", "OUT", "testdata/victim.c"}, 0.998},
		{"c-static", []string{"gcc", "-O2", "-static", "-pthread", "-o", "OUT", "testdata/victim.c"}, 0.998},
		{"c-debug-frame", []string{"gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables", "-static", "-pthread", "-o", "OUT", "testdata/victim.c"}, 0.998},
		{"cgo-pie", []string{"go", "build", "-buildmode=pie", "-o", "OUT", "testdata/cgovictim/main.go"}, 0.995},
		{"musl", []string{"musl-gcc", "-O2", "-static", "-pthread", "-o", "OUT", "testdata/victim.c"}, 0.995},
		{"musl-library", []string{"musl-gcc", "-O2", "-static", "-pthread", "-o", "OUT", "testdata/library.c", "-lm"}, 0.995},
		{"musl-library-fp", []string{"musl-gcc", "-O1", "-fno-omit-frame-pointer", "-static", "-pthread", "-o", "OUT", "testdata/library.c", "-lm"}, 0.995},
		{"no-frames", []string{"musl-gcc", "-O2", "-fno-asynchronous-unwind-tables", "-static", "-pthread", "-o", "OUT", "testdata/library.c", "-lm"}, 0.995},
		{"rust", []string{"rustc", "-O", "-o", "OUT", "testdata/victim.rs"}, 0.998},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := build(t, c.build...)
			ends := watch(t, 600, out)
			all := 0
			for _, n := range ends {
				all += n
			}
			if share := float64(ends["end"]) / float64(all); share < c.share {
				t.Errorf("%.4f of the stacks are complete, want %.4f: %v", share, c.share, ends)
			}
		})
	}
}

// TestLiveStripped wants no wrong step where there is nothing to go by.
func TestLiveStripped(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a program")
	}
	out := build(t, "musl-gcc", "-s", "-O2", "-static", "-pthread", "-o", "OUT", "testdata/library.c", "-lm")
	for end, n := range watch(t, 300, out) {
		if end != "end" && end != "type 0" && end != "rbp lost" {
			t.Errorf("%d stacks end so: %s", n, end)
		}
	}
}

// TestLiveNode walks stacks in which JavaScript, its builtins and C++ alternate.
func TestLiveNode(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a program")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip(err)
	}
	ends := watch(t, 600, node, "--single-threaded", "testdata/victim.js")
	all := 0
	for _, n := range ends {
		all += n
	}
	if share := float64(ends["end"]) / float64(all); share < 0.99 { // while V8 takes a frame apart nothing below leads on: up to one in 200
		t.Errorf("%.4f of the stacks are complete: %v", share, ends)
	}
}

// build runs a compiler, with OUT replaced by a fresh path, which it returns.
func build(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skip(err)
	}
	out := filepath.Join(t.TempDir(), "victim")
	args = append([]string(nil), args...)
	for i := range args {
		if args[i] == "OUT" {
			args[i] = out
		}
	}
	if msg, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, msg)
	}
	return out
}
