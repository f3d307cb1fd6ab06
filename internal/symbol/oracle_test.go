package symbol

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/profile"
)

// Every address of freshly compiled programs is compared with LLVM's addr2line:
// GNU's does not read split units, and puts the function's name in the place of
// an inlined call's where that has no linker name.
func TestAgainstAddr2line(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command string
		least   float64 // share of addresses that must be equal in all frames
	}{
		{"gcc", "g++ -O2 -g -o $OUT shapes.cc", 0.999},
		{"gcc DWARF 4", "g++ -O2 -gdwarf-4 -o $OUT shapes.cc", 0.999},
		{"gcc DWARF 3", "g++ -O2 -gdwarf-3 -gstrict-dwarf -o $OUT shapes.cc", 0.999},
		{"gcc compressed", "g++ -O2 -g -gz -o $OUT shapes.cc", 0.999},
		{"gcc unoptimized", "g++ -O0 -g -o $OUT shapes.cc", 0.999},
		{"gcc sections collected", "g++ -O2 -g -ffunction-sections -Wl,--gc-sections -o $OUT shapes.cc", 0.999},
		{"gcc whole program", "g++ -O2 -g -flto -o $OUT shapes.cc", 0.999},
		{"gcc static", "g++ -O2 -g -static -o $OUT shapes.cc", 0.99},
		{"gcc split", "g++ -O2 -g -gsplit-dwarf -o $OUT shapes.cc", 0.999},
		{"gcc split DWARF 4", "g++ -O2 -gdwarf-4 -gsplit-dwarf -o $OUT shapes.cc", 0.999},
		{"clang", "clang++ -O2 -g -o $OUT shapes.cc", 0.999},
		{"clang DWARF 4", "clang++ -O2 -gdwarf-4 -o $OUT shapes.cc", 0.999},
		{"clang split", "clang++ -O2 -g -gsplit-dwarf -c -o $OUT.o shapes.cc && clang++ -o $OUT $OUT.o", 0.999},
		{"rustc", "rustc -O -g -o $OUT shapes.rs", 0.99},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "shapes")
			compile(t, out, tc.command)
			compare(t, out, tc.least)
		})
	}
}

// Large files of this machine, those that have debug information somewhere.
func TestLargeFilesAgainstAddr2line(t *testing.T) {
	for _, file := range large {
		t.Run(path.Base(file), func(t *testing.T) {
			if _, err := os.Stat(file); err != nil {
				t.Skip(err)
			}
			compare(t, file, 0.99)
		})
	}
}

// compile runs a compiler on the test data; it is left out if it is not here.
func compile(t *testing.T, out, command string) {
	t.Helper()
	compiler, _, _ := strings.Cut(command, " ")
	if _, err := exec.LookPath(compiler); err != nil {
		// Debian's versions have numbers.
		if _, err := exec.LookPath(compiler + "-19"); err != nil {
			t.Skip(err)
		}
		command = strings.ReplaceAll(command, compiler+" ", compiler+"-19 ")
	}
	c := exec.Command("sh", "-ec", command)
	c.Dir = "testdata"
	c.Env = append(os.Environ(), "OUT="+out)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
}

