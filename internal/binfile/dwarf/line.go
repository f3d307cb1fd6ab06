package dwarf

import (
	"cmp"
	"path"
	"slices"
)

// Line says where the code from an address on, up to the next Line, came from.
type Line struct {
	Address uint64
	File    int // of Code.Files; -1 from where on nothing is known
	Line    int
}

const (
	maxLineBytes = 256 << 20 // of one unit's line program
	maxLines     = 1 << 22   // of one unit
	maxFiles     = 1 << 16   // of one unit, and folders
	maxFileBytes = 16 << 20  // of the names of one unit's files and folders
	maxColumns   = 16        // of a table of files; compilers write up to 5
)

// Opcodes (DW_LNS_*, DW_LNE_*) and contents of DWARF 5's file tables (DW_LNCT_*).
const (
	lnsCopy       = 1
	lnsAdvancePC  = 2
	lnsAdvanceLn  = 3
	lnsSetFile    = 4
	lnsSetColumn  = 5
	lnsNegateStmt = 6
	lnsBasicBlock = 7
	lnsConstAddPC = 8
	lnsFixedAddPC = 9
	lnsPrologue   = 10
	lnsEpilogue   = 11
	lnsSetISA     = 12
	lneEnd        = 1
	lneSetAddress = 2
	lneDefineFile = 3
	lnctPath      = 1
	lnctDirectory = 2
)

// program is a line number program: its header, then its instructions.
type program struct {
	cursor
	u          *unit
	version    uint16
	wide       bool
	minLength  uint64
	lineBase   int8
	lineRange  uint8
	opcodeBase uint8
	operands   []uint8
	dirs       []string
	files      []string // by the program's numbers
	nameBytes  int      // of folders and files
}

// readProgram reads the header of the program at an offset of .debug_line.
func readProgram(u *unit, off uint64, compDir, unitName string) *program {
	d := u.data
	head := cursor{data: d.bytes("line", off, 12)}
	length, wide := head.length()
	if head.bad || length > maxLineBytes {
		return nil
	}
	p := &program{u: u, wide: wide}
	p.data = d.bytes("line", off+uint64(head.at), int(length))
	p.version = p.u16()
	if p.version < 2 || p.version > 5 {
		return nil
	}
	if p.version >= 5 {
		p.skip(2) // sizes of addresses and of segment selectors
	}
	headerLength := p.word(wide)
	body := uint64(p.at) + headerLength
	p.minLength = uint64(p.u8())
	if p.version >= 4 {
		p.skip(1) // instructions per word: 1 but on VLIW machines
	}
	p.skip(1) // default of "is a statement"
	p.lineBase = int8(p.u8())
	p.lineRange = p.u8()
	p.opcodeBase = p.u8()
	for i := 1; i < int(p.opcodeBase); i++ {
		p.operands = append(p.operands, p.u8())
	}
	if p.version >= 5 {
		p.files5(compDir)
	} else {
		p.filesBefore5(compDir, unitName)
	}
	if p.lineRange == 0 || p.opcodeBase == 0 || body > uint64(len(p.data)) {
		return nil
	}
	p.at, p.bad = int(body), false
	return p
}

func (p *program) filesBefore5(compDir, unitName string) {
	p.dirs = []string{compDir}
	for len(p.dirs) < maxFiles && !p.bad {
		dir := p.string()
		if dir == "" {
			break
		}
		p.addDir(join(compDir, dir))
	}
	p.files = []string{join(compDir, unitName)}
	for len(p.files) < maxFiles && !p.bad {
		name := p.string()
		if name == "" {
			return
		}
		p.defineFile(name)
	}
}

// defineFile reads what follows a file's name: directory, time, size.
func (p *program) defineFile(name string) {
	dir := p.uleb()
	p.uleb()
	p.uleb()
	p.addFile(join(p.dir(dir), name))
}

// addDir and addFile end a table that is larger than any should be: a name is joined
// with that of its folder, which many may have in common.
func (p *program) addDir(name string)  { p.add(&p.dirs, name) }
func (p *program) addFile(name string) { p.add(&p.files, name) }

func (p *program) add(to *[]string, name string) {
	if p.nameBytes += len(name); p.nameBytes > maxFileBytes || len(*to) >= maxFiles {
		p.bad = true
		return
	}
	*to = append(*to, name)
}

func (p *program) dir(i uint64) string {
	if i < uint64(len(p.dirs)) {
		return p.dirs[i]
	}
	return ""
}

func (p *program) files5(compDir string) {
	p.table5(func(name string, _ uint64) { p.addDir(join(compDir, name)) })
	p.table5(func(name string, dir uint64) { p.addFile(join(p.dir(dir), name)) })
}

