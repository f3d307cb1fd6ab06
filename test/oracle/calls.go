package oracle

import (
	"cmp"
	"debug/elf"
	"debug/gosym"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// calls is a second witness, for programs whose stacks libdwfl cannot follow
// everywhere: the code itself. Before each return address stands a call, and a
// direct call's target must be the function of the frame inside it, or lead
// there by jumps.
type calls struct{ files map[string]*text }

// text is the functions of one file.
type text struct {
	file      *elf.File
	functions []symbol // by address
}

type symbol struct {
	name       string
	start, end uint64
}

func (c *calls) open(path string) *text {
	if c.files == nil {
		c.files = map[string]*text{}
	}
	if t, ok := c.files[path]; ok {
		return t
	}
	var t *text
	if f, err := elf.Open(path); err == nil { // an unreadable file proves nothing
		t = &text{file: f}
		symbols, _ := f.Symbols()
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
				t.functions = append(t.functions, symbol{s.Name, s.Value, s.Value + s.Size})
			}
		}
		if len(symbols) == 0 {
			t.functions = goFunctions(f)
		}
		slices.SortFunc(t.functions, func(a, b symbol) int { return cmp.Compare(a.start, b.start) })
	}
	c.files[path] = t
	return t
}

// goFunctions lists the functions of a stripped Go program.
func goFunctions(f *elf.File) (list []symbol) {
	table, code := f.Section(".gopclntab"), f.Section(".text")
	if table == nil || code == nil {
		return nil
	}
	data, err := table.Data()
	if err != nil {
		return nil
	}
	t, err := gosym.NewTable(nil, gosym.NewLineTable(data, code.Addr))
	if err != nil {
		return nil
	}
	for _, one := range t.Funcs {
		list = append(list, symbol{one.Name, one.Entry, one.End})
	}
	return list
}

func (c *calls) close() {
	for _, t := range c.files {
		if t != nil {
			t.file.Close()
		}
	}
}

func (t *text) address(offset uint64) uint64 {
	for _, p := range t.file.Progs {
		if p.Type == elf.PT_LOAD && offset >= p.Off && offset < p.Off+p.Filesz {
			return p.Vaddr + offset - p.Off
		}
	}
	return 0
}

func (t *text) code(address uint64, n int) []byte {
	b := make([]byte, n)
	for _, p := range t.file.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address < p.Vaddr+p.Filesz {
			read, _ := p.ReadAt(b, int64(address-p.Vaddr)) // short at the segment's end
			return b[:read]
		}
	}
	return nil
}

func (t *text) function(address uint64) (symbol, bool) {
	i, found := slices.BinarySearchFunc(t.functions, address, func(s symbol, a uint64) int { return cmp.Compare(s.start, a) })
	if !found {
		i--
	}
	if i < 0 || address >= t.functions[i].end {
		return symbol{}, false
	}
	return t.functions[i], true
}

// proof is what the code says of a stack.
type proof struct {
	checked int    // callers that the code can speak of
	wrong   string // why one of them is wrong; "" if none is
	at      int    // which
}

// check looks at each caller.
func (c *calls) check(stack []place) (p proof) {
	for i := 1; i < len(stack); i++ {
		outer := c.open(stack[i].path)
		if outer == nil || len(outer.functions) == 0 {
			continue
		}
		caller, ok := outer.function(outer.address(stack[i].offset))
		if !ok || entersWithoutCall(c, stack[i-1]) {
			continue
		}
		if strings.TrimSuffix(caller.name, ".abi0") == "runtime.goexit" { // made to look as if it had called
			continue
		}
		target, direct, called := outer.callBefore(outer.address(stack[i].offset) + 1)
		if !called {
			return proof{p.checked, "no call before the return address in " + caller.name, i}
		}
		p.checked++
		if !direct || stack[i-1].path != stack[i].path {
			continue
		}
		inner, ok := outer.function(outer.address(stack[i-1].offset))
		if ok && !outer.leads(target, inner, 4) {
			to, _ := outer.function(target)
			return proof{p.checked, caller.name + " calls " + to.name + ", not " + inner.name, i}
		}
	}
	return p
}

// uncalled are functions that what is outside them did not call: the kernel
// entered them, or Go's runtime did from a signal handler, wherever the
// goroutine was.
var uncalled = []string{"__restore_rt", "runtime.sigreturn__sigaction", "runtime.asyncPreempt", "runtime.sigpanic"}

// entersWithoutCall tells whether a frame may have no call outside it; a
// function without a name may be one of those.
func entersWithoutCall(c *calls, inner place) bool {
	t := c.open(inner.path)
	if t == nil {
		return true
	}
	f, ok := t.function(t.address(inner.offset))
	return !ok || slices.Contains(uncalled, strings.TrimSuffix(f.name, ".abi0"))
}

// callBefore finds the call instruction that ends at an address.
func (t *text) callBefore(address uint64) (target uint64, direct, found bool) {
	b := t.code(address-7, 7)
	if len(b) < 7 {
		return 0, false, false
	}
	if b[2] == 0xe8 {
		return address + uint64(int64(int32(le.Uint32(b[3:])))), true, true
	}
	for n := 2; n <= 7; n++ {
		in, err := x86asm.Decode(b[7-n:], 64)
		if err == nil && in.Len == n && in.Op == x86asm.CALL {
			return 0, false, true
		}
	}
	return 0, false, false
}

// leads tells whether code at from is in a function, or jumps there.
func (t *text) leads(from uint64, to symbol, jumps int) bool {
	if from >= to.start && from < to.end {
		return true
	}
	f, ok := t.function(from)
	if !ok || jumps == 0 {
		return !ok // a stub of the linker, say: it proves nothing
	}
	code := t.code(f.start, int(min(f.end-f.start, 1<<16)))
	for at := 0; at < len(code); {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			at++
			continue
		}
		at += in.Len
		if in.Op != x86asm.JMP && !strings.HasPrefix(in.Op.String(), "J") {
			continue
		}
		rel, ok := in.Args[0].(x86asm.Rel)
		if !ok {
			return true // jumps through a pointer: to anywhere
		}
		target := f.start + uint64(at) + uint64(int64(rel))
		if (target < f.start || target >= f.end) && t.leads(target, to, jumps-1) {
			return true
		}
	}
	return false
}
