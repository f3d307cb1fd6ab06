package replay

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/unwind"
)

// TestPythonWork has every native frame of a deep stack run a cycle of frames
// of which none is a function: the cycle may be followed once.
func TestPythonWork(t *testing.T) {
	m := machine(t)
	images(t, func(t *testing.T, _ string, i *Image) {
		var p python.Parameters
		if len(i.Runtimes) == 0 || i.Runtimes[0].Language != unwind.Python {
			return
		}
		if err := binary.Read(bytes.NewReader(i.Runtimes[0].Parameters), binary.LittleEndian, &p); err != nil {
			t.Fatal(err)
		}
		const begin = 0x10000000
		pc, most := i.evaluates(walked(t, m, i)), 0
		stack := bytes.Repeat(binary.LittleEndian.AppendUint64(nil, pc+1), 1<<17-1)
		for frame := range i.pointers() {
			hostile := i.changed(nil)
			if !hostile.put(frame+uint64(p.FramePrevious), frame) {
				continue
			}
			hostile.unname(uint64(p.CodeName), uint64(p.CodeFile), uint64(p.Type), p.CodeType)
			hostile.Memory = append(hostile.Memory, Piece{begin, stack})
			hostile.Registers[RegisterIP], hostile.Registers[RegisterSP] = pc, begin
			most = max(most, walked(t, m, hostile).Reads)
		}
		t.Logf("at most %d reads", most)
		if most > mostReads {
			t.Errorf("%d reads", most)
		}
	})
}

// evaluates is the pc of an evaluation function's frame.
func (i *Image) evaluates(w Walk) uint64 {
	for _, f := range w.Frames {
		if f.Executable == 0 || !strings.HasPrefix(i.Files[f.Executable-1].Names[f.Offset], "_PyEval_EvalFrameDefault") {
			continue
		}
		for _, m := range i.Mappings {
			if m.File == int(f.Executable) && f.Offset >= m.Offset && f.Offset-m.Offset < m.End-m.Start {
				return m.Start + f.Offset - m.Offset
			}
		}
	}
	return 0
}
