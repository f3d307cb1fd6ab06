package replay

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
	"atys.dev/atys/internal/unwind/cfi"
	"atys.dev/atys/internal/unwind/cfi/rows"
)

// recorder records one thread of a process, stopping it again and again.
type recorder struct {
	machine  *Machine
	pid, tid int
	files    map[string]*loadedFile
	runtimes []runtimeRead // what the process runs, read once
}

// loadedFile is a file that a process maps, with its rows.
type loadedFile struct {
	elf   *elf.File
	table *rows.Table
	image File
}

// recording is an image in the making: the walk asks for memory, and gets it
// from the stopped process.
type recording struct {
	of     *recorder
	image  *Image
	memory *os.File
	files  []*loadedFile
	asked  map[Failure]bool // memory that was
}

// record stops a thread again and again until a walk of it is one that wanted
// accepts, and gives the smallest image of it. Another unwinder must agree on
// the return addresses, unless it is said to be unable to.
func (of *recorder) record(t *testing.T, oracle bool, wanted func(*Image, Walk) bool) *Image {
	t.Helper()
	for range 2000 {
		time.Sleep(time.Millisecond)
		r := of.stop(t)
		w := r.complete(t)
		fits := w.End == profile.EndComplete && wanted(r.image, w)
		var theirs []euFrame
		if fits && oracle {
			theirs = euStack(t, of.tid)
		}
		if fits {
			r.name(w)
		}
		if err := syscall.Kill(of.tid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.memory.Close()
		if !fits {
			continue
		}
		if oracle {
			r.check(t, w, theirs)
		}
		r.trim(w)
		return r.image
	}
	t.Fatal("the process was never in the wanted state")
	return nil
}

// stop stops the thread and reads its registers and mappings.
func (of *recorder) stop(t *testing.T) *recording {
	t.Helper()
	runtime.LockOSThread() // ptrace belongs to a thread
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(of.tid); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(of.tid, &status, syscall.WALL, nil); err != nil {
		t.Fatal(err)
	}
	var regs syscall.PtraceRegs
	// The stop signal is pending when the thread is let go: it runs no further.
	if err := errors.Join(syscall.PtraceGetRegs(of.tid, &regs), syscall.Kill(of.tid, syscall.SIGSTOP), syscall.PtraceDetach(of.tid)); err != nil {
		t.Fatal(err)
	}
	r := &recording{of: of, asked: map[Failure]bool{}, image: &Image{ThreadPointer: regs.Fs_base,
		Registers: [21]uint64{regs.R15, regs.R14, regs.R13, regs.R12, regs.Rbp, regs.Rbx,
			regs.R11, regs.R10, regs.R9, regs.R8, regs.Rax, regs.Rcx, regs.Rdx, regs.Rsi, regs.Rdi,
			regs.Orig_rax, regs.Rip, regs.Cs, regs.Eflags, regs.Rsp, regs.Ss}}}
	var err error
	if r.memory, err = os.Open(fmt.Sprintf("/proc/%d/mem", of.tid)); err != nil {
		t.Fatal(err)
	}
	r.readMappings(t)
	for _, one := range of.runtimes {
		r.image.Runtimes = append(r.image.Runtimes, one.image)
	}
	return r
}

func (r *recording) readMappings(t *testing.T) {
	t.Helper()
	mappings, err := proc.FS{}.Executable(r.of.tid)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]int{}
	for _, m := range mappings {
		file := known[m.Path]
		if file == 0 && m.Backing == proc.BackingFile {
			f := r.of.load(t, m)
			r.files = append(r.files, f)
			r.image.Files = append(r.image.Files, f.image)
			file = len(r.image.Files)
			known[m.Path] = file
		}
		r.image.Mappings = append(r.image.Mappings, Mapping{Start: m.Start, End: m.End, Offset: m.Offset, File: file, Shared: m.Backing == proc.BackingShared})
	}
}