func compare(t *testing.T, file string, least float64) {
	t.Helper()
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := resolverOf(t, Options{}, file)
	var addresses []uint64
	for _, s := range f.Executable() {
		step := max(s.Size/5_000, 1) | 1
		for a := s.Address; a < s.Address+s.Size; a += step {
			addresses = append(addresses, a)
		}
	}
	want := addr2line(t, file, addresses)
	symbols, _ := f.Symbols()
	if d, err := binfile.Open(r.loader.finder.Local(f.BuildID())); err == nil {
		defer d.Close()
		more, _ := d.Symbols()
		symbols = append(symbols, more...)
	}
	aliases := map[string]uint64{}
	for _, s := range symbols {
		aliases[s.Name] = s.Address
	}
	equal, known, shown := 0, 0, 0
	for i, a := range addresses {
		off, _ := f.Offset(a)
		frames, how := r.resolve(t.Context(), profile.Location{Kind: profile.KindNative, BuildID: f.BuildID(), Offset: off}, false)
		ok := how == isNamed
		if inside := covered(symbols, a); inside && !ok {
			t.Errorf("%#x: no name inside of a symbol", a)
		} else if want[i] == nil || !inside && !ok {
			// Between functions addr2line names the one before; we must not.
			continue
		}
		if last := frames[len(frames)-1].Function; strings.HasSuffix(last, "plt") {
			continue // stubs are compared with objdump
		}
		known++
		if same(frames, want[i], aliases) {
			equal++
		} else if shown++; shown <= 10 {
			t.Logf("%#x:\n got  %v\n want %v", a, oracleForm(frames), want[i])
		}
	}
	share := float64(equal) / float64(known)
	t.Logf("%d of %d addresses are named by addr2line, %d equally by us (%.4f)", known, len(addresses), equal, share)
	if share < least || known == 0 {
		t.Errorf("%.4f of the addresses have equal frames, want %.4f", share, least)
	}
}

func resolverOf(t testing.TB, o Options, file string) *Resolver {
	t.Helper()
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := New(o)
	t.Cleanup(func() { r.Close() })
	r.AddFile(f.BuildID(), file, func() (*os.File, error) { return os.Open(file) })
	return r
}

// oracleFrame is a frame as addr2line prints it.
type oracleFrame struct {
	function, file string
	line           int
}

// addr2line names addresses; nil for those it has no name for.
func addr2line(t *testing.T, file string, addresses []uint64) [][]oracleFrame {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addresses {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	tool := "llvm-addr2line-19"
	if _, err := exec.LookPath(tool); err != nil {
		tool = "llvm-addr2line"
	}
	c := exec.Command(tool, "-a", "-i", "-f", "-e", file)
	c.Stdin = &in
	out, err := c.Output()
	if err != nil {
		t.Skip(err)
	}
	var all [][]oracleFrame
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "0x") {
			all = append(all, nil)
			continue
		}
		f := oracleFrame{function: lines.Text()}
		lines.Scan()
		position, _, _ := strings.Cut(lines.Text(), " (discriminator")
		i := strings.LastIndexByte(position, ':')
		f.file = path.Base(position[:i])
		f.line, _ = strconv.Atoi(position[i+1:])
		if f.function != "??" {
			all[len(all)-1] = append(all[len(all)-1], f)
		}
	}
	return all
}

func oracleForm(frames []profile.Frame) (out []oracleFrame) {
	for _, f := range frames {
		out = append(out, oracleFrame{cmp.Or(f.Linkage, f.Function), path.Base(f.File), f.Line})
	}
	return out
}

// covered tells whether a symbol with a size covers an address.
func covered(symbols []binfile.Symbol, address uint64) bool {
	for _, s := range symbols {
		if address >= s.Address && address-s.Address < s.Size {
			return true
		}
	}
	return false
}

// same compares frames. The function itself may be named by another alias; which
// one is compared elsewhere.
func same(got []profile.Frame, want []oracleFrame, aliases map[string]uint64) bool {
	form := oracleForm(got)
	if len(form) != len(want) {
		return false
	}
	for i, w := range want {
		g := form[i]
		// Of a function in parts LLVM gives the debug information's name where
		// the symbols are in a separate file.
		nameOK := g.function == w.function || i == len(want)-1 && (strings.HasPrefix(g.function, w.function+".") ||
			aliases[g.function] != 0 && aliases[g.function] == aliases[w.function])
		if w.file == "??" || w.line == 0 {
			g.file, g.line, w.file, w.line = "", 0, "", 0
		}
		if !nameOK || g.file != w.file || g.line != w.line {
			return false
		}
	}
	return true
}
