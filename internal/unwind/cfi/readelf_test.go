package cfi

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"atys.dev/atys/internal/unwind/cfi/rows"
)

// TestAgainstReadelf compares every row of real files with what binutils, an
// independent reader, makes of the same bytes.
func TestAgainstReadelf(t *testing.T) {
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("no readelf")
	}
	files := []string{
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/bin/perl",
	}
	if !testing.Short() {
		pg, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		files = append(files, pg...)
	}
	files = append(files, strings.Fields(os.Getenv("CFI_READELF"))...)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if _, err := os.Stat(path); err != nil {
				t.Skip(err)
			}
			compareReadelf(t, path, ".eh_frame")
		})
	}
}

// compareReadelf checks the rows of path against readelf's reading of a section.
func compareReadelf(t *testing.T, path, section string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tab, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	im := newImage(f)
	all, wrong, inexact := 0, 0, map[rows.Type]int{}
	readelfRows(t, path, section, func(pc uint64, cfa, rbp, ra string) {
		off, _, ok := im.offset(pc)
		if !ok {
			return
		}
		all++
		got, _ := tab.Find(off)
		want, known := readelfRule(cfa, rbp, ra)
		if !known {
			// Expressions are printed as "exp": the type must be one of those
			// that come from them.
			inexact[got.Type()]++
			switch got.Type() {
			case rows.PLT, rows.Signal, rows.Unsupported, rows.BPDeref, rows.SPDeref, rows.LeafReg:
				return
			}
		} else if got == want {
			return
		}
		if wrong++; wrong <= 10 {
			t.Errorf("%#x: cfa %s rbp %s ra %s: got %v, want %v", pc, cfa, rbp, ra, got, want)
		}
	})
	if all == 0 {
		t.Errorf("readelf found no rows in %s", section)
	}
	t.Logf("%s: %d rows compared, %d wrong, expressions %v, unsupported %v", path, all, wrong, inexact, tab.Unsupported)
}

// readelfRule is what a row of readelf means; known is false for expressions.
func readelfRule(cfa, rbp, ra string) (r rows.Rule, known bool) {
	regs := []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}
	returnReg := -1
	if n, err := strconv.Atoi(strings.TrimPrefix(ra, "r")); err == nil && n < regRA {
		returnReg = n
	}
	switch {
	case ra == "u":
		return rows.NewRule(rows.End, 0, 0), true
	case ra == "exp":
		return 0, false
	case ra != "c-8" && returnReg < 0:
		return rows.NewRule(rows.Unsupported, 0, 0), true
	}
	slot := uint8(rows.RBPLost)
	if n, err := strconv.Atoi(strings.TrimPrefix(rbp, "c-")); err == nil && n%8 == 0 && n > 0 && n/8 <= rows.RBPMax {
		slot = uint8(n / 8)
	} else if rbp == "u" || rbp == "s" || rbp == "" {
		slot = rows.RBPSame
	} else if rbp == "exp" {
		slot = rows.RBPAtRBP
	}
	reg, rest, _ := strings.Cut(cfa, "+")
	n, err := strconv.Atoi(rest)
	if err != nil || n%8 != 0 {
		return 0, false
	}
	for i, name := range regs {
		switch {
		case name != reg:
		case i == regRSP && returnReg >= 0:
			return rows.NewSplitRule(rows.ReturnReg, slot, uint8(returnReg), int64(n/8)), true
		case returnReg >= 0:
			return rows.NewRule(rows.Unsupported, 0, 0), true
		case i == regRSP:
			return rows.NewRule(rows.SP, slot, uint32(n/8)), true
		case i == regRBP:
			return rows.NewRule(rows.BP, slot, uint32(n/8)), true
		default:
			return rows.NewSplitRule(rows.LeafReg, slot, uint8(i), int64(n/8)), true
		}
	}
	return 0, false
}

// readelfRows calls visit for each row of readelf's interpreted frames. Of rows
// at one address the last holds.
func readelfRows(t *testing.T, path, section string, visit func(pc uint64, cfa, rbp, ra string)) {
	cmd := exec.Command("readelf", "-W", "--debug-dump=frames-interp", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	in, fde, columns := false, false, map[string]int{}
	var low, high uint64
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		fields := slices.DeleteFunc(strings.Fields(line), func(f string) bool {
			return strings.HasPrefix(f, "(") // "r10 (r10)" is one column
		})
		switch {
		case strings.HasPrefix(line, "Contents of the "):
			in = strings.Contains(line, " "+section+" ")
		case !in || len(fields) == 0:
		case strings.Contains(line, " CIE "):
			fde = false
		case strings.Contains(line, " FDE "):
			fde = true
			i := strings.Index(line, "pc=")
			fmt.Sscanf(line[i:], "pc=%x..%x", &low, &high)
		case fields[0] == "LOC":
			columns = map[string]int{}
			for i, c := range fields {
				columns[c] = i
			}
		case fde:
			pc, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil || pc < low || pc >= high || len(fields) < len(columns) {
				continue
			}
			rbp := ""
			if i, ok := columns["rbp"]; ok {
				rbp = fields[i]
			}
			visit(pc, fields[1], rbp, fields[columns["ra"]])
		}
	}
}

// TestDebugFrameAgainstReadelf does the same for a program that has its unwind
// information in .debug_frame only, plain and compressed.
func TestDebugFrameAgainstReadelf(t *testing.T) {
	for _, gz := range []string{"none", "zlib"} {
		out := build(t, "gcc", "-O2", "-g", "-gz="+gz, "-fno-asynchronous-unwind-tables", "-pthread", "-o", "OUT", "testdata/victim.c")
		compareReadelf(t, out, ".debug_frame")
	}
}
