package symbol

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

const kallsyms = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000100 T __schedule
ffffffff81000200 T __x64_sys_read
ffffffff81000200 t ksys_alias
ffffffff81000280 d not_code
ffffffff81000300 T _etext
ffffffff81800000 D data
ffffffff82000000 T _sinittext
ffffffff82000010 T start_kernel
ffffffff82000100 T _einittext
ffffffffc0000000 t cleanup	[nf_tables]
ffffffffc0000010 T nft_do_chain	[nf_tables]
ffffffffc0100000 t bpf_prog_6deef7357e7b4530_sd_fw	[bpf]
ffffffffc0200000 t bpf_trampoline_1	[bpf]
`

const modules = `nf_tables 4096 0 - Live 0xffffffffc0000000 (E)
`

// fakeKernel makes the files that a Kernel reads.
func fakeKernel(t *testing.T, kallsyms string, now func() time.Time) (*Kernel, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"kallsyms": kallsyms, "modules": modules,
		"kernel/notes": "\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00\xab\xcd\x00\x00",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return NewKernel(dir, dir, now), dir
}

func TestKernel(t *testing.T) {
	k, _ := fakeKernel(t, kallsyms, nil)
	if err := k.Err(); err != nil {
		t.Fatal(err)
	}
	image := func(off uint64) profile.Location {
		return profile.Location{Kind: profile.KindKernel, BuildID: "abcd", Offset: off}
	}
	for _, tc := range []struct {
		address  uint64
		location profile.Location
		function string
		mapping  string
		named    bool
	}{
		{0xffffffff81000000, image(0), "startup_64", "[kernel]", true},
		{0xffffffff81000123, image(0x123), "__schedule", "[kernel]", true},
		{0xffffffff81000200, image(0x200), "ksys_alias", "[kernel]", true},
		{0xffffffff81000290, image(0x290), "ksys_alias", "[kernel]", true},
		{0xffffffff81000300, image(0x300), "[kernel]+0x300", "[kernel]", false}, // behind the text
		{0xffffffff82000020, image(0x1000020), "start_kernel", "[kernel]", true},
		{0xffffffffc0000018, profile.Location{Kind: profile.KindKernel, BuildID: "module:nf_tables", Offset: 0x18},
			"nft_do_chain", "[nf_tables]", true},
		{0xffffffffc0100010, profile.Location{Kind: profile.KindKernel, Name: "bpf_prog_6deef7357e7b4530_sd_fw"},
			"bpf_prog_6deef7357e7b4530_sd_fw", "[kernel]", true},
		{0xffffffffc0180000, profile.Location{Kind: profile.KindKernel, BuildID: "address:abcd", Offset: 0xffffffffc0180000},
			"[kernel]+0xffffffffc0180000", "[kernel]", false}, // far behind any BPF program
		{0xffffffffd0000000, profile.Location{Kind: profile.KindKernel, BuildID: "address:abcd", Offset: 0xffffffffd0000000},
			"[kernel]+0xffffffffd0000000", "[kernel]", false},
	} {
		l := k.Location(tc.address)
		if l != tc.location {
			t.Errorf("%#x is at %+v, want %+v", tc.address, l, tc.location)
		}
		frames, named := k.Frames(l)
		want := profile.Frame{Function: tc.function, Mapping: tc.mapping, Kind: profile.KindKernel, Class: profile.ClassKernel}
		if len(frames) != 1 || frames[0] != want || named != tc.named {
			t.Errorf("%#x is %+v (%v), want %+v (%v)", tc.address, frames, named, want, tc.named)
		}
	}
}

// Address randomisation moves everything; places stay.
func TestKernelPlacesDoNotMove(t *testing.T) {
	a, _ := fakeKernel(t, kallsyms, nil)
	b, _ := fakeKernel(t, strings.NewReplacer("ffffffff81", "ffffffff9a", "ffffffff82", "ffffffff9b").Replace(kallsyms), nil)
	if x, y := a.Location(0xffffffff81000123), b.Location(0xffffffff9a000123); x != y {
		t.Errorf("%+v and %+v", x, y)
	}
}

func TestKernelHidesAddresses(t *testing.T) {
	k, _ := fakeKernel(t, "0000000000000000 T _text\n0000000000000000 T schedule\n", nil)
	if err := k.Err(); !errors.Is(err, ErrNoKernelAddresses) {
		t.Errorf("error %v", err)
	}
	l := k.Location(0xffffffff81000123)
	if l.BuildID != "address:abcd" || l.Offset != 0xffffffff81000123 {
		t.Errorf("location %+v", l)
	}
	w := window(l)
	New(Options{Kernel: k}).Name(t.Context(), w)
	if loss := w.Losses; len(loss) != 1 || loss[0].N != 3 || !strings.Contains(loss[0].Detail, "kptr_restrict") {
		t.Errorf("losses %+v", loss)
	}
}

// Modules and BPF programs that come later are found, but the file is not read
// for each unknown address.
func TestKernelReload(t *testing.T) {
	now := time.Unix(1000, 0)
	k, dir := fakeKernel(t, kallsyms, func() time.Time { return now })
	const late = 0xffffffffc0300010
	k.Location(late)
	more := kallsyms + "ffffffffc0300000 t bpf_prog_late	[bpf]\n"
	if err := os.WriteFile(filepath.Join(dir, "kallsyms"), []byte(more), 0o644); err != nil {
		t.Fatal(err)
	}
	if l := k.Location(late); l.Name != "" {
		t.Errorf("location %+v without time passed", l)
	}
	now = now.Add(kernelReload)
	if l := k.Location(late); l.Name != "bpf_prog_late" {
		t.Errorf("location %+v", l)
	}
}

// The running kernel's own symbols lead back to their names.
func TestRunningKernel(t *testing.T) {
	k := NewKernel("/proc", "/sys", nil)
	if err := k.Err(); err != nil {
		t.Skip(err)
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	symbols, err := parseKallsyms(f)
	if err != nil {
		t.Fatal(err)
	}
	wrong, checked := 0, 0
	names := map[uint64][]string{}
	for _, s := range symbols {
		names[s.address] = append(names[s.address], s.name)
	}
	for _, s := range symbols {
		if s.module != "" || !s.text || s.address < k.image.base || s.address >= k.image.end {
			continue
		}
		checked++
		frames, ok := k.Frames(k.Location(s.address))
		if !ok && !isMarker([]byte(s.name)) || ok && !strings.Contains(strings.Join(names[s.address], " "), frames[0].Function) {
			if wrong++; wrong < 5 {
				t.Errorf("%s at %#x is %v", s.name, s.address, frames)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("%d symbols checked", checked)
	}
}

func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(kallsyms), []byte(modules))
	f.Fuzz(func(t *testing.T, text, mods []byte) {
		symbols, err := parseKallsyms(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		k := NewKernel("", "", nil)
		k.loaded = time.Now()
		k.arrange(symbols, parseModules(strings.NewReader(string(mods))))
		for _, s := range symbols {
			l, _ := k.place(s.address)
			if frames, _ := k.Frames(l); len(frames) != 1 || frames[0].Function == "" {
				t.Fatalf("%+v: %+v", l, frames)
			}
		}
	})
}

// window is a window in which a location is the leaf of three samples.
func window(l profile.Location) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	stack := b.Stack([]profile.LocationID{b.Location(l)}, profile.EndComplete)
	b.Add(profile.Row{Stack: stack, N: 3, Values: []int64{30}})
	return b.Window()
}