// load reads a file that the process maps, and what it runs by it.
func (of *recorder) load(t *testing.T, m proc.Mapping) *loadedFile {
	t.Helper()
	if f := of.files[m.Path]; f != nil {
		return f
	}
	f, err := binfile.Open(m.Path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cfi.Build(f.ELF)
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]uint64, len(table.Rows))
	for i, row := range table.Rows {
		rows[i] = uint64(row)
	}
	loaded := &loadedFile{f.ELF, table, File{Name: filepath.Base(m.Path), Rows: rows, Index: table.Index,
		First: table.First, Shift: uint32(table.Shift), FramePointers: table.KeepsFramePointers}}
	for _, one := range readRuntimes(t, of.pid, f, m) {
		of.runtimes = append(of.runtimes, one)
		loaded.image.Runs = append(loaded.image.Runs, one.image.Language)
	}
	of.files[m.Path] = loaded
	return loaded
}

// complete walks until the image holds all the memory that the walk reads and
// the process has.
func (r *recording) complete(t *testing.T) Walk {
	t.Helper()
	m := r.of.machine
	if err := m.Load(r.image); err != nil {
		t.Fatal(err)
	}
	for {
		w, err := m.Walk()
		if err != nil {
			t.Fatal(err)
		}
		if !r.gather(t, w.Failed) {
			return w
		}
	}
}

// gather adds the memory that a walk could not read; false: none is to be had.
func (r *recording) gather(t *testing.T, failed []Failure) (more bool) {
	t.Helper()
	const line = 64
	for _, f := range failed {
		if r.asked[f] {
			continue
		}
		r.asked[f] = true
		begin := f.From &^ (line - 1)
		piece := Piece{begin, make([]byte, (f.From+f.Size+line-1)&^(line-1)-begin)}
		if _, err := r.memory.ReadAt(piece.Bytes, int64(piece.Start)); err != nil {
			continue
		}
		r.image.Memory = append(r.image.Memory, piece)
		if err := r.of.machine.Add(piece); err != nil {
			t.Fatal(err)
		}
		more = true
	}
	return more
}

// join puts pieces together that overlap or touch.
func join(pieces []Piece) (joined []Piece) {
	slices.SortFunc(pieces, func(a, b Piece) int { return cmp.Compare(a.Start, b.Start) })
	for _, p := range pieces {
		last := len(joined) - 1
		if last < 0 || p.Start > joined[last].Start+uint64(len(joined[last].Bytes)) {
			joined = append(joined, p)
			continue
		}
		into := &joined[last]
		if known := into.Start + uint64(len(into.Bytes)) - p.Start; known < uint64(len(p.Bytes)) {
			into.Bytes = append(into.Bytes, p.Bytes[known:]...)
		}
	}
	return joined
}

// trim drops the rows of pages that the walk does not touch, and names the rest.
func (r *recording) trim(w Walk) {
	r.image.Memory = join(r.image.Memory)
	for i := range r.image.Files {
		f, table := &r.image.Files[i], r.files[i].table
		f.Names = map[uint64]string{}
		pages := map[uint32]bool{}
		for _, frame := range w.Frames {
			if int(frame.Executable) == i+1 {
				pages[(uint32(frame.Offset)-table.First)>>table.Shift] = true
				f.Names[frame.Offset] = function(r.files[i].elf, frame.Offset)
			}
		}
		f.keep(pages)
	}
	used := map[int]int{}
	var files []File
	for i := range r.image.Mappings {
		m := &r.image.Mappings[i]
		if m.File == 0 && len(r.image.Runtimes) > 0 {
			used[0] = 0 // code made at run time
			continue
		}
		if m.File == 0 || len(r.image.Files[m.File-1].Rows) == 0 {
			continue
		}
		if used[m.File] == 0 {
			files = append(files, r.image.Files[m.File-1])
			used[m.File] = len(files)
		}
	}
	r.image.Mappings = slices.DeleteFunc(r.image.Mappings, func(m Mapping) bool {
		_, ok := used[m.File]
		return !ok
	})
	for i := range r.image.Mappings {
		r.image.Mappings[i].File = used[r.image.Mappings[i].File]
	}
	r.image.Files = files
}

