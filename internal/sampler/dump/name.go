package dump

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"atys.dev/atys/internal/diskcache"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/symbol"
	"atys.dev/atys/internal/unwind"
)

// namer turns what the kernel wrote into what a developer reads.
type namer struct {
	pid      int
	unwinder *unwind.Unwinder
	resolver *symbol.Resolver
	kernel   *symbol.Kernel
	log      *slog.Logger
	jit      *symbol.JIT
	files    map[uint32]unwind.File
	ready    map[unwind.Frame][]profile.Frame // threads wait in the same places
}

func newNamer(o Options, cache *diskcache.Cache, u *unwind.Unwinder) *namer {
	kernel := symbol.NewKernel("/proc", "/sys", time.Now)
	return &namer{pid: o.PID, unwinder: u, kernel: kernel, log: o.Log,
		resolver: symbol.New(symbol.Options{Cache: cache, Debuginfod: o.Debuginfod, Kernel: kernel}),
		files:    map[uint32]unwind.File{}, ready: map[unwind.Frame][]profile.Frame{}}
}

func (n *namer) close() {
	if err := n.resolver.Close(); err != nil {
		n.log.Debug("keep symbols", "error", err)
	}
}

func (n *namer) thread(ctx context.Context, s *kernelStanding) Thread {
	t := Thread{TID: int(s.Tid), Name: text(s.Comm[:]), State: stateOf(s), CPU: time.Duration(s.Runtime), End: profile.End(s.End)}
	if s.Syscall >= 0 {
		t.Syscall = syscallName(int(s.Syscall))
	}
	for _, word := range s.KernelFrames[:s.Kernel] {
		t.Frames = append(t.Frames, n.frames(ctx, unwind.DecodeFrame(word))...)
	}
	if t.State != Running && t.State != Runnable {
		t.Wait = waitChannel(t.Frames)
	}
	for words := s.UserFrames[:s.User]; len(words) > 0; {
		f, taken := unwind.DecodeFrames(words)
		t.Frames = append(t.Frames, n.frames(ctx, f)...)
		words = words[taken:]
	}
	return t
}

// frames names one place.
func (n *namer) frames(ctx context.Context, f unwind.Frame) []profile.Frame {
	if frames, ok := n.ready[f]; ok {
		return frames
	}
	var frames []profile.Frame
	switch {
	case f.Language != 0:
		frames = n.unwinder.Name(n.pid, f)
	case f.Kernel:
		frames = n.resolver.Resolve(ctx, n.kernel.Location(f.Offset))
	case f.Executable != 0:
		frames = n.resolver.Resolve(ctx, profile.Location{Kind: profile.KindNative, BuildID: n.file(f.Executable).BuildID, Offset: f.Offset})
	default:
		frames = []profile.Frame{n.made(f.Offset)}
	}
	n.ready[f] = frames
	return frames
}

func (n *namer) file(id uint32) unwind.File {
	f, ok := n.files[id]
	if !ok {
		if f, ok = n.unwinder.File(id); ok {
			n.resolver.AddFile(f.BuildID, f.Path, f.Open)
		}
		n.files[id] = f
	}
	return f
}

// made names code that the process made at run time.
func (n *namer) made(address uint64) profile.Frame {
	if n.jit == nil {
		n.jit = symbol.NewJIT(n.pid)
		if err := n.jit.Refresh(); err != nil {
			n.log.Debug("read what names compiled code", "pid", n.pid, "error", err)
		}
	}
	if f, ok := n.jit.Frame(address); ok {
		return f
	}
	return profile.Frame{Function: "[code made at run time] 0x" + strconv.FormatUint(address, 16), Kind: profile.KindJIT}
}

// waitChannel is the kernel function that chose to wait: the innermost one
// that is not the scheduler itself.
func waitChannel(frames []profile.Frame) string {
	for _, f := range frames {
		if f.Kind != profile.KindKernel {
			break
		}
		name := strings.TrimLeft(f.Function, "_")
		scheduler := strings.HasPrefix(name, "schedule") || strings.HasPrefix(name, "io_schedule") ||
			strings.HasPrefix(name, "preempt_schedule") || strings.HasPrefix(name, "context_switch")
		if !scheduler && !strings.Contains(f.Function, "+0x") {
			return f.Function
		}
	}
	return ""
}

func text(s []int8) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s))
	before, _, _ := strings.Cut(string(b), "\x00")
	return before
}
