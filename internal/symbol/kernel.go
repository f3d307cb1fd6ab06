package symbol

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
)

// ErrNoKernelAddresses says that the kernel hides its addresses from us.
var ErrNoKernelAddresses = errors.New(
	"the kernel hides its addresses: set kernel.kptr_restrict to 1 and run with CAP_SYSLOG, or to 0")

const (
	kernelMapping   = "[kernel]"
	modulePrefix    = "module:"
	absolutePrefix  = "address:" // build-id of kernel code that could not be placed
	maxKallsyms     = 1 << 28
	maxKallsymsLine = 1 << 12
	maxDynamicCode  = 1 << 16     // bytes of a BPF program; few have a tenth of that
	kernelReload    = time.Minute // at most this often for addresses not known yet
	maxKernelReload = time.Hour   // where reading did not help again and again
)

// Kernel places and names kernel code. A place means the same on every host:
//
//   - of the kernel itself, its build-id and the distance from _text;
//   - of a module, "module:NAME" and the distance from where it is loaded;
//   - of code made while running (BPF programs, trampolines), its name.
//
// Only where the kernel hides its addresses an absolute one has to do, under
// "address:" and the kernel's build-id. It is safe for concurrent use.
type Kernel struct {
	proc, notes string
	now         func() time.Time

	mu     sync.Mutex // guards all below
	loaded time.Time
	// patience is how old what was loaded may be before an unknown address has
	// it read anew.
	patience time.Duration
	buildID  string
	err      error
	image    regionTable
	modules  map[string]regionTable
	starts   []moduleStart // sorted
	dynamic  regionTable   // BPF programs and the like, by address
}

type moduleStart struct {
	start, end uint64
	name       string
}

// regionTable names stretches of kernel code by their distance from base.
type regionTable struct {
	base, end uint64
	reach     uint64 // how far code may lie behind its symbol, 0 without bound
	starts    []uint32
	names     []uint32 // offsets into text
	text      []byte   // names, NUL-terminated
}

// NewKernel reads the running kernel's symbols when they are first needed, from
// under the given directories ("/proc", "/sys"). A nil now is time.Now.
func NewKernel(proc, sys string, now func() time.Time) *Kernel {
	if now == nil {
		now = time.Now
	}
	return &Kernel{proc: proc, notes: sys + "/kernel/notes", now: now, patience: kernelReload}
}

// Err tells why kernel code stays without names, nil if it does not.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.load()
	return k.err
}

// Location places a kernel address.
func (k *Kernel) Location(address uint64) profile.Location {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.load()
	l, ok := k.place(address)
	if !ok && k.err == nil && k.now().Sub(k.loaded) >= k.patience {
		k.reload()
		if l, ok = k.place(address); ok {
			k.patience = kernelReload
		} else { // some addresses have no name, and never will
			k.patience = min(2*k.patience, maxKernelReload)
		}
	}
	return l
}

func (k *Kernel) place(address uint64) (profile.Location, bool) {
	l := profile.Location{Kind: profile.KindKernel}
	if k.err == nil && address >= k.image.base && address < k.image.end {
		l.BuildID, l.Offset = k.buildID, address-k.image.base
		return l, true
	}
	if i := sort.Search(len(k.starts), func(i int) bool { return k.starts[i].start > address }) - 1; i >= 0 {
		if m := k.starts[i]; address < m.end {
			l.BuildID, l.Offset = modulePrefix+m.name, address-m.start
			return l, true
		}
	}
	if address >= k.dynamic.base && address < k.dynamic.end {
		if name := k.dynamic.name(address - k.dynamic.base); name != "" {
			l.Name = name
			return l, true
		}
	}
	l.BuildID, l.Offset = absolutePrefix+k.buildID, address
	return l, false
}