// keep drops the rows of all but some pages.
func (f *File) keep(pages map[uint32]bool) {
	if len(pages) == 0 {
		f.Rows, f.Index = nil, nil
		return
	}
	var rows []uint64
	begin := func(page int) uint64 { return uint64(f.First) + uint64(page)<<f.Shift }
	for page := range len(f.Index) - 1 {
		start := begin(page) << 32
		switch {
		case pages[uint32(page)]:
			rows = append(rows, start|f.Rows[f.Index[page]]&(1<<32-1))
			for _, row := range f.Rows[f.Index[page]+1 : f.Index[page+1]+1] {
				if row > start|(1<<32-1) && row>>32 < begin(page+1) {
					rows = append(rows, row)
				}
			}
		case len(rows) == 0 || uint32(rows[len(rows)-1]) != 0:
			rows = append(rows, start) // a gap
		}
	}
	index, last := make([]uint32, len(f.Index)), 0
	for page := range index {
		for last+1 < len(rows) && rows[last+1]>>32 <= begin(page) {
			last++
		}
		index[page] = uint32(last)
	}
	f.Rows, f.Index = rows, index
}

func function(f *elf.File, offset uint64) string {
	var address uint64
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && offset >= p.Off && offset < p.Off+p.Filesz {
			address = p.Vaddr + offset - p.Off
		}
	}
	symbols, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, s := range append(symbols, dynamic...) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && address >= s.Value && address < s.Value+max(s.Size, 1) {
			return s.Name
		}
	}
	return "?"
}

// address is the pc of a frame.
func (r *recording) address(f unwind.Frame) uint64 {
	for _, m := range r.image.Mappings {
		if m.File == int(f.Executable) && f.Offset >= m.Offset && f.Offset < m.Offset+m.End-m.Start {
			return m.Start + f.Offset - m.Offset
		}
	}
	return 0
}

// check compares a walk with that of elfutils.
func (r *recording) check(t *testing.T, w Walk, theirs []euFrame) {
	t.Helper()
	if len(theirs) != len(w.Frames) {
		t.Fatalf("%d frames, eu-stack has %d:\n%s%v", len(w.Frames), len(theirs), r.image.text(w), theirs)
	}
	for i, f := range w.Frames {
		pc := r.address(f)
		// Where signal handlers return to, libdwfl does not subtract 1.
		if pc != theirs[i].pc && !(i > 0 && theirs[i].exact && pc == theirs[i].pc-1) {
			t.Fatalf("frame %d: %#x, eu-stack has %#x", i, pc, theirs[i].pc)
		}
	}
}

// euFrame is a frame of eu-stack's; pc is 1 less where it is a return address.
type euFrame struct {
	pc    uint64
	exact bool
}

var euLine = regexp.MustCompile(`(?m)^#\d+ +0x([0-9a-f]+)( - 1)?`)

// euStack has elfutils walk a stopped thread.
func euStack(t *testing.T, tid int) (frames []euFrame) {
	t.Helper()
	out, err := exec.Command("eu-stack", "-1", "-v", "-n", "200", "-p", strconv.Itoa(tid)).CombinedOutput()
	if err != nil {
		t.Logf("eu-stack: %v: %s", err, out)
	}
	for _, found := range euLine.FindAllSubmatch(out, -1) {
		pc, err := strconv.ParseUint(string(found[1]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f := euFrame{pc, len(found[2]) == 0}
		if !f.exact {
			f.pc--
		}
		frames = append(frames, f)
	}
	return frames
}

// text writes a walk as golden files have it.
func (i *Image) text(w Walk) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %d reads\n", i.About, w.End, w.Reads)
	names := develop(w)
	for _, f := range w.Frames {
		if f.Language == 0 {
			b.WriteString(i.frame(f) + "\n")
			continue
		}
		name := names.name(f)
		if name == "" {
			name = i.Names[key(f)]
		}
		fmt.Fprintf(&b, "    %s\n", cmp.Or(name, "? "+key(f)))
	}
	return b.String()
}

func (i *Image) frame(f unwind.Frame) string {
	if f.Executable == 0 || int(f.Executable) > len(i.Files) {
		return fmt.Sprintf("%#x", f.Offset)
	}
	file := i.Files[f.Executable-1]
	return fmt.Sprintf("%s+%#x %s", file.Name, f.Offset, file.Names[f.Offset])
}