// table5 reads a table of DWARF 5, which says itself what is in it.
func (p *program) table5(add func(name string, dir uint64)) {
	var format []field
	for range p.u8() {
		content, form := p.uleb(), p.uleb()
		format = append(format, field{attr: uint16(min(content, 0xffff)), form: uint16(min(form, 0xffff))})
	}
	if len(format) > maxColumns {
		p.bad = true
	}
	n := p.uleb()
	// A program's own format decides how wide its offsets are, not the unit's.
	u := *p.u
	u.wide, u.version, u.buf = p.wide, 5, p.data
	for i := uint64(0); i < n && !p.bad && len(format) > 0; i++ {
		start := p.at
		name, dir := "", uint64(0)
		for _, f := range format {
			v := p.value(f, &u)
			switch f.attr {
			case lnctPath:
				name = u.string(v)
			case lnctDirectory:
				dir = v.n
			}
		}
		// Forms of no bytes would make any number of files from nothing.
		if p.at == start {
			p.bad = true
			return
		}
		add(name, dir)
	}
}

func join(dir, name string) string {
	if path.IsAbs(name) || dir == "" {
		return name
	}
	if name == "" {
		return dir
	}
	return path.Join(dir, name)
}

// state is the machine that a program drives.
type state struct {
	address uint64
	file    uint64
	line    int64
}

// sequence is a stretch of code that lines follow each other in.
type sequence struct {
	lines []Line
	end   uint64
}

// run executes the program. What is past a damage is left out.
func (p *program) run() []sequence {
	var sequences []sequence
	var current []Line
	s := state{file: 1, line: 1}
	total := 0
	emit := func() {
		// Of several at one address the last holds.
		if n := len(current); n > 0 && current[n-1].Address == s.address {
			current = current[:n-1]
		}
		file := -1
		if s.file < uint64(len(p.files)) {
			file = int(s.file)
		}
		current = append(current, Line{s.address, file, int(max(s.line, 0))})
		total++
	}
	for p.at < len(p.data) && !p.bad && total < maxLines {
		op := p.u8()
		switch {
		case op >= p.opcodeBase:
			op -= p.opcodeBase
			s.address += uint64(op/p.lineRange) * p.minLength
			s.line += int64(p.lineBase) + int64(op%p.lineRange)
			emit()
		case op == 0:
			if p.extended(&s) {
				if len(current) > 0 {
					sequences = append(sequences, sequence{current, s.address})
				}
				current, s = nil, state{file: 1, line: 1}
			}
		case op == lnsCopy:
			emit()
		default:
			p.standard(op, &s)
		}
	}
	return sequences
}

func (p *program) standard(op uint8, s *state) {
	switch op {
	case lnsAdvancePC:
		s.address += p.uleb() * p.minLength
	case lnsAdvanceLn:
		s.line += p.sleb()
	case lnsSetFile:
		s.file = p.uleb()
	case lnsConstAddPC:
		s.address += uint64((255-p.opcodeBase)/p.lineRange) * p.minLength
	case lnsFixedAddPC:
		s.address += uint64(p.u16())
	case lnsSetColumn, lnsSetISA:
		p.uleb()
	case lnsNegateStmt, lnsBasicBlock, lnsPrologue, lnsEpilogue:
	default:
		for range p.operands[op-1] {
			p.uleb()
		}
	}
}

// extended executes an extended instruction; true if it ends the sequence.
func (p *program) extended(s *state) bool {
	n := p.uleb()
	if n == 0 || n > uint64(len(p.data)-p.at) {
		p.bad = p.bad || n != 0
		return false
	}
	next := p.at + int(n)
	end := false
	switch p.u8() {
	case lneEnd:
		end = true
	case lneSetAddress:
		s.address = p.fixed(min(int(n)-1, 8))
	case lneDefineFile:
		if len(p.files) < maxFiles {
			p.defineFile(p.string())
		}
	}
	p.at = next
	return end
}

// flattenLines puts sequences into one sorted list, ends marked.
func flattenLines(sequences []sequence) (lines []Line) {
	sequences = slices.DeleteFunc(sequences, func(s sequence) bool {
		// Address 0: thrown away by the linker; backwards: damaged.
		return s.lines[0].Address == 0 || s.end < s.lines[len(s.lines)-1].Address ||
			!slices.IsSortedFunc(s.lines, func(a, b Line) int { return cmp.Compare(a.Address, b.Address) })
	})
	slices.SortStableFunc(sequences, func(a, b sequence) int { return cmp.Compare(a.lines[0].Address, b.lines[0].Address) })
	behind := uint64(0)
	for _, s := range sequences {
		if s.lines[0].Address < behind {
			continue // overlaps what is there: the first one stays
		}
		if n := len(lines); n > 0 && lines[n-1].Address == s.lines[0].Address {
			lines = lines[:n-1]
		}
		lines = append(lines, s.lines...)
		lines = append(lines, Line{Address: s.end, File: -1})
		behind = s.end
	}
	return lines
}