// Frames names a place; false if it has no name.
func (k *Kernel) Frames(l profile.Location) ([]profile.Frame, bool) {
	if l.Name != "" {
		return []profile.Frame{kernelFrame(l.Name, kernelMapping)}, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.load()
	name, mapping := "", kernelMapping
	if module, ok := strings.CutPrefix(l.BuildID, modulePrefix); ok {
		mapping = "[" + module + "]"
		name = k.modules[module].name(l.Offset)
	} else if l.BuildID == k.buildID {
		name = k.image.name(l.Offset)
	}
	if name == "" {
		f := profile.Unnamed(profile.KindKernel, mapping, l.Offset)
		f.Class = profile.ClassKernel
		return []profile.Frame{f}, false
	}
	return []profile.Frame{kernelFrame(name, mapping)}, true
}

func kernelFrame(name, mapping string) profile.Frame {
	return profile.Frame{Function: name, Mapping: mapping, Kind: profile.KindKernel, Class: profile.ClassKernel}
}

func (k *Kernel) load() {
	if k.loaded.IsZero() {
		k.reload()
	}
}

// reload reads everything anew. mu is held.
func (k *Kernel) reload() {
	k.loaded = k.now()
	k.buildID = "kernel"
	if notes, err := os.ReadFile(k.notes); err == nil {
		if id := binfile.FindNote(notes, 4, "GNU\x00", 3); len(id) > 0 {
			k.buildID = hex.EncodeToString(id)
		}
	}
	f, err := os.Open(k.proc + "/kallsyms")
	if err != nil {
		k.err = err
		return
	}
	defer f.Close()
	symbols, err := parseKallsyms(f)
	if err != nil {
		k.err = err
		return
	}
	var modules []moduleStart
	if f, err := os.Open(k.proc + "/modules"); err == nil {
		modules = parseModules(f)
		f.Close()
	}
	k.err = nil
	k.arrange(symbols, modules)
}

type kernelSymbol struct {
	address uint64
	name    string
	module  string
	text    bool
}

// parseKallsyms reads lines of "address type name [module]". Its error is
// ErrNoKernelAddresses where all addresses are zero.
func parseKallsyms(r io.Reader) ([]kernelSymbol, error) {
	in := bufio.NewScanner(io.LimitReader(r, maxKallsyms))
	in.Buffer(make([]byte, 0, maxKallsymsLine), 1<<16)
	var symbols []kernelSymbol
	modules := map[string]string{}
	visible := false
	for in.Scan() {
		first, rest, _ := bytes.Cut(in.Bytes(), []byte{' '})
		kind, rest, ok := bytes.Cut(rest, []byte{' '})
		address, err := parseHex(first)
		if !ok || len(kind) != 1 || err != nil {
			continue
		}
		visible = visible || address != 0
		name, module, _ := bytes.Cut(rest, []byte{'\t'})
		text := kind[0] == 't' || kind[0] == 'T' || kind[0] == 'w' || kind[0] == 'W'
		if len(name) == 0 || address == 0 || !text && !isMarker(name) {
			continue
		}
		s := kernelSymbol{address: address, name: string(name), text: text}
		if m := bytes.Trim(module, "[]"); len(m) > 0 {
			if s.module, ok = modules[string(m)]; !ok {
				s.module = string(m)
				modules[s.module] = s.module
			}
		}
		symbols = append(symbols, s)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read kallsyms: %w", err)
	}
	if !visible {
		return nil, ErrNoKernelAddresses
	}
	return symbols, nil
}

// Symbols that bound the kernel's code and name none of it.
var markers = []string{"_text", "_stext", "_etext", "_sinittext", "_einittext"}

func isMarker(name []byte) bool { return slices.Contains(markers, string(name)) }

// parseModules reads /proc/modules: name size users dependencies state address.
func parseModules(r io.Reader) (modules []moduleStart) {
	in := bufio.NewScanner(io.LimitReader(r, maxKallsyms))
	for in.Scan() {
		fields := strings.Fields(in.Text())
		if len(fields) < 6 {
			continue
		}
		start, err := parseHex([]byte(fields[5]))
		var size uint64
		if _, scanErr := fmt.Sscanf(fields[1], "%d", &size); err != nil || scanErr != nil || start == 0 || start+size < start {
			continue
		}
		modules = append(modules, moduleStart{start, start + size, fields[0]})
	}
	slices.SortFunc(modules, func(a, b moduleStart) int { return cmp.Compare(a.start, b.start) })
	return modules
}

// arrange sorts symbols into the tables they belong to. mu is held.
func (k *Kernel) arrange(symbols []kernelSymbol, modules []moduleStart) {
	slices.SortStableFunc(symbols, func(a, b kernelSymbol) int {
		return cmp.Or(cmp.Compare(a.address, b.address), -cmp.Compare(kernelRank(a.name), kernelRank(b.name)),
			cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	var text, end uint64
	for _, s := range symbols {
		switch {
		case s.module != "":
		case s.name == "_text" || s.name == "_stext" && text == 0:
			text = s.address
		case s.name == "_etext" || s.name == "_einittext":
			end = max(end, s.address)
		}
	}
	k.starts = modules
	var image, dynamic []kernelSymbol
	inModule := map[string][]kernelSymbol{}
	for _, s := range symbols {
		i := slices.IndexFunc(modules, func(m moduleStart) bool { return m.name == s.module })
		switch {
		case s.module == "" && s.address >= text && s.address <= end:
			image = append(image, s)
		case s.module != "" && i >= 0:
			if s.address >= modules[i].start && s.address < modules[i].end {
				inModule[s.module] = append(inModule[s.module], s)
			}
		case s.module != "" && s.text:
			dynamic = append(dynamic, s)
		}
	}
	k.image = newRegionTable(text, end, image)
	k.modules = map[string]regionTable{}
	for _, m := range modules {
		k.modules[m.name] = newRegionTable(m.start, m.end, inModule[m.name])
	}
	k.dynamic = regionTable{}
	if n := len(dynamic); n > 0 {
		// Between programs there is memory of anything else.
		k.dynamic = newRegionTable(dynamic[0].address, dynamic[n-1].address+maxDynamicCode, dynamic)
		k.dynamic.reach = maxDynamicCode
	}
}

// kernelRank prefers names with fewer underscores in front, markers last.
func kernelRank(name string) int {
	if isMarker([]byte(name)) {
		return -1 << 10
	}
	return len(strings.TrimLeft(name, "_")) - len(name)
}

// newRegionTable takes sorted symbols, the preferred of each address first.
func newRegionTable(base, end uint64, symbols []kernelSymbol) regionTable {
	t := regionTable{base: base, end: end}
	for i, s := range symbols {
		distance := s.address - base
		if distance > 1<<32-1 || i > 0 && symbols[i-1].address == s.address {
			continue
		}
		t.starts = append(t.starts, uint32(distance))
		t.names = append(t.names, uint32(len(t.text)))
		if !isMarker([]byte(s.name)) || s.name == "_text" || s.name == "_stext" {
			t.text = append(t.text, s.name...)
		}
		t.text = append(t.text, 0)
	}
	return t
}

// name gives the name of the code at a distance from the base. kallsyms knows
// no sizes: code belongs to the symbol before it, within reach.
func (t regionTable) name(distance uint64) string {
	if distance >= t.end-t.base {
		return ""
	}
	i := sort.Search(len(t.starts), func(i int) bool { return uint64(t.starts[i]) > distance }) - 1
	if i < 0 || t.reach > 0 && distance-uint64(t.starts[i]) >= t.reach {
		return ""
	}
	name, _, _ := bytes.Cut(t.text[t.names[i]:], []byte{0})
	return string(name)
}
