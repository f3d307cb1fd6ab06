package symbol

import (
	"debug/elf"
	"fmt"
	"math"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
)

func show(spans []span) string {
	var parts []string
	for _, s := range spans {
		parts = append(parts, fmt.Sprintf("%s[%d,%d)", s.name, s.start, s.end))
	}
	return strings.Join(parts, " ")
}

func TestLayOut(t *testing.T) {
	c := func(name string, start, end uint32, rank int) candidate {
		return candidate{span: span{start, end, name}, rank: rank}
	}
	for _, tc := range []struct {
		name string
		in   []candidate
		want string
	}{
		{"apart", []candidate{c("b", 20, 30, 0), c("a", 10, 20, 0)}, "a[10,20) b[20,30)"},
		{"gap", []candidate{c("a", 10, 15, 0), c("b", 20, 30, 0)}, "a[10,15) b[20,30)"},
		{"inside", []candidate{c("outer", 10, 30, 0), c("inner", 15, 20, 0)}, "outer[10,15) inner[15,20) outer[20,30)"},
		{"overlapping", []candidate{c("a", 10, 20, 0), c("b", 15, 30, 0)}, "a[10,15) b[15,30)"},
		{"same start, rank", []candidate{c("low", 10, 20, 1), c("high", 10, 20, 2)}, "high[10,20)"},
		{"same start, better is shorter", []candidate{c("low", 10, 30, 1), c("high", 10, 20, 2)}, "high[10,20) low[20,30)"},
		{"same start, better is longer", []candidate{c("low", 10, 20, 1), c("high", 10, 30, 2)}, "high[10,30)"},
		{"same start, length of name", []candidate{c("longer", 10, 20, 1), c("short", 10, 20, 1)}, "short[10,20)"},
		{"same start, alphabet", []candidate{c("b", 10, 20, 1), c("a", 10, 20, 1)}, "a[10,20)"},
		{"three deep", []candidate{c("a", 0, 100, 0), c("b", 10, 50, 0), c("c", 20, 30, 0)},
			"a[0,10) b[10,20) c[20,30) b[30,50) a[50,100)"},
		{"highest addresses", []candidate{c("a", math.MaxUint32-1, math.MaxUint32, 0)},
			fmt.Sprintf("a[%d,%d)", uint32(math.MaxUint32-1), uint32(math.MaxUint32))},
		{"empty", []candidate{c("a", 10, 10, 0)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := show(layOut(tc.in)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestFillGaps(t *testing.T) {
	spans := []span{{10, 20, "a"}, {40, 50, "b"}}
	for _, tc := range []struct {
		name string
		fill []span
		want string
	}{
		{"between", []span{{20, 30, "x"}}, "a[10,20) x[20,30) b[40,50)"},
		{"before", []span{{0, 5, "x"}}, "x[0,5) a[10,20) b[40,50)"},
		{"behind", []span{{60, 70, "x"}}, "a[10,20) b[40,50) x[60,70)"},
		{"inside", []span{{12, 30, "x"}}, "a[10,20) b[40,50)"},
		{"cut", []span{{30, 60, "x"}}, "a[10,20) x[30,40) b[40,50)"},
		{"several", []span{{20, 25, "x"}, {25, 45, "y"}, {55, 60, "z"}}, "a[10,20) x[20,25) y[25,40) b[40,50) z[55,60)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := show(fillGaps(spans, tc.fill)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRank(t *testing.T) {
	// From the most to the least preferred.
	order := []binfile.Symbol{
		{Name: "read", Type: elf.STT_FUNC, Bind: elf.STB_GLOBAL},
		{Name: "read", Type: elf.STT_FUNC, Bind: elf.STB_WEAK},
		{Name: "__read", Type: elf.STT_FUNC, Bind: elf.STB_GLOBAL},
		{Name: "_ZN4read", Type: elf.STT_FUNC, Bind: elf.STB_LOCAL},
		{Name: "__libc_read", Type: elf.STT_FUNC, Bind: elf.STB_LOCAL},
		{Name: "read", Type: elf.STT_GNU_IFUNC, Bind: elf.STB_GLOBAL},
		{Name: "read", Type: elf.STT_NOTYPE, Bind: elf.STB_GLOBAL},
		{Name: "read", Type: elf.STT_NOTYPE, Bind: elf.STB_LOCAL},
	}
	for i := 1; i < len(order); i++ {
		if rank(order[i-1]) <= rank(order[i]) {
			t.Errorf("%+v is not preferred over %+v", order[i-1], order[i])
		}
	}
}

// Assembly without sizes is named up to the next function, and no further.
func TestSymbolsWithoutSize(t *testing.T) {
	file := t.TempDir() + "/whole"
	compile(t, file, "g++ -O2 -o $OUT shapes.cc")
	f, err := binfile.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := encodeFunctions(gatherSpans(f))
	address := f.LookupSymbols("assembly")["assembly"]
	off, _ := f.Offset(address)
	// lea (3 bytes), nop, ret; then the label, nop, ret; then padding and code
	// of the compiler, which has names of its own.
	for i, want := range []string{"assembly", "assembly", "assembly", "assembly", "assembly", "unnamed_tail", "unnamed_tail"} {
		if got, _ := table.lookup(uint32(off) + uint32(i)); got != want {
			t.Errorf("byte %d is %q, want %q", i, got, want)
		}
	}
}

func TestDemangled(t *testing.T) {
	for linkage, want := range map[string]string{
		"main":                               "main",
		"_start":                             "_start",
		"_Z3fooi":                            "foo",
		"_Z3fooi.cold":                       "foo.cold",
		"_ZN3Foo3barEv.part.0.cold":          "Foo::bar.part.0.cold",
		"_ZN3FooIiE3barEPKc.constprop.0":     "Foo<int>::bar.constprop.0",
		"_ZNSt6vectorIiSaIiEE9push_backERKi": "std::vector<int, std::allocator<int> >::push_back",
		"_ZNKSt8functionIFviEEclEi":          "std::function<void (int)>::operator()",
		"_ZdlPv@plt":                         "operator delete@plt",
		"_Z3foov.llvm.12345":                 "foo",
		"_RNvCs1234_7mycrate3foo":            "mycrate::foo",
		"_RNvCs1234_7mycrate3foo.llvm.99":    "mycrate::foo",
		"_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$..$u7b$$u7b$closure$u7d$$u7d$$GT$17h9b9bb0a5c2f0ff51E.llvm.123": "core::ptr::drop_in_place<std::rt::lang_start<()>::{{closure}}>",
		"_Znonsense":                      "_Znonsense",
		"puts@plt":                        "puts@plt",
		"main.cold":                       "main.cold",
		"_Z" + strings.Repeat("x", 1<<15): "_Z" + strings.Repeat("x", 1<<15),
	} {
		if got := demangled(linkage); got != want {
			t.Errorf("%q is shown as %q, want %q", linkage, got, want)
		}
	}
}

// Spans never overlap, are sorted, and each lies inside of a candidate of its name.
func FuzzLayOut(f *testing.F) {
	f.Add([]byte{1, 5, 0, 2, 9, 1, 1, 5, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		var in []candidate
		for ; len(data) >= 3; data = data[3:] {
			start := uint32(data[0])
			in = append(in, candidate{span: span{start, start + uint32(data[1]%32), fmt.Sprint(len(in))}, rank: int(data[2])})
		}
		given := map[string]candidate{}
		for _, c := range in {
			given[c.name] = c
		}
		covered := map[uint32]bool{}
		for _, c := range in {
			for i := c.start; i < c.end; i++ {
				covered[i] = true
			}
		}
		at, n := uint32(0), 0
		for _, s := range layOut(in) {
			c := given[s.name]
			if s.start < at || s.start >= s.end || s.start < c.start || s.end > c.end {
				t.Fatalf("span %v of candidate %v, the one before ends at %d", s, c.span, at)
			}
			at = s.end
			n += int(s.end - s.start)
		}
		if n != len(covered) {
			t.Fatalf("%d bytes are named, %d are covered", n, len(covered))
		}
	})
}
